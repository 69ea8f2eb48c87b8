-- What is kept of each project has a maximum number beside its age.

-- Whether the name was the apex of its zone. Nobody knows it of those from before: they count as such.
ALTER TABLE tombstones ADD COLUMN is_apex BOOLEAN NOT NULL DEFAULT TRUE;
CREATE INDEX tombstones_by_lineage ON tombstones (lineage, removed_at);

-- Rows of a project's audit log, and of an endpoint's deliveries, counted as they are written. Never too low.
CREATE TABLE kept_rows (
    owner TEXT PRIMARY KEY, -- 'events ' and a project, or 'deliveries ' and an endpoint
    kept  BIGINT NOT NULL
);
INSERT INTO kept_rows (owner, kept) SELECT 'events ' || project, COUNT(*) FROM events GROUP BY project;
INSERT INTO kept_rows (owner, kept) SELECT 'deliveries ' || endpoint, COUNT(*) FROM webhook_deliveries GROUP BY endpoint;

-- Explanations of failures from before they were fixed phrases may repeat what a receiver or the system said.
UPDATE webhook_deliveries SET last_error = NULL WHERE last_result IN ('refused', 'blocked', 'unreachable');
