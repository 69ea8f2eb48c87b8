-- Marks of changes: ../0024_marks.sql.
ALTER TABLE changes ADD COLUMN mark BIGINT NOT NULL DEFAULT 0;
UPDATE changes SET mark = ('x' || left(md5(gen_random_uuid()::text), 16))::bit(64)::bigint;
DELETE FROM settings WHERE name = 'history';
