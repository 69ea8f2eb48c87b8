-- Processes of gateways, as they report: removals wait for each until it says goodbye, its credential is revoked, or
-- nothing was heard of it for a day.
CREATE TABLE processes (
    gateway        TEXT NOT NULL, -- the name of its credential; empty: the platform's secret
    process        TEXT NOT NULL, -- the name it gives itself, one for each start
    place          TEXT NOT NULL, -- the identity of its data directory; empty: unknown
    version        TEXT NOT NULL,
    applied        BIGINT NOT NULL, -- the revision it had applied when the row was written; 0: none
    mark           BIGINT, -- the mark of that revision; NULL: none
    first_heard_at BIGINT NOT NULL,
    last_heard_at  BIGINT NOT NULL, -- written once a minute
    PRIMARY KEY (gateway, process)
);
