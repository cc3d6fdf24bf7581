-- Who may know a token's secret besides its holder (P-8).
ALTER TABLE access_token ADD COLUMN makers TEXT NOT NULL DEFAULT '[]';
-- What proves the caller of a waiting call, and the permission that it needs (P-8).
ALTER TABLE confirmation ADD COLUMN token TEXT NOT NULL DEFAULT '';
ALTER TABLE confirmation ADD COLUMN names TEXT NOT NULL DEFAULT '[]';
ALTER TABLE confirmation ADD COLUMN built_in BIGINT NOT NULL DEFAULT 0
    CHECK (built_in IN (0, 1));
ALTER TABLE confirmation ADD COLUMN permission TEXT NOT NULL DEFAULT '';
-- Whose work without a confirmation has affected a host (P-8).
ALTER TABLE operation ADD COLUMN unconfirmed_by TEXT NOT NULL DEFAULT '';
ALTER TABLE maintenance ADD COLUMN unconfirmed_by TEXT NOT NULL DEFAULT '';
