-- The policy of maintenances, applied while the service runs (F-3); one row. And gates (F-5).
CREATE TABLE maintenance_policy (
    name TEXT PRIMARY KEY,
    applied_ms BIGINT NOT NULL,
    actor TEXT NOT NULL,
    body TEXT NOT NULL
);

ALTER TABLE maintenance ADD COLUMN gate TEXT NOT NULL DEFAULT '';
ALTER TABLE maintenance ADD COLUMN gate_wanted BIGINT NOT NULL DEFAULT 0
    CHECK (gate_wanted IN (0, 1));
