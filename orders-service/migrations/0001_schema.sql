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

-- What happened to an order, in the order in which it happened. Imported orders have no row for their beginning: its moment
-- is unknown.
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

-- The outbox: one row per change, written in the change's own transaction, gone once the control plane has it. Numbers are
-- never given twice, also after all rows are gone: the control plane knows by them what it has.
CREATE TABLE order_outbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    project TEXT NOT NULL,
    event TEXT NOT NULL CHECK (event IN ('created', 'shipped', 'cancelled')),
    at_millis INTEGER NOT NULL,
    order_json TEXT NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;

-- Projects that were erased: a request that is on its way to one of them, from a gateway that has not heard of it, is
-- refused. Identities are never given twice, so this refuses no other project.
CREATE TABLE erased_projects (
    project TEXT NOT NULL PRIMARY KEY,
    erased_at_millis INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
