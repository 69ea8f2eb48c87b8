-- A database of the domains-service as version 0c0be3e left it. It is what databases are migrated from, so it never changes.

CREATE TABLE _sqlx_migrations (version BIGINT PRIMARY KEY, description TEXT NOT NULL, installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, success BOOLEAN NOT NULL, checksum BLOB NOT NULL, execution_time BIGINT NOT NULL);
-- The control plane's records. Times are milliseconds since the Unix epoch unless the name says otherwise.

-- The newest revision, and the oldest one a follower may continue from. Its row is the lock every writer takes first.
CREATE TABLE revision_counter (
    id      BIGINT PRIMARY KEY CHECK (id = 1),
    current BIGINT NOT NULL,
    oldest  BIGINT NOT NULL
);

-- The change log: one row per change, revisions without gaps.
CREATE TABLE changes (
    revision BIGINT PRIMARY KEY,
    effect   TEXT NOT NULL,
    at_ms    BIGINT NOT NULL
);

-- What the edge knows at the newest revision: the snapshot.
CREATE TABLE entities (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (kind, name)
);

CREATE TABLE projects (
    id           TEXT PRIMARY KEY,
    salt         TEXT NOT NULL,
    plan         TEXT NOT NULL,
    per_minute   BIGINT,
    per_day      BIGINT,
    access       TEXT NOT NULL,
    upstream     TEXT NOT NULL,
    suspended    BOOLEAN NOT NULL,
    created_at   BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL,
    deployed_at  BIGINT,
    unpaid_since BIGINT
);

