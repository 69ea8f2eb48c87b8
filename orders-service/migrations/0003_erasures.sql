-- Projects that were erased: whatever is on its way to one of them, from a gateway that has not heard of it, is refused.
-- Identities are never given twice, so this refuses nobody else.
CREATE TABLE erased_projects (
    project TEXT NOT NULL PRIMARY KEY,
    erased_at_millis INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
