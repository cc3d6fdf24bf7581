-- Names the sequence of commits that metadata nodes follow; the first writer gives it (M-1).
-- Empty it where a backup was put back: nodes know commits then that never were.
ALTER TABLE service ADD COLUMN epoch TEXT NOT NULL DEFAULT '';
