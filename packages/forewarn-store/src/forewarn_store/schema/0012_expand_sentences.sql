-- What the previous version does not know, and may leave out.

-- A waiting call as people say it (P-8).
ALTER TABLE confirmation ADD COLUMN sentence TEXT NOT NULL DEFAULT '';
