-- What a project tells browsers: ../0017_browsers.sql.
ALTER TABLE projects ADD COLUMN browsers TEXT COLLATE "C";
