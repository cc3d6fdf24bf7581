-- Later starts that were granted to owners, by host (F-8).
ALTER TABLE maintenance ADD COLUMN postponed TEXT NOT NULL DEFAULT '[]';
