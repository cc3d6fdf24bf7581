-- Id of the caller's token; empty: another proof, or none (P-7).
ALTER TABLE audit ADD COLUMN token TEXT NOT NULL DEFAULT '';
