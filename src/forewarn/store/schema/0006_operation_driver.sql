-- The driver an operation was begun with stays with it, whatever becomes of its host's record.
ALTER TABLE operation ADD COLUMN driver TEXT NOT NULL DEFAULT '';
