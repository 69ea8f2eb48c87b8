-- The control plane's records. Times are milliseconds since the Unix epoch unless the name says otherwise.

-- The newest revision, and the oldest one a follower may continue from. Its row is the lock every writer takes first.
CREATE TABLE revision_counter (
    id      BIGINT PRIMARY KEY CHECK (id = 1),
    current BIGINT NOT NULL,
    oldest  BIGINT NOT NULL
);

-- The change log: one row per change, revisions without gaps. A row whose effect is empty says only the mark of a
-- revision: its change is no longer kept.
CREATE TABLE changes (
    revision BIGINT PRIMARY KEY,
    effect   TEXT NOT NULL,
    at_ms    BIGINT NOT NULL,
    mark     BIGINT NOT NULL -- random: a database that went back and counted on has the same revisions with other marks
);

-- What the edge knows at the newest revision: the snapshot.
CREATE TABLE entities (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    body TEXT NOT NULL,
    seal TEXT NOT NULL, -- the name of the secret that seals a certificate's private key; empty: it has none
    PRIMARY KEY (kind, name)
);
CREATE INDEX entities_by_seal ON entities (seal, name) WHERE kind = 'certificate';

-- `id`, and every column called `project`, holds the project's identity, which is never given twice; `name` is what
-- people say.
CREATE TABLE projects (
    id           TEXT PRIMARY KEY,
    name         TEXT NOT NULL,
    salt         TEXT NOT NULL,
    proof_key    TEXT NOT NULL, -- base64, random: its CNAME target and its ownership texts derive from it
    plan         TEXT NOT NULL,
    per_minute   BIGINT,
    per_day      BIGINT,
    access       TEXT NOT NULL,
    upstream     TEXT NOT NULL,
    browsers     TEXT,          -- JSON: what it tells browsers (CORS, HSTS); nothing: its upstream's setting
    suspended    BOOLEAN NOT NULL,
    created_at   BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL,
    deployed_at  BIGINT,
    unpaid_since BIGINT,
    removed_at   BIGINT,        -- it can be restored until erase_at
    erase_at     BIGINT,
    kept_domains TEXT           -- JSON: the domains that a removed project had
);
-- Names are unique among projects that are there.
CREATE UNIQUE INDEX projects_by_name ON projects (name) WHERE removed_at IS NULL;
CREATE INDEX projects_to_erase ON projects (erase_at) WHERE erase_at IS NOT NULL;

-- Projects that are erased here and that other services have not erased yet: the outbox to them.
CREATE TABLE erasures (
    project   TEXT PRIMARY KEY,
    erased_at BIGINT NOT NULL
);

-- Which services have erased a project of `erasures`: it goes when all have.
CREATE TABLE erased_by (
    project TEXT NOT NULL,
    service TEXT NOT NULL,
    PRIMARY KEY (project, service)
);

CREATE TABLE api_keys (
    id           TEXT PRIMARY KEY,
    project      TEXT NOT NULL REFERENCES projects (id),
    digest       TEXT NOT NULL UNIQUE,
    label        TEXT NOT NULL,
    scopes       TEXT NOT NULL,
    last4        TEXT NOT NULL,
    environment  TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT, -- seconds
    revoked_at   BIGINT,
    last_used_at BIGINT  -- the beginning of that minute, as gateways report it
);
CREATE INDEX api_keys_by_project ON api_keys (project, created_at);

CREATE TABLE domains (
    name            TEXT NOT NULL,
    project         TEXT NOT NULL REFERENCES projects (id),
    status          TEXT NOT NULL,
    status_since    BIGINT NOT NULL,
    is_primary      BOOLEAN NOT NULL,
    primary_wanted  BOOLEAN NOT NULL,
    redirect_to     TEXT,   -- 'primary' or a name
    redirect_status BIGINT,
    is_apex         BOOLEAN,
    checks          TEXT,   -- JSON: the last look at DNS
    problems        TEXT NOT NULL,
    certificate     TEXT NOT NULL,
    watched_since   BIGINT NOT NULL, -- the schedule of checks counts from here
    checked_at      BIGINT,
    failing_since   BIGINT, -- an active domain's first failed check in a row
    waits_since     BIGINT,  -- since when only the certificate is missing, and its owner can do nothing about that
    due_at          BIGINT, -- when the worker looks next
    lease_until     BIGINT NOT NULL,
    lease_fence     BIGINT NOT NULL,
    removal         BIGINT, -- the revision whose acknowledgement ends the removal
    rev             BIGINT NOT NULL,
    created_at      BIGINT NOT NULL,
    updated_at      BIGINT NOT NULL,
    PRIMARY KEY (name, project)
);
CREATE INDEX domains_by_project ON domains (project, name);
CREATE INDEX domains_by_due ON domains (due_at);
CREATE INDEX domains_by_removal ON domains (removal);
CREATE INDEX domains_by_wait ON domains (waits_since) WHERE waits_since IS NOT NULL;

