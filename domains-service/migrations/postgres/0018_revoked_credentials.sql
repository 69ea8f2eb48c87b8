-- Credentials that were revoked or replaced: ../0018_revoked_credentials.sql.
CREATE TABLE revoked_credentials (
    digest     TEXT COLLATE "C" PRIMARY KEY,
    name       TEXT COLLATE "C" NOT NULL,
    kind       TEXT COLLATE "C" NOT NULL,
    revoked_at BIGINT NOT NULL
);
INSERT INTO revoked_credentials (digest, name, kind, revoked_at)
SELECT digest, name, kind, revoked_at FROM gateways WHERE revoked_at IS NOT NULL;

-- The file that the credential was read from; NULL for a credential that was made by the API.
ALTER TABLE gateways ADD COLUMN file TEXT COLLATE "C";
