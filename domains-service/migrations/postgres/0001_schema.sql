-- The control plane's records in PostgreSQL: the tables of ../0001_schema.sql, where each is explained. Names and ids are
-- compared and sorted byte by byte, as in SQLite, whatever the database's own collation.

-- Its row is the lock that every writing transaction takes first, in all replicas.
CREATE TABLE revision_counter (
    id      BIGINT PRIMARY KEY CHECK (id = 1),
    current BIGINT NOT NULL,
    oldest  BIGINT NOT NULL
) WITH (fillfactor = 10);

CREATE TABLE changes (
    revision BIGINT PRIMARY KEY,
    effect   TEXT NOT NULL,
    at_ms    BIGINT NOT NULL,
    mark     BIGINT NOT NULL
);

CREATE TABLE entities (
    kind TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    body TEXT NOT NULL,
    seal TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (kind, name)
);
CREATE INDEX entities_by_seal ON entities (seal, name) WHERE kind = 'certificate';

CREATE TABLE projects (
    id           TEXT COLLATE "C" PRIMARY KEY,
    name         TEXT COLLATE "C" NOT NULL,
    salt         TEXT NOT NULL,
    proof_key    TEXT NOT NULL,
    plan         TEXT NOT NULL,
    per_minute   BIGINT,
    per_day      BIGINT,
    access       TEXT NOT NULL,
    upstream     TEXT NOT NULL,
    browsers     TEXT COLLATE "C",
    suspended    BOOLEAN NOT NULL,
    created_at   BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL,
    deployed_at  BIGINT,
    unpaid_since BIGINT,
    removed_at   BIGINT,
    erase_at     BIGINT,
    kept_domains TEXT
);
CREATE UNIQUE INDEX projects_by_name ON projects (name) WHERE removed_at IS NULL;
CREATE INDEX projects_to_erase ON projects (erase_at) WHERE erase_at IS NOT NULL;

CREATE TABLE erasures (
    project   TEXT COLLATE "C" PRIMARY KEY,
    erased_at BIGINT NOT NULL
);

CREATE TABLE erased_by (
    project TEXT COLLATE "C" NOT NULL,
    service TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (project, service)
);

CREATE TABLE api_keys (
    id           TEXT COLLATE "C" PRIMARY KEY,
    project      TEXT COLLATE "C" NOT NULL REFERENCES projects (id),
    digest       TEXT COLLATE "C" NOT NULL UNIQUE,
    label        TEXT NOT NULL,
    scopes       TEXT NOT NULL,
    last4        TEXT NOT NULL,
    environment  TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT,
    revoked_at   BIGINT,
    last_used_at BIGINT
);
CREATE INDEX api_keys_by_project ON api_keys (project, created_at);

CREATE TABLE domains (
    name            TEXT COLLATE "C" NOT NULL,
    project         TEXT COLLATE "C" NOT NULL REFERENCES projects (id),
    status          TEXT COLLATE "C" NOT NULL,
    status_since    BIGINT NOT NULL,
    is_primary      BOOLEAN NOT NULL,
    primary_wanted  BOOLEAN NOT NULL,
    redirect_to     TEXT COLLATE "C",
    redirect_status BIGINT,
    is_apex         BOOLEAN,
    checks          TEXT,
    problems        TEXT NOT NULL,
    certificate     TEXT NOT NULL,
    watched_since   BIGINT NOT NULL,
    checked_at      BIGINT,
    failing_since   BIGINT,
    waits_since     BIGINT,
    due_at          BIGINT,
    lease_until     BIGINT NOT NULL,
    lease_fence     BIGINT NOT NULL,
    removal         BIGINT,
    rev             BIGINT NOT NULL,
    created_at      BIGINT NOT NULL,
    updated_at      BIGINT NOT NULL,
    PRIMARY KEY (name, project)
);
CREATE INDEX domains_by_project ON domains (project, name);
CREATE INDEX domains_by_due ON domains (due_at);
CREATE INDEX domains_by_removal ON domains (removal);
CREATE INDEX domains_by_wait ON domains (waits_since) WHERE waits_since IS NOT NULL;