-- Which project a name belongs to: the one that proved it first, or last proved it against the one before.
CREATE TABLE holders (
    name    TEXT PRIMARY KEY,
    project TEXT NOT NULL
);

-- Names that were held once. The lineage is the salt of the project, which no later project of the same name shares.
CREATE TABLE tombstones (
    name       TEXT PRIMARY KEY,
    lineage    TEXT NOT NULL,
    removed_at BIGINT NOT NULL,
    is_apex    BOOLEAN NOT NULL -- whether the name was the apex of its zone
);
CREATE INDEX tombstones_by_lineage ON tombstones (lineage, removed_at);

-- What happened, for the project's owner: the audit log.
CREATE TABLE events (
    id      INTEGER PRIMARY KEY,
    project TEXT NOT NULL,
    domain  TEXT,
    kind    TEXT NOT NULL,
    actor   TEXT NOT NULL,
    client  TEXT,
    gateway TEXT, -- the gateway that the change came through; nothing: an operator at the internal listener, or no request
    detail  TEXT NOT NULL,
    at_ms   BIGINT NOT NULL
);
CREATE INDEX events_by_project ON events (project, id);
CREATE INDEX events_by_domain ON events (project, domain, id);
CREATE INDEX events_by_gateway ON events (gateway, id) WHERE gateway IS NOT NULL;

-- Rows of a project's audit log, and of an endpoint's deliveries, counted as they are written. Never too low.
CREATE TABLE kept_rows (
    owner TEXT PRIMARY KEY, -- 'events ' and a project, or 'deliveries ' and an endpoint
    kept  BIGINT NOT NULL
);

