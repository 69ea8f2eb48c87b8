-- What the edge was told to serve no more: ../0021_withdrawals.sql.
CREATE TABLE withdrawals (
    what         TEXT COLLATE "C" NOT NULL,
    which        TEXT COLLATE "C" NOT NULL,
    project      TEXT COLLATE "C" NOT NULL,
    project_name TEXT COLLATE "C" NOT NULL,
    revision     BIGINT NOT NULL,
    since        BIGINT NOT NULL,
    PRIMARY KEY (project, what, which)
);
CREATE INDEX withdrawals_by_revision ON withdrawals (revision);

INSERT INTO withdrawals (what, which, project, project_name, revision, since)
SELECT 'name', name, project, COALESCE((SELECT p.name FROM projects p WHERE p.id = domains.project), ''), removal,
       status_since
FROM domains WHERE removal IS NOT NULL;
