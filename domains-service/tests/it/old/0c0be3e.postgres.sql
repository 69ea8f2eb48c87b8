-- A database of the domains-service as version 0c0be3e left it. It is what databases are migrated from, so it never changes.

CREATE TABLE _sqlx_migrations (version BIGINT PRIMARY KEY, description TEXT NOT NULL, installed_on TIMESTAMPTZ NOT NULL DEFAULT now(), success BOOLEAN NOT NULL, checksum BYTEA NOT NULL, execution_time BIGINT NOT NULL);
-- The control plane's records in PostgreSQL: the tables of ../0001_start.sql, ../0002_acme.sql and ../0003_webhooks.sql,
-- where each column is explained. Names and ids are compared and sorted byte by byte, as in SQLite, whatever the
-- database's own collation.

-- Its row is the lock that every writing transaction takes first, in all replicas.
CREATE TABLE revision_counter (
    id      BIGINT PRIMARY KEY CHECK (id = 1),
    current BIGINT NOT NULL,
    oldest  BIGINT NOT NULL
) WITH (fillfactor = 10);

CREATE TABLE changes (
    revision BIGINT PRIMARY KEY,
    effect   TEXT NOT NULL,
    at_ms    BIGINT NOT NULL
);

CREATE TABLE entities (
    kind TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (kind, name)
);

CREATE TABLE projects (
    id           TEXT COLLATE "C" PRIMARY KEY,
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
    id          TEXT COLLATE "C" PRIMARY KEY,
    project     TEXT COLLATE "C" NOT NULL REFERENCES projects (id),
    digest      TEXT COLLATE "C" NOT NULL UNIQUE,
    label       TEXT NOT NULL,
    scopes      TEXT NOT NULL,
    last4       TEXT NOT NULL,
    environment TEXT NOT NULL,
    created_at  BIGINT NOT NULL,
    expires_at  BIGINT,
    revoked_at  BIGINT
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

CREATE TABLE holders (
    name    TEXT COLLATE "C" PRIMARY KEY,
    project TEXT COLLATE "C" NOT NULL
);

CREATE TABLE tombstones (
    name       TEXT COLLATE "C" PRIMARY KEY,
    lineage    TEXT NOT NULL,
    removed_at BIGINT NOT NULL
);

CREATE TABLE events (
    id      BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project TEXT COLLATE "C" NOT NULL,
    domain  TEXT COLLATE "C",
    kind    TEXT NOT NULL,
    actor   TEXT NOT NULL,
    client  TEXT,
    detail  TEXT NOT NULL,
    at_ms   BIGINT NOT NULL
);
CREATE INDEX events_by_project ON events (project, id);
CREATE INDEX events_by_domain ON events (project, domain, id);

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
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (due_at, endpoint) WHERE due_at IS NOT NULL;
CREATE INDEX webhook_deliveries_waiting ON webhook_deliveries (endpoint) WHERE due_at IS NOT NULL;
CREATE INDEX webhook_deliveries_settled ON webhook_deliveries (created_at) WHERE due_at IS NULL;
INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
VALUES (1, 'start', TRUE, decode('91865851f0bfa5b8d1a702b14f964190f8394b46809bca8eb4bcf499539d6220bbc04fa57aa68b1b57ef3e24bff25512', 'hex'), 0);

-- Who is signed in to the dashboard. The cookie's value is not here, only its digest.
CREATE TABLE dashboard_sessions (
    digest     TEXT COLLATE "C" PRIMARY KEY,
    project    TEXT COLLATE "C",            -- nothing: an operator
    key_id     TEXT COLLATE "C",            -- the key it was opened with, which must still be good
    client     TEXT NOT NULL,   -- the address it was opened from
    created_at BIGINT NOT NULL,
    seen_at    BIGINT NOT NULL
);
CREATE INDEX dashboard_sessions_by_key ON dashboard_sessions (key_id, created_at);
CREATE INDEX dashboard_sessions_by_age ON dashboard_sessions (created_at);

-- Links that sign an operator in, once.
CREATE TABLE dashboard_links (
    digest     TEXT COLLATE "C" PRIMARY KEY,
    expires_at BIGINT NOT NULL
);

-- Requests per project and UTC day, as each gateway process counted them: its own figures, written over and over.
CREATE TABLE usage_days (
    project   TEXT COLLATE "C" NOT NULL,
    day       BIGINT NOT NULL, -- days since the epoch
    node      TEXT COLLATE "C" NOT NULL,   -- empty: the sum of gateways that ended
    admitted  BIGINT NOT NULL,
    refused   BIGINT NOT NULL,
    banned    BIGINT NOT NULL,
    minute    BIGINT NOT NULL, -- the last minute with requests, in minutes since the epoch
    in_minute BIGINT NOT NULL, -- admitted in that minute
    PRIMARY KEY (project, day, node)
);
CREATE INDEX usage_days_by_day ON usage_days (day);
INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
VALUES (4, 'dashboard', TRUE, decode('96f73f56df9d988169cb0a5f2e7c56218f654c1caec185f5be67b712bf4ed2774fa65bf783e4f4cb8c248f93d4210aa7', 'hex'), 0);

-- Events of other services that are in the outbox of webhooks by now: ../0005_order_events.sql.
CREATE TABLE taken_events (
    source   TEXT COLLATE "C" NOT NULL,
    number   BIGINT NOT NULL,
    taken_at BIGINT NOT NULL,
    PRIMARY KEY (source, number)
);
CREATE INDEX taken_events_by_age ON taken_events (taken_at);
INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
VALUES (5, 'order events', TRUE, decode('a153831b9bafb0d515f7ba81c293e4e6ce4ca2163aa820c7cb065ef593f3cd0ceebd95e37c7fda8c9648ceec2bfb3a5d', 'hex'), 0);

-- With which secret the private key of a published certificate is sealed: ../0006_sealing.sql.
ALTER TABLE entities ADD COLUMN seal TEXT COLLATE "C" NOT NULL DEFAULT '';
CREATE INDEX entities_by_seal ON entities (seal, name) WHERE kind = 'certificate';
INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
VALUES (6, 'sealing', TRUE, decode('1b7f6203e8b7df030888f521aa04fa11878256e3a5a61a643a079ce9b0bfbabe776187a2853509d36dba6609742b9af0', 'hex'), 0);

-- When keys were used last, and the bans in force: ../0007_keys_at_work.sql.
ALTER TABLE api_keys ADD COLUMN last_used_at BIGINT;

CREATE TABLE edge_bans (
    node     TEXT COLLATE "C" PRIMARY KEY,
    bans     TEXT NOT NULL,
    total    BIGINT NOT NULL,
    heard_at BIGINT NOT NULL
);
INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
VALUES (7, 'keys at work', TRUE, decode('64b8c852c8996b8981fc64c2f53c5a191393047f400241d9075074135c775c7abb4cc0eeb51dda3ffa12196605388ace', 'hex'), 0);

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
