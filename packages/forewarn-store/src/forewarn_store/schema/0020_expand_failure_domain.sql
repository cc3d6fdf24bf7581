-- The label by which a maintenance works on one failure domain at a time (T-12); empty: none.
ALTER TABLE maintenance ADD COLUMN failure_domain TEXT NOT NULL DEFAULT '';
