-- Whose VMs an operation has disturbed, once it has ended: owners rest after that (F-3).
ALTER TABLE operation ADD COLUMN disturbed TEXT NOT NULL DEFAULT '[]';
CREATE INDEX operation_ended ON operation (ended_ms) WHERE ended_ms > 0;
