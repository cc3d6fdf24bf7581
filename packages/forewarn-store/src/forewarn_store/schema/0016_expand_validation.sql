-- The gate that validates a host after its work (T-7); empty: not begun.
ALTER TABLE operation ADD COLUMN validation TEXT NOT NULL DEFAULT '';