CREATE TABLE holders (
    name    TEXT COLLATE "C" PRIMARY KEY,
    project TEXT COLLATE "C" NOT NULL
);

CREATE TABLE tombstones (
    name       TEXT COLLATE "C" PRIMARY KEY,
    lineage    TEXT NOT NULL,
    removed_at BIGINT NOT NULL,
    is_apex    BOOLEAN NOT NULL
);
CREATE INDEX tombstones_by_lineage ON tombstones (lineage, removed_at);

CREATE TABLE events (
    id      BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project TEXT COLLATE "C" NOT NULL,
    domain  TEXT COLLATE "C",
    kind    TEXT NOT NULL,
    actor   TEXT NOT NULL,
    client  TEXT,
    gateway TEXT COLLATE "C",
    detail  TEXT NOT NULL,
    at_ms   BIGINT NOT NULL
);
CREATE INDEX events_by_project ON events (project, id);
CREATE INDEX events_by_domain ON events (project, domain, id);
CREATE INDEX events_by_gateway ON events (gateway, id) WHERE gateway IS NOT NULL;

CREATE TABLE kept_rows (
    owner TEXT COLLATE "C" PRIMARY KEY,
    kept  BIGINT NOT NULL
);

CREATE TABLE settings (
    name  TEXT COLLATE "C" PRIMARY KEY,
    value TEXT NOT NULL
);

CREATE TABLE acme_orders (
    authority    TEXT COLLATE "C" NOT NULL,
    hostname     TEXT COLLATE "C" NOT NULL,
    url          TEXT NOT NULL,
    sealed_key   TEXT,
    created_at   BIGINT NOT NULL,
    abandoned_at BIGINT,
    PRIMARY KEY (authority, hostname)
);
CREATE INDEX acme_orders_by_hostname ON acme_orders (hostname);
CREATE INDEX acme_orders_abandoned ON acme_orders (abandoned_at);

CREATE TABLE acme_limits (
    name    TEXT COLLATE "C" PRIMARY KEY,
    free_at BIGINT NOT NULL
);

CREATE TABLE certificate_queue (
    authority   TEXT COLLATE "C" NOT NULL,
    hostname    TEXT COLLATE "C" NOT NULL,
    project     TEXT COLLATE "C" NOT NULL,
    kind        TEXT COLLATE "C" NOT NULL,
    queue       TEXT COLLATE "C" NOT NULL,
    since       BIGINT NOT NULL,
    offered_at  BIGINT NOT NULL,
    admitted_at BIGINT NOT NULL,
    PRIMARY KEY (authority, hostname)
);
CREATE INDEX certificate_queue_by_place ON certificate_queue (queue, since);
CREATE INDEX certificate_queue_by_kind ON certificate_queue (authority, kind, queue);
CREATE INDEX certificate_queue_by_project ON certificate_queue (project);
CREATE INDEX certificate_queue_by_hostname ON certificate_queue (hostname);

CREATE TABLE webhook_endpoints (
    id              TEXT COLLATE "C" PRIMARY KEY,
    project         TEXT COLLATE "C" NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    url             TEXT NOT NULL,
    description     TEXT NOT NULL,
    events          TEXT NOT NULL,
    sealed_secret   TEXT NOT NULL,
    previous_secret TEXT,
    previous_until  BIGINT,
    failing_since   BIGINT,
    delivered_at    BIGINT,
    disabled_at     BIGINT,
    disabled_reason TEXT,
    created_at      BIGINT NOT NULL,
    updated_at      BIGINT NOT NULL
);
CREATE INDEX webhook_endpoints_by_project ON webhook_endpoints (project, created_at);

