-- VMs that could not be shown an operation, because their metadata node was cut off (H-7).
ALTER TABLE operation ADD COLUMN unseen_vms TEXT NOT NULL DEFAULT '[]';
