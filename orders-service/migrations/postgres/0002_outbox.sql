-- The outbox of ../0002_outbox.sql. Numbers are never given twice. Events of one project have rising numbers in the
-- order in which they happened, because its changes follow one another; those of others may appear below a number that
-- was read already, which is why events are forgotten one by one.
CREATE TABLE order_outbox (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project TEXT COLLATE "C" NOT NULL,
    event TEXT COLLATE "C" NOT NULL CHECK (event IN ('created', 'shipped', 'cancelled')),
    at_millis BIGINT NOT NULL,
    order_json TEXT NOT NULL,
    checksum BIGINT NOT NULL
);