CREATE TABLE webhook_deliveries (
    id          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint    TEXT COLLATE "C" NOT NULL REFERENCES webhook_endpoints (id) ON DELETE CASCADE,
    message     TEXT NOT NULL,
    kind        TEXT NOT NULL,
    body        TEXT NOT NULL,
    state       TEXT NOT NULL,
    attempts    BIGINT NOT NULL,
    due_at      BIGINT,
    last_result TEXT,
    last_status BIGINT,
    last_error  TEXT,
    last_at     BIGINT,
    created_at  BIGINT NOT NULL
);
CREATE INDEX webhook_deliveries_by_endpoint ON webhook_deliveries (endpoint, id);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (endpoint, due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX webhook_deliveries_settled ON webhook_deliveries (created_at) WHERE due_at IS NULL;

CREATE TABLE taken_events (
    source   TEXT COLLATE "C" NOT NULL,
    number   BIGINT NOT NULL,
    taken_at BIGINT NOT NULL,
    PRIMARY KEY (source, number)
);
CREATE INDEX taken_events_by_age ON taken_events (taken_at);

CREATE TABLE dashboard_sessions (
    digest     TEXT COLLATE "C" PRIMARY KEY,
    project    TEXT COLLATE "C",
    key_id     TEXT COLLATE "C",
    operator   TEXT COLLATE "C",
    client     TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    seen_at    BIGINT NOT NULL
);
CREATE INDEX dashboard_sessions_by_key ON dashboard_sessions (key_id, created_at);
CREATE INDEX dashboard_sessions_by_age ON dashboard_sessions (created_at);

CREATE TABLE dashboard_links (
    digest     TEXT COLLATE "C" PRIMARY KEY,
    operator   TEXT COLLATE "C" NOT NULL,
    expires_at BIGINT NOT NULL
);

CREATE TABLE usage_days (
    project   TEXT COLLATE "C" NOT NULL,
    day       BIGINT NOT NULL,
    node      TEXT COLLATE "C" NOT NULL,
    admitted  BIGINT NOT NULL,
    refused   BIGINT NOT NULL,
    banned    BIGINT NOT NULL,
    minute    BIGINT NOT NULL,
    in_minute BIGINT NOT NULL,
    PRIMARY KEY (project, day, node)
);
CREATE INDEX usage_days_by_day ON usage_days (day);

CREATE TABLE edge_bans (
    node     TEXT COLLATE "C" PRIMARY KEY,
    bans     TEXT NOT NULL,
    total    BIGINT NOT NULL,
    reported_at BIGINT NOT NULL
);

CREATE TABLE credentials (
    digest       TEXT COLLATE "C" PRIMARY KEY,
    kind         TEXT COLLATE "C" NOT NULL,
    name         TEXT COLLATE "C" NOT NULL,
    file         TEXT COLLATE "C",
    made_by      TEXT COLLATE "C",
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT,
    last_used_at BIGINT,
    revoked_at   BIGINT
);
CREATE UNIQUE INDEX credentials_of_nodes ON credentials (name) WHERE kind <> 'operator' AND revoked_at IS NULL;
CREATE UNIQUE INDEX credentials_of_operators ON credentials (name) WHERE kind = 'operator' AND revoked_at IS NULL;
CREATE INDEX credentials_by_maker ON credentials (made_by) WHERE made_by IS NOT NULL;

CREATE TABLE gateway_keys (
    number     BIGINT PRIMARY KEY,
    sealed     TEXT NOT NULL,
    signs_from BIGINT NOT NULL
);

CREATE TABLE processes (
    gateway        TEXT COLLATE "C" NOT NULL,
    process        TEXT COLLATE "C" NOT NULL,
    place          TEXT COLLATE "C" NOT NULL,
    version        TEXT COLLATE "C" NOT NULL,
    applied        BIGINT NOT NULL,
    mark           BIGINT,
    first_seen_at BIGINT NOT NULL,
    last_seen_at  BIGINT NOT NULL,
    PRIMARY KEY (gateway, process)
);

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
