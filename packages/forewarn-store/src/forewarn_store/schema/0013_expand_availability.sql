-- When an event was approved, and when it became Started, for the records of availability (T-13).
ALTER TABLE event ADD COLUMN approved_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE event ADD COLUMN started_ms BIGINT NOT NULL DEFAULT 0;

-- What the availability of VMs is computed from, kept longer than history (T-13). A row of
-- arrived or left VMs has no event. `place` orders the rows of one commit.
CREATE TABLE availability_record (
    generation BIGINT NOT NULL,
    place BIGINT NOT NULL,
    at_ms BIGINT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('arrived', 'left', 'event')),
    group_name TEXT NOT NULL,
    owner TEXT NOT NULL,
    vms TEXT NOT NULL,
    event TEXT NOT NULL,
    operation BIGINT NOT NULL,
    maintenance BIGINT NOT NULL,
    cause TEXT NOT NULL,
    impact TEXT NOT NULL,
    source TEXT NOT NULL,
    result TEXT NOT NULL,
    notice_s BIGINT NOT NULL,
    announced_ms BIGINT NOT NULL,
    shown_ms BIGINT NOT NULL,
    not_before_ms BIGINT NOT NULL,
    approved_ms BIGINT NOT NULL,
    started_ms BIGINT NOT NULL,
    interruption_ms BIGINT NOT NULL,
    PRIMARY KEY (generation, place)
);
CREATE INDEX availability_time ON availability_record (at_ms);

-- One row: the time from which these records are complete. An older store has them from its last
-- entry of history on; a new one from its beginning.
CREATE TABLE availability_since (
    id BIGINT PRIMARY KEY CHECK (id = 1),
    at_ms BIGINT NOT NULL
);
INSERT INTO availability_since (id, at_ms)
SELECT 1, COALESCE((SELECT at_ms FROM history ORDER BY seq DESC LIMIT 1), 0);
