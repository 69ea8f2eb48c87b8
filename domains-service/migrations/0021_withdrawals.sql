-- What the edge was told to serve no more, until every process of every gateway on record has acknowledged it.
CREATE TABLE withdrawals (
    what         TEXT NOT NULL, -- name, key, project, suspension or redirect
    which        TEXT NOT NULL, -- the hostname, the id of the key, the name of the project
    project      TEXT NOT NULL, -- its identity; its record may be gone
    project_name TEXT NOT NULL,
    revision     BIGINT NOT NULL, -- a gateway that has applied it serves it no more
    since        BIGINT NOT NULL,
    PRIMARY KEY (project, what, which)
);
CREATE INDEX withdrawals_by_revision ON withdrawals (revision);

INSERT INTO withdrawals (what, which, project, project_name, revision, since)
SELECT 'name', name, project, COALESCE((SELECT p.name FROM projects p WHERE p.id = domains.project), ''), removal,
       status_since
FROM domains WHERE removal IS NOT NULL;