-- What the service remembers about its own configuration.
CREATE TABLE settings (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

-- Orders at certificate authorities: one per authority and name. The key is there while the order is in progress, so
-- that the process that goes on after a crash gets the certificate the crashed process asked for, and not a second one.
CREATE TABLE acme_orders (
    authority    TEXT NOT NULL,
    hostname     TEXT NOT NULL,
    url          TEXT NOT NULL,
    sealed_key   TEXT,   -- of the certificate asked for; nothing once it is in service
    created_at   BIGINT NOT NULL,
    abandoned_at BIGINT, -- the name was removed: from when on its authorizations are to be deactivated
    PRIMARY KEY (authority, hostname)
);
CREATE INDEX acme_orders_by_hostname ON acme_orders (hostname);
CREATE INDEX acme_orders_abandoned ON acme_orders (abandoned_at);

-- What of the authorities' limits is used up: per limit the moment at which all of it is free again.
CREATE TABLE acme_limits (
    name    TEXT PRIMARY KEY,
    free_at BIGINT NOT NULL
);

-- Names that wait for an order at an authority, in the queue for one of its limits or for a live gateway.
CREATE TABLE certificate_queue (
    authority   TEXT NOT NULL,
    hostname    TEXT NOT NULL,
    project     TEXT NOT NULL,
    kind        TEXT NOT NULL, -- of the queue: project, orders, and so on
    queue       TEXT NOT NULL, -- the name of the limit
    since       BIGINT NOT NULL, -- its place is its number by this time
    offered_at  BIGINT NOT NULL, -- when its turn came last; 0: not yet
    admitted_at BIGINT NOT NULL, -- when it took its units for an order that is being made; 0: not yet
    PRIMARY KEY (authority, hostname)
);
CREATE INDEX certificate_queue_by_place ON certificate_queue (queue, since);
CREATE INDEX certificate_queue_by_kind ON certificate_queue (authority, kind, queue);
CREATE INDEX certificate_queue_by_project ON certificate_queue (project);
CREATE INDEX certificate_queue_by_hostname ON certificate_queue (hostname);

-- Receivers of what happens to a project's domains.
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
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (endpoint, due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX webhook_deliveries_settled ON webhook_deliveries (created_at) WHERE due_at IS NULL;

-- Events of other services that are in the outbox of webhooks by now, so that one that is handed over again is told once.
CREATE TABLE taken_events (
    source   TEXT NOT NULL, -- the database it happened in
    number   BIGINT NOT NULL,
    taken_at BIGINT NOT NULL,
    PRIMARY KEY (source, number)
);
CREATE INDEX taken_events_by_age ON taken_events (taken_at);

-- Sessions of the dashboard. The cookie's value is not here, only its digest.
CREATE TABLE dashboard_sessions (
    digest     TEXT PRIMARY KEY,
    project    TEXT,            -- nothing: an operator
    key_id     TEXT,            -- the key it was opened with, which must still be good
    operator   TEXT,            -- the operator who opened it, whose credential must still be good; nothing: a key
    client     TEXT NOT NULL,   -- the address it was opened from
    created_at BIGINT NOT NULL,
    seen_at    BIGINT NOT NULL
);
CREATE INDEX dashboard_sessions_by_key ON dashboard_sessions (key_id, created_at);
CREATE INDEX dashboard_sessions_by_age ON dashboard_sessions (created_at);

-- Links that sign an operator in, once.
CREATE TABLE dashboard_links (
    digest     TEXT PRIMARY KEY,
    operator   TEXT NOT NULL, -- the operator who asked for it
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

-- The bans in force as each gateway process reported them last.
CREATE TABLE edge_bans (
    node     TEXT PRIMARY KEY,
    bans     TEXT NOT NULL,   -- JSON: those that end last
    total    BIGINT NOT NULL, -- how many there are
    reported_at BIGINT NOT NULL
);

-- Credentials of gateways, services and operators. Of a credential only SHA-256 is kept, in hexadecimal. Rows stay when they are
-- revoked or replaced, so that none is ever taken again, and what a credential made is found.
CREATE TABLE credentials (
    digest       TEXT PRIMARY KEY,
    kind         TEXT NOT NULL, -- 'gateway', 'service' or 'operator'
    name         TEXT NOT NULL,
    file         TEXT,          -- the file that it was read from; nothing: it was made by the API
    made_by      TEXT,          -- the digest of the operator's credential that made it; nothing: it was read from a file
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT,        -- of operators
    last_used_at BIGINT,        -- written once a minute
    revoked_at   BIGINT
);
-- Gateways and services share their names; operators have names of their own.
CREATE UNIQUE INDEX credentials_of_nodes ON credentials (name) WHERE kind <> 'operator' AND revoked_at IS NULL;
CREATE UNIQUE INDEX credentials_of_operators ON credentials (name) WHERE kind = 'operator' AND revoked_at IS NULL;
CREATE INDEX credentials_by_maker ON credentials (made_by) WHERE made_by IS NOT NULL;

-- The keys that gateways sign and seal with: three generations at most, each sealed with the sealing secret.
CREATE TABLE gateway_keys (
    number     BIGINT PRIMARY KEY,
    sealed     TEXT NOT NULL,
    signs_from BIGINT NOT NULL
);

-- Processes of gateways, as they report: removals wait for each until it says goodbye, its credential is revoked, or
-- it was not seen for a day.
CREATE TABLE processes (
    gateway        TEXT NOT NULL, -- the name of its credential
    process        TEXT NOT NULL, -- the name it gives itself, one for each start
    place          TEXT NOT NULL, -- the identity of its data directory; empty: unknown
    version        TEXT NOT NULL,
    applied        BIGINT NOT NULL, -- the revision it had applied when the row was written; 0: none
    mark           BIGINT, -- the mark of that revision; NULL: none
    first_seen_at BIGINT NOT NULL,
    last_seen_at  BIGINT NOT NULL, -- written once a minute
    PRIMARY KEY (gateway, process)
);

-- What the edge was told to serve no more, until every process of every gateway on record has acknowledged it.
CREATE TABLE withdrawals (
    what         TEXT NOT NULL, -- name, key, project, suspension, access, upstream, cors or redirect
    which        TEXT NOT NULL, -- the hostname, the id of the key, the name of the project
    project      TEXT NOT NULL, -- its identity; its record may be gone
    project_name TEXT NOT NULL,
    revision     BIGINT NOT NULL, -- a gateway that has applied it serves it no more
    since        BIGINT NOT NULL,
    PRIMARY KEY (project, what, which)
);
CREATE INDEX withdrawals_by_revision ON withdrawals (revision);
