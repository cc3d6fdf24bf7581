-- Further instance metadata of a VM, by its dotted names (I-1).
ALTER TABLE vm ADD COLUMN instance TEXT NOT NULL DEFAULT '[]';
