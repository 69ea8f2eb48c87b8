-- A project has an identity besides its name: `id`, and every column called `project`, holds the identity, and `name` is
-- what people say. A project that is older than this keeps as its identity the name it had, which no later project is
-- given: so nothing that hangs on it needs to be written anew, here or in another service.
ALTER TABLE projects ADD COLUMN name TEXT NOT NULL DEFAULT '';
UPDATE projects SET name = id;
-- What its CNAME target and its ownership texts derive from, in base64: random, and for older projects what was derived
-- from the platform's secret until now. The service fills that in when it starts.
ALTER TABLE projects ADD COLUMN proof_key TEXT;
-- A removed project is kept until `erase_at`, so that it can be restored; `kept_domains` (JSON) are those it had.
ALTER TABLE projects ADD COLUMN removed_at BIGINT;
ALTER TABLE projects ADD COLUMN erase_at BIGINT;
ALTER TABLE projects ADD COLUMN kept_domains TEXT;
-- Names are unique among projects that are there.
CREATE UNIQUE INDEX projects_by_name ON projects (name) WHERE removed_at IS NULL;
CREATE INDEX projects_to_erase ON projects (erase_at) WHERE erase_at IS NOT NULL;

-- Projects that are erased here and that other services have not erased yet: the outbox to them.
CREATE TABLE erasures (
    project   TEXT PRIMARY KEY,
    erased_at BIGINT NOT NULL
);

-- What projects left behind that were removed before: nobody may ever see it.
INSERT INTO erasures (project, erased_at)
SELECT project, MAX(at_ms) FROM events WHERE project NOT IN (SELECT id FROM projects) GROUP BY project;
DELETE FROM events WHERE project NOT IN (SELECT id FROM projects);
DELETE FROM usage_days WHERE project NOT IN (SELECT id FROM projects);
DELETE FROM dashboard_sessions WHERE project NOT IN (SELECT id FROM projects);
