-- The gateway that a change came through; NULL for operators at the internal listener and for what happens by itself.
ALTER TABLE events ADD COLUMN gateway TEXT;
CREATE INDEX events_by_gateway ON events (gateway, id) WHERE gateway IS NOT NULL;

-- All gateways had the same keys for identities until now. The service makes a new generation when it starts.
DELETE FROM gateway_keys;
