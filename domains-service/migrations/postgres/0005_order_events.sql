-- Events of other services that are in the outbox of webhooks by now: ../0005_order_events.sql.
CREATE TABLE taken_events (
    source   TEXT COLLATE "C" NOT NULL,
    number   BIGINT NOT NULL,
    taken_at BIGINT NOT NULL,
    PRIMARY KEY (source, number)
);
CREATE INDEX taken_events_by_age ON taken_events (taken_at);
