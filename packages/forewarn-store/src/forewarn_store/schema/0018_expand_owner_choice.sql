-- What owners chose about their VMs on hosts of declared maintenances (T-2).
CREATE TABLE owner_choice (
    key TEXT PRIMARY KEY,
    maintenance BIGINT NOT NULL,
    host TEXT NOT NULL,
    owner TEXT NOT NULL,
    made_ms BIGINT NOT NULL,
    chosen_by TEXT NOT NULL,
    decision TEXT NOT NULL CHECK (decision IN ('at', 'now', 'release')),
    start_ms BIGINT NOT NULL,
    approves BIGINT NOT NULL CHECK (approves IN (0, 1)),
    displaced_ms BIGINT NOT NULL
);
CREATE INDEX owner_choice_maintenance ON owner_choice (maintenance);
