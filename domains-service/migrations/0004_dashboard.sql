-- Who is signed in to the dashboard. The cookie's value is not here, only its digest.
CREATE TABLE dashboard_sessions (
    digest     TEXT PRIMARY KEY,
    project    TEXT,            -- nothing: an operator
    key_id     TEXT,            -- the key it was opened with, which must still be good
    client     TEXT NOT NULL,   -- the address it was opened from
    created_at BIGINT NOT NULL,
    seen_at    BIGINT NOT NULL
);
CREATE INDEX dashboard_sessions_by_key ON dashboard_sessions (key_id, created_at);
CREATE INDEX dashboard_sessions_by_age ON dashboard_sessions (created_at);

-- Links that sign an operator in, once.
CREATE TABLE dashboard_links (
    digest     TEXT PRIMARY KEY,
    expires_at BIGINT NOT NULL
);

-- Requests per project and UTC day, as each gateway process counted them: its own figures, written over and over.
CREATE TABLE usage_days (
    project   TEXT NOT NULL,
    day       BIGINT NOT NULL, -- days since the epoch
    node      TEXT NOT NULL,   -- empty: the sum of gateways that ended
    admitted  BIGINT NOT NULL,
    refused   BIGINT NOT NULL,
    banned    BIGINT NOT NULL,
    minute    BIGINT NOT NULL, -- the last minute with requests, in minutes since the epoch
    in_minute BIGINT NOT NULL, -- admitted in that minute
    PRIMARY KEY (project, day, node)
);
CREATE INDEX usage_days_by_day ON usage_days (day);
