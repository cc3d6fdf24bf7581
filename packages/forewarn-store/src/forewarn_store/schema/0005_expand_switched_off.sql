-- Values that Azure's tools gave to settings that are off, as pairs of setting and value (Z-6).
ALTER TABLE vm_group ADD COLUMN switched_off TEXT NOT NULL DEFAULT '[]';
