-- The orders of every project in PostgreSQL: the tables of ../0001_schema.sql, where each is explained.
--
-- Texts that are compared or sorted are so byte by byte, as in SQLite, whatever the database's own collation.

-- The row of a project is also its lock: every change of its orders takes it first, so that changes of replicas follow
-- one another. Rows are rewritten with every change; half-empty pages keep the new version beside the old one.
CREATE TABLE stores (
    project TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL CHECK (version >= 0),
    orders BIGINT NOT NULL CHECK (orders >= 0)
) WITH (fillfactor = 50);

CREATE TABLE orders (
    project TEXT COLLATE "C" NOT NULL,
    id BIGINT NOT NULL,
    pet_id BIGINT,
    quantity BIGINT,
    ship_date_micros BIGINT,
    complete BIGINT CHECK (complete IN (0, 1)),
    status TEXT COLLATE "C" NOT NULL CHECK (status IN ('pending', 'shipped', 'cancelled')),
    checksum BIGINT NOT NULL,
    PRIMARY KEY (project, id)
);

CREATE INDEX orders_by_pet ON orders (project, pet_id, id);

CREATE INDEX orders_by_ship_date ON orders (project, ship_date_micros, id);

CREATE TABLE order_events (
    project TEXT COLLATE "C" NOT NULL,
    order_id BIGINT NOT NULL,
    sequence BIGINT NOT NULL CHECK (sequence >= 1),
    event TEXT COLLATE "C" NOT NULL CHECK (event IN ('created', 'shipped', 'cancelled')),
    at_millis BIGINT NOT NULL,
    PRIMARY KEY (project, order_id, sequence)
);

CREATE TABLE idempotency_keys (
    project TEXT COLLATE "C" NOT NULL,
    idempotency_key TEXT COLLATE "C" NOT NULL,
    fingerprint BIGINT NOT NULL,
    order_id BIGINT NOT NULL,
    expires_at_millis BIGINT NOT NULL,
    PRIMARY KEY (project, idempotency_key)
);

CREATE INDEX idempotency_keys_by_expiry ON idempotency_keys (expires_at_millis);

CREATE TABLE installation (
    one BIGINT NOT NULL PRIMARY KEY CHECK (one = 1),
    mark TEXT NOT NULL
);

-- Numbers are never given twice. Events of one project have rising numbers in the order in which they happened, because its
-- changes follow one another; those of other projects may appear below a number that was read already, which is why events
-- are forgotten one by one.
CREATE TABLE order_outbox (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project TEXT COLLATE "C" NOT NULL,
    event TEXT COLLATE "C" NOT NULL CHECK (event IN ('created', 'shipped', 'cancelled')),
    at_millis BIGINT NOT NULL,
    order_json TEXT NOT NULL,
    checksum BIGINT NOT NULL
);

CREATE TABLE erased_projects (
    project TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    erased_at_millis BIGINT NOT NULL
);
