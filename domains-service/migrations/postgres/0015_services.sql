-- Services of the platform: ../0015_services.sql.
ALTER TABLE gateways ADD COLUMN kind TEXT COLLATE "C" NOT NULL DEFAULT 'gateway';

CREATE TABLE erased_by (
    project TEXT COLLATE "C" NOT NULL,
    service TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (project, service)
);
