-- The policy of maintenances, applied while the service runs (F-3); one row.
CREATE TABLE maintenance_policy (
    name TEXT PRIMARY KEY,
    applied_ms BIGINT NOT NULL,
    actor TEXT NOT NULL,
    body TEXT NOT NULL
);
