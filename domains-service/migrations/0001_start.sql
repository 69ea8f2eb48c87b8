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
