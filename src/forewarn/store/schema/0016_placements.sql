-- Where an operation's driver takes its VMs, as pairs of VM and host, where nobody said before.
ALTER TABLE operation ADD COLUMN placements TEXT NOT NULL DEFAULT '[]';
