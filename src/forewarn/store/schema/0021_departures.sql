-- Which hosts VMs have left lately: an approval that a node there had accepted counts (M-3).
ALTER TABLE enrolment ADD COLUMN departures TEXT NOT NULL DEFAULT '[]';
