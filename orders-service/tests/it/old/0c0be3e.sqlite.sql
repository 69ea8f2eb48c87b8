-- A database of the orders-service as version 0c0be3e left it. It is what databases are migrated from, so it never changes.

CREATE TABLE _sqlx_migrations (version BIGINT PRIMARY KEY, description TEXT NOT NULL, installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, success BOOLEAN NOT NULL, checksum BLOB NOT NULL, execution_time BIGINT NOT NULL);
-- The orders of every project, and what is counted beside them.
--
-- Kept to what SQLite and PostgreSQL share: whole numbers, text, checks, two-column keys.

-- One row per project that ever had an order. `version` rises with every change; `orders` is how many there are, so
-- that a list knows whether it was complete.
CREATE TABLE stores (
    project TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL CHECK (version >= 0),
    orders INTEGER NOT NULL CHECK (orders >= 0)
) STRICT, WITHOUT ROWID;

-- `checksum` covers every other column (CRC-32), so that a byte that changed on the disk is found when it is read.
CREATE TABLE orders (
    project TEXT NOT NULL,
    id INTEGER NOT NULL,
    pet_id INTEGER,
    quantity INTEGER,
    ship_date_micros INTEGER,
    complete INTEGER CHECK (complete IN (0, 1)),
    status TEXT NOT NULL CHECK (status IN ('pending', 'shipped', 'cancelled')),
    checksum INTEGER NOT NULL,
    PRIMARY KEY (project, id)
) STRICT, WITHOUT ROWID;

-- For the pets operation and the petId filter.
CREATE INDEX orders_by_pet ON orders (project, pet_id, id);

-- For sorting and filtering by ship date.
CREATE INDEX orders_by_ship_date ON orders (project, ship_date_micros, id);

-- What happened to an order, in the order in which it happened. Imported orders have no row for their beginning: nobody
-- told us when it was.
CREATE TABLE order_events (
    project TEXT NOT NULL,
    order_id INTEGER NOT NULL,
    sequence INTEGER NOT NULL CHECK (sequence >= 1),
    event TEXT NOT NULL CHECK (event IN ('created', 'shipped', 'cancelled')),
    at_millis INTEGER NOT NULL,
    PRIMARY KEY (project, order_id, sequence)
) STRICT, WITHOUT ROWID;

-- Outcomes of creations that carried an Idempotency-Key, until they expire.
CREATE TABLE idempotency_keys (
    project TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    fingerprint INTEGER NOT NULL,
    order_id INTEGER NOT NULL,
    expires_at_millis INTEGER NOT NULL,
    PRIMARY KEY (project, idempotency_key)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_keys_by_expiry ON idempotency_keys (expires_at_millis);

-- One row: which database this is. It goes into entity tags, so that those of a database that was replaced never
-- match by accident.
CREATE TABLE installation (
    one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    mark TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
VALUES (1, 'orders', TRUE, X'640c8b6263439372a5091b8723f610ce5cec8b356e642e25c3a147e00c22d8ffdf43be62982f71ade4d239fbb2d9ecb0', 0);

-- What happened and nobody was told of yet: one row per change, written in the change's own transaction, gone once the
-- control plane has it. Numbers are never given twice, also after all rows are gone: the control plane knows by them
-- what it has.
CREATE TABLE order_outbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    project TEXT NOT NULL,
    event TEXT NOT NULL CHECK (event IN ('created', 'shipped', 'cancelled')),
    at_millis INTEGER NOT NULL,
    order_json TEXT NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;
INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
VALUES (2, 'outbox', TRUE, X'4ba51a544c6b69a76b7e562035090b315cec22ae0f62e051d0c2082f250551dc1da936fb5bffb9f94fdbf341a2a4dbc7', 0);

-- What it wrote: two orders of `acme`, one of them with an idempotency key, and one of `gone`, which was removed.
INSERT INTO installation (one, mark) VALUES (1, 'ab12ab12ab12ab12');
INSERT INTO stores (project, version, orders) VALUES ('acme', 2, 2), ('gone', 1, 1);
INSERT INTO orders (project, id, pet_id, quantity, ship_date_micros, complete, status, checksum) VALUES
    ('acme', 1, 5, 1, NULL, 0, 'pending', 1802785564),
    ('acme', 2, 6, 2, NULL, 0, 'cancelled', 519385818),
    ('gone', 1, 7, 1, NULL, 0, 'pending', 3064843594);
INSERT INTO order_events (project, order_id, sequence, event, at_millis) VALUES ('acme', 1, 1, 'created', 1781000000000), ('gone', 1, 1, 'created', 1781000000000);
INSERT INTO idempotency_keys (project, idempotency_key, fingerprint, order_id, expires_at_millis) VALUES ('gone', 'once', 1, 1, 9999999999999);
