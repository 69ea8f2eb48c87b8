-- Events of other services that are in the outbox of webhooks by now, so that one that is handed over again is told once.
CREATE TABLE taken_events (
    source   TEXT NOT NULL, -- the database it happened in
    number   BIGINT NOT NULL,
    taken_at BIGINT NOT NULL,
    PRIMARY KEY (source, number)
);
CREATE INDEX taken_events_by_age ON taken_events (taken_at);
