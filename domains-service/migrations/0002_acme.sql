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
