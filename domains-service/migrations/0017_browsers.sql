-- What a project tells browsers (CORS, HSTS) in place of its upstream's setting, as JSON; nothing: the upstream's.
ALTER TABLE projects ADD COLUMN browsers TEXT;
