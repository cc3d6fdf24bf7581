-- The declaration of a maintenance to the owners of its VMs (T-1); empty: it was not declared.
ALTER TABLE maintenance ADD COLUMN declaration TEXT NOT NULL DEFAULT '';
