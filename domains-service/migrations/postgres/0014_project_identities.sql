-- Identities of projects: ../0014_project_identities.sql.
ALTER TABLE projects ADD COLUMN name TEXT COLLATE "C" NOT NULL DEFAULT '';
UPDATE projects SET name = id;
ALTER TABLE projects ADD COLUMN proof_key TEXT;
ALTER TABLE projects ADD COLUMN removed_at BIGINT;
ALTER TABLE projects ADD COLUMN erase_at BIGINT;
ALTER TABLE projects ADD COLUMN kept_domains TEXT;
CREATE UNIQUE INDEX projects_by_name ON projects (name) WHERE removed_at IS NULL;
CREATE INDEX projects_to_erase ON projects (erase_at) WHERE erase_at IS NOT NULL;

CREATE TABLE erasures (
    project   TEXT COLLATE "C" PRIMARY KEY,
    erased_at BIGINT NOT NULL
);

INSERT INTO erasures (project, erased_at)
SELECT project, MAX(at_ms) FROM events WHERE project NOT IN (SELECT id FROM projects) GROUP BY project;
DELETE FROM events WHERE project NOT IN (SELECT id FROM projects);
DELETE FROM usage_days WHERE project NOT IN (SELECT id FROM projects);
DELETE FROM dashboard_sessions WHERE project NOT IN (SELECT id FROM projects);
