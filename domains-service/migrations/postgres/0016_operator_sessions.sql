-- Sessions of operators' tokens: ../0016_operator_sessions.sql.
ALTER TABLE dashboard_links ADD COLUMN operator TEXT COLLATE "C";
ALTER TABLE dashboard_sessions ADD COLUMN operator TEXT COLLATE "C";
