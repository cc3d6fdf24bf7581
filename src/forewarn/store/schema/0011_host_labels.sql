-- Labels by which many hosts are named at once (F-1).
ALTER TABLE host ADD COLUMN labels TEXT NOT NULL DEFAULT '[]';
