-- Random bits of each change. A database that went back to an earlier state and counted on has the same revisions with
-- other marks. A row whose effect is empty says only the mark of a revision: its change is no longer kept.
ALTER TABLE changes ADD COLUMN mark BIGINT NOT NULL DEFAULT 0;
UPDATE changes SET mark = random();
-- The mark of each revision replaces the id of the database.
DELETE FROM settings WHERE name = 'history';
