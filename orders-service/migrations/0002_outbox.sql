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
