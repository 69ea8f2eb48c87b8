-- With which secret the private key of a published certificate is sealed: ../0006_sealing.sql.
ALTER TABLE entities ADD COLUMN seal TEXT COLLATE "C" NOT NULL DEFAULT '';
CREATE INDEX entities_by_seal ON entities (seal, name) WHERE kind = 'certificate';
