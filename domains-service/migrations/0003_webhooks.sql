-- Who wants to be told what happens to a project's domains.
CREATE TABLE webhook_endpoints (
    id              TEXT PRIMARY KEY,
    project         TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    url             TEXT NOT NULL,
    description     TEXT NOT NULL,
    events          TEXT NOT NULL, -- JSON: kinds of events, or prefixes that end in .*
    sealed_secret   TEXT NOT NULL,
    previous_secret TEXT,   -- sealed; signs as well until previous_until
    previous_until  BIGINT,
    failing_since   BIGINT, -- the first failed attempt since the last delivery
    delivered_at    BIGINT, -- the last delivery
    disabled_at     BIGINT,
    disabled_reason TEXT,
    created_at      BIGINT NOT NULL,
    updated_at      BIGINT NOT NULL
);
CREATE INDEX webhook_endpoints_by_project ON webhook_endpoints (project, created_at);

-- The outbox: one row per event and endpoint, written in the transaction of the event.
CREATE TABLE webhook_deliveries (
    id          INTEGER PRIMARY KEY,
    endpoint    TEXT NOT NULL REFERENCES webhook_endpoints (id) ON DELETE CASCADE,
    message     TEXT NOT NULL,
    kind        TEXT NOT NULL,
    body        TEXT NOT NULL,
    state       TEXT NOT NULL, -- waiting, delivered or failed
    attempts    BIGINT NOT NULL,
    due_at      BIGINT,        -- nothing once it is settled; while an attempt is made, when it counts as lost
    last_result TEXT,
    last_status BIGINT,
    last_error  TEXT,
    last_at     BIGINT,
    created_at  BIGINT NOT NULL
);
CREATE INDEX webhook_deliveries_by_endpoint ON webhook_deliveries (endpoint, id);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (due_at, endpoint) WHERE due_at IS NOT NULL;
CREATE INDEX webhook_deliveries_waiting ON webhook_deliveries (endpoint) WHERE due_at IS NOT NULL;
CREATE INDEX webhook_deliveries_settled ON webhook_deliveries (created_at) WHERE due_at IS NULL;
