-- Processes of gateways: ../0020_processes.sql.
CREATE TABLE processes (
    gateway        TEXT COLLATE "C" NOT NULL,
    process        TEXT COLLATE "C" NOT NULL,
    place          TEXT COLLATE "C" NOT NULL,
    version        TEXT COLLATE "C" NOT NULL,
    applied        BIGINT NOT NULL,
    mark           BIGINT,
    first_heard_at BIGINT NOT NULL,
    last_heard_at  BIGINT NOT NULL,
    PRIMARY KEY (gateway, process)
);
