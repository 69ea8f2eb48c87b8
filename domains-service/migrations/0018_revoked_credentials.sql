-- Credentials that were revoked or replaced. No gateway and no service is enrolled with one of them again, so rows are
-- never deleted; there is one for each revocation by an operator. Of a credential only SHA-256 is kept, in hexadecimal.
CREATE TABLE revoked_credentials (
    digest     TEXT PRIMARY KEY,
    name       TEXT NOT NULL,
    kind       TEXT NOT NULL,
    revoked_at BIGINT NOT NULL
);
INSERT INTO revoked_credentials (digest, name, kind, revoked_at)
SELECT digest, name, kind, revoked_at FROM gateways WHERE revoked_at IS NOT NULL;

-- The file that the credential was read from; NULL for a credential that was made by the API.
ALTER TABLE gateways ADD COLUMN file TEXT;
