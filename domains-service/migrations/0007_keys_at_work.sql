-- When a key was used last: the beginning of that minute, as gateways report it. Nothing: not since this column is here.
ALTER TABLE api_keys ADD COLUMN last_used_at BIGINT;

-- The bans in force as each gateway process reported them last.
CREATE TABLE edge_bans (
    node     TEXT PRIMARY KEY,
    bans     TEXT NOT NULL,   -- JSON: those that end last
    total    BIGINT NOT NULL, -- how many there are
    heard_at BIGINT NOT NULL
);
