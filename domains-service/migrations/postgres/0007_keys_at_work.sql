-- When keys were used last, and the bans in force: ../0007_keys_at_work.sql.
ALTER TABLE api_keys ADD COLUMN last_used_at BIGINT;

CREATE TABLE edge_bans (
    node     TEXT COLLATE "C" PRIMARY KEY,
    bans     TEXT NOT NULL,
    total    BIGINT NOT NULL,
    heard_at BIGINT NOT NULL
);
