-- Gateways that were given a credential. Of the credential only SHA-256 is kept, in hexadecimal.
CREATE TABLE gateways (
    name         TEXT PRIMARY KEY,
    digest       TEXT NOT NULL UNIQUE,
    created_at   BIGINT NOT NULL,
    last_seen_at BIGINT,
    revoked_at   BIGINT
);

-- The keys that gateways sign and seal with: three generations at most, each sealed with the sealing secret.
CREATE TABLE gateway_keys (
    number     BIGINT PRIMARY KEY,
    sealed     TEXT NOT NULL,
    signs_from BIGINT NOT NULL
);

-- Operators' tokens. Of a token only SHA-256 is kept, in hexadecimal.
CREATE TABLE operator_tokens (
    name         TEXT PRIMARY KEY,
    digest       TEXT NOT NULL UNIQUE,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL,
    last_used_at BIGINT
);
