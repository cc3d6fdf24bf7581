-- Labels of hosts by which moves keep a group's VMs apart, and together (F-3).
ALTER TABLE vm_group ADD COLUMN keep_apart TEXT NOT NULL DEFAULT '[]';
ALTER TABLE vm_group ADD COLUMN keep_together TEXT NOT NULL DEFAULT '[]';