CREATE TABLE api_keys (
    id          TEXT PRIMARY KEY,
    project     TEXT NOT NULL REFERENCES projects (id),
    digest      TEXT NOT NULL UNIQUE,
    label       TEXT NOT NULL,
    scopes      TEXT NOT NULL,
    last4       TEXT NOT NULL,
    environment TEXT NOT NULL,
    created_at  BIGINT NOT NULL,
    expires_at  BIGINT, -- seconds
    revoked_at  BIGINT
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

-- Which project a name belongs to: whoever proved it first, or last proved it against the one before.
CREATE TABLE holders (
    name    TEXT PRIMARY KEY,
    project TEXT NOT NULL
);

-- Names that were held once. The lineage is the salt of the project, which no later project of the same id shares.
CREATE TABLE tombstones (
    name       TEXT PRIMARY KEY,
    lineage    TEXT NOT NULL,
    removed_at BIGINT NOT NULL
);

-- What happened, for the project's owner: the audit log.
CREATE TABLE events (
    id      INTEGER PRIMARY KEY,
    project TEXT NOT NULL,
    domain  TEXT,
    kind    TEXT NOT NULL,
    actor   TEXT NOT NULL,
    client  TEXT,
    detail  TEXT NOT NULL,
    at_ms   BIGINT NOT NULL
);
CREATE INDEX events_by_project ON events (project, id);
CREATE INDEX events_by_domain ON events (project, domain, id);

-- What the service remembers about its own configuration.
CREATE TABLE settings (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);
INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
VALUES (1, 'start', TRUE, X'6748c48729c3b6d2e4531d02024ba38ceafd8b64af464c7275ca388a08e4eb839506caf45c5656bb2bd521b8a9ee4af9', 0);

-- Orders at certificate authorities: one per authority and name. The key is there while the order is in progress, so
-- that whoever goes on after a crash gets the certificate the crashed process asked for, and not a second one.
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
INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
VALUES (2, 'acme', TRUE, X'dd7d571de0041e2707741ac89ea719804a8d0a13dfbf032dd6b16ba7cc53e9433473e8261e3d08fba22d19d4498947d2', 0);

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
INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
VALUES (3, 'webhooks', TRUE, X'45f24947b565296118d5b8d164a443f47f86c6ca00a8a1c1e7d6a8a919db96c395f9c60d55a5d82e3237ccb16b57b8ee', 0);

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
INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
VALUES (4, 'dashboard', TRUE, X'f16ca40d00899fe923100370255a85360f5c0eeba92ebf367fb95c76136a4f57481fa3416d8f939cffdda236c59a8d36', 0);

-- Events of other services that are in the outbox of webhooks by now, so that one that is handed over again is told once.
CREATE TABLE taken_events (
    source   TEXT NOT NULL, -- the database it happened in
    number   BIGINT NOT NULL,
    taken_at BIGINT NOT NULL,
    PRIMARY KEY (source, number)
);
CREATE INDEX taken_events_by_age ON taken_events (taken_at);
INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
VALUES (5, 'order events', TRUE, X'02ebb183f31ffd3cf08598a5ecab7a1f97c0535a006c0de6cb3eb0b69b376ab7bfb2a6e9bbdca4ef28f82d48156294c3', 0);

-- With which secret the private key of a published certificate is sealed: its name, nothing when it was sealed before
-- secrets had names. What needs an older secret is found and counted without reading certificates.
ALTER TABLE entities ADD COLUMN seal TEXT NOT NULL DEFAULT '';
CREATE INDEX entities_by_seal ON entities (seal, name) WHERE kind = 'certificate';
INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
VALUES (6, 'sealing', TRUE, X'1e0f2f1ba74af5b12aedcca68b82a669855e4bd1f23376c7abd06e803fe4953a72b6b9b27912b701d653c986a5621fd8', 0);

-- When a key was used last: the beginning of that minute, as gateways report it. Nothing: not since this column is here.
ALTER TABLE api_keys ADD COLUMN last_used_at BIGINT;

-- The bans in force as each gateway process reported them last.
CREATE TABLE edge_bans (
    node     TEXT PRIMARY KEY,
    bans     TEXT NOT NULL,   -- JSON: those that end last
    total    BIGINT NOT NULL, -- how many there are
    heard_at BIGINT NOT NULL
);
INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
VALUES (7, 'keys at work', TRUE, X'd1dcff06adce1758052290da99565fba3e13564f1cbefc47575099f93c6ea12e12901c91424741a71ffdd3495613cac7', 0);

-- What it wrote: a project `acme` with a key and a domain, and what is left of a project `gone` that was removed.
INSERT INTO revision_counter (id, current, oldest) VALUES (1, 1781000000000, 1781000000000);
INSERT INTO projects (id, salt, plan, per_minute, per_day, access, upstream, suspended, created_at, updated_at, deployed_at, unpaid_since)
VALUES ('acme', 'salt-a', 'pro', NULL, NULL, 'key', 'orders', FALSE, 1781000000000, 1781000000000, 1781000000000, NULL);
INSERT INTO api_keys (id, project, digest, label, scopes, last4, environment, created_at, expires_at, revoked_at)
VALUES ('key_aaaaaaaaaaaaaaaa', 'acme', 'j6Oqsvqpt54KA5jaW1q9B4AUJEKlvoC5pkYI1xjLH80', 'old', '["orders:read"]', 'aaaa', 'live', 1781000000000, NULL, NULL);
INSERT INTO domains (name, project, status, status_since, is_primary, primary_wanted, is_apex, problems, certificate, watched_since, due_at, lease_until, lease_fence, rev, created_at, updated_at)
VALUES ('shop.customer.test', 'acme', 'pending_dns', 1781000000000, FALSE, TRUE, FALSE, '[]', '{"status":"none","ca":null,"serial":null,"not_before":null,"not_after":null,"key_type":null,"renew_at":null,"advice_at":null,"advised_until":null,"last_error":null,"attempts":0,"next_attempt_at":null,"rate_limited_until":null}', 1781000000000, 1781000000000, 0, 0, 1, 1781000000000, 1781000000000);
INSERT INTO events (project, domain, kind, actor, client, detail, at_ms)
VALUES ('acme', NULL, 'project.created', 'operator', NULL, '{"plan":"pro"}', 1781000000000),
       ('gone', NULL, 'project.created', 'operator', NULL, '{"plan":"pro"}', 1781000000000),
       ('gone', NULL, 'project.deleted', 'operator', NULL, '{}', 1781000000000);
INSERT INTO usage_days (project, day, node, admitted, refused, banned, minute, in_minute)
VALUES ('acme', 20613, '', 7, 0, 0, 0, 0), ('gone', 20613, '', 9, 0, 0, 0, 0);
INSERT INTO entities (kind, name, body) VALUES
    ('project', 'acme', '{"project":{"id":"acme","plan":"pro","limits":{"per_minute":1000,"per_day":100000},"access":"key","upstream":"orders","suspended":false}}'),
    ('site', 'acme.apps.tollhouse.dev', '{"site":{"hostname":"acme.apps.tollhouse.dev","serves":{"project":"acme"},"redirect":null}}'),
    ('key', 'j6Oqsvqpt54KA5jaW1q9B4AUJEKlvoC5pkYI1xjLH80', '{"key":{"digest":"j6Oqsvqpt54KA5jaW1q9B4AUJEKlvoC5pkYI1xjLH80","id":"key_aaaaaaaaaaaaaaaa","project":"acme","environment":"live","scopes":["orders:read"],"expires_at":null}}');
