-- With which secret the private key of a published certificate is sealed: its name, nothing when it was sealed before
-- secrets had names. What needs an older secret is found and counted without reading certificates.
ALTER TABLE entities ADD COLUMN seal TEXT NOT NULL DEFAULT '';
CREATE INDEX entities_by_seal ON entities (seal, name) WHERE kind = 'certificate';
