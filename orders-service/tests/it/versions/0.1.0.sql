PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE _sqlx_migrations (
    version BIGINT PRIMARY KEY,
    description TEXT NOT NULL,
    installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    success BOOLEAN NOT NULL,
    checksum BLOB NOT NULL,
    execution_time BIGINT NOT NULL
);
INSERT INTO _sqlx_migrations VALUES(1,'schema','2026-11-26 12:00:00',1,X'9797c121d386391fb5246b3cdb15bdb3e410b460ce0b6a06f482eb3f52e05dc3509ce3fdfb8e4bb363f92a205cd73aee',1250297);
CREATE TABLE stores (
    project TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL CHECK (version >= 0),
    orders INTEGER NOT NULL CHECK (orders >= 0)
) STRICT, WITHOUT ROWID;
INSERT INTO stores VALUES('demo',4,6);
INSERT INTO stores VALUES('other',1,1);
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
INSERT INTO orders VALUES('demo',7,3,2,1795593600123456,0,'pending',1834768084);
INSERT INTO orders VALUES('demo',8,NULL,NULL,NULL,NULL,'cancelled',4218667949);
INSERT INTO orders VALUES('demo',9,-4,1,1793491200000000,1,'shipped',4017200731);
INSERT INTO orders VALUES('demo',10,5,NULL,NULL,NULL,'cancelled',668750473);
INSERT INTO orders VALUES('demo',11,6,1,1795183200000000,1,'shipped',37786763);
INSERT INTO orders VALUES('demo',12,12,3,NULL,0,'pending',2577067575);
INSERT INTO orders VALUES('other',7,1,NULL,NULL,NULL,'pending',3645927725);
CREATE TABLE order_events (
    project TEXT NOT NULL,
    order_id INTEGER NOT NULL,
    sequence INTEGER NOT NULL CHECK (sequence >= 1),
    event TEXT NOT NULL CHECK (event IN ('created', 'shipped', 'cancelled')),
    at_millis INTEGER NOT NULL,
    PRIMARY KEY (project, order_id, sequence)
) STRICT, WITHOUT ROWID;
INSERT INTO order_events VALUES('demo',8,1,'cancelled',1795179600000);
INSERT INTO order_events VALUES('demo',11,1,'shipped',1795183200000);
INSERT INTO order_events VALUES('demo',12,1,'created',1795179600000);
CREATE TABLE idempotency_keys (
    project TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    fingerprint INTEGER NOT NULL,
    order_id INTEGER NOT NULL,
    expires_at_millis INTEGER NOT NULL,
    PRIMARY KEY (project, idempotency_key)
) STRICT, WITHOUT ROWID;
INSERT INTO idempotency_keys VALUES('demo','placed-once',3154387668,12,1795266000000);
CREATE TABLE installation (
    one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    mark TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO installation VALUES(1,'aa53a88a2b2868f8');
CREATE TABLE order_outbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    project TEXT NOT NULL,
    event TEXT NOT NULL CHECK (event IN ('created', 'shipped', 'cancelled')),
    at_millis INTEGER NOT NULL,
    order_json TEXT NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;
INSERT INTO order_outbox VALUES(1,'demo','created',1795179600000,'{"id":12,"petId":12,"quantity":3,"complete":false,"status":"pending"}',3110930399);
INSERT INTO order_outbox VALUES(2,'demo','cancelled',1795179600000,'{"id":8,"status":"cancelled"}',323987783);
INSERT INTO order_outbox VALUES(3,'demo','shipped',1795183200000,'{"id":11,"petId":6,"quantity":1,"shipDate":"2026-11-20T14:00:00Z","complete":true,"status":"shipped"}',1622581148);
DELETE FROM sqlite_sequence;
INSERT INTO sqlite_sequence VALUES('order_outbox',3);
CREATE TABLE erased_projects (
    project TEXT NOT NULL PRIMARY KEY,
    erased_at_millis INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX orders_by_pet ON orders (project, pet_id, id);
CREATE INDEX orders_by_ship_date ON orders (project, ship_date_micros, id);
CREATE INDEX idempotency_keys_by_expiry ON idempotency_keys (expires_at_millis);
COMMIT;
