-- Services of the platform have credentials of their own, as gateways do: 'gateway' or 'service'.
ALTER TABLE gateways ADD COLUMN kind TEXT NOT NULL DEFAULT 'gateway';

-- Which services have erased a project of `erasures`: it goes when all have.
CREATE TABLE erased_by (
    project TEXT NOT NULL,
    service TEXT NOT NULL,
    PRIMARY KEY (project, service)
);
