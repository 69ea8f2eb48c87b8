-- Projects that were erased: ../0003_erasures.sql.
CREATE TABLE erased_projects (
    project TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    erased_at_millis BIGINT NOT NULL
);
