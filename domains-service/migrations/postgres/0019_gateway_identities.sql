-- The gateway that a change came through, and a key for each gateway: ../0019_gateway_identities.sql.
ALTER TABLE events ADD COLUMN gateway TEXT COLLATE "C";
CREATE INDEX events_by_gateway ON events (gateway, id) WHERE gateway IS NOT NULL;

DELETE FROM gateway_keys;
