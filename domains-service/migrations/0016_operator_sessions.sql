-- The name of the operator's token that a link was asked for with, and so of the session: it ends with the token. Nothing
-- where the command line asked, with the platform's secret.
ALTER TABLE dashboard_links ADD COLUMN operator TEXT;
ALTER TABLE dashboard_sessions ADD COLUMN operator TEXT;
