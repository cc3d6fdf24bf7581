-- Maintenances of many hosts, their plans, and the hosts they have touched (F-1, F-2).
ALTER TABLE operation ADD COLUMN maintenance BIGINT NOT NULL DEFAULT 0;
ALTER TABLE operation ADD COLUMN hold_ms BIGINT NOT NULL DEFAULT 0;

CREATE TABLE maintenance (
    number BIGINT PRIMARY KEY CHECK (number > 0),
    cause TEXT NOT NULL,
    impact TEXT NOT NULL,
    hosts TEXT NOT NULL,
    created_ms BIGINT NOT NULL,
    actor TEXT NOT NULL,
    duration_s BIGINT NOT NULL CHECK (duration_s > 0),
    reason TEXT NOT NULL,
    description TEXT NOT NULL,
    earliest_ms BIGINT NOT NULL,
    deadline_ms BIGINT NOT NULL,
    priority BIGINT NOT NULL,
    budgets TEXT NOT NULL,
    canary_hosts TEXT NOT NULL,
    max_failures BIGINT NOT NULL CHECK (max_failures >= 0),
    state TEXT NOT NULL
        CHECK (state IN ('draft', 'running', 'paused', 'stopped', 'done', 'cancelled')),
    started_ms BIGINT NOT NULL,
    ended_ms BIGINT NOT NULL,
    plan TEXT NOT NULL,
    plan_wanted BIGINT NOT NULL CHECK (plan_wanted IN (0, 1)),
    due_ms BIGINT NOT NULL,
    plan_due BIGINT NOT NULL CHECK (plan_due IN (0, 1)),
    rests_until_ms BIGINT NOT NULL,
    wave BIGINT NOT NULL CHECK (wave >= 0),
    moved_ms BIGINT NOT NULL,
    halted_by TEXT NOT NULL,
    keeps_announced BIGINT NOT NULL CHECK (keeps_announced IN (0, 1)),
    forgiven BIGINT NOT NULL CHECK (forgiven >= 0)
);

CREATE TABLE maintenance_plan (
    id TEXT PRIMARY KEY,
    maintenance BIGINT NOT NULL,
    parent TEXT NOT NULL,
    made_ms BIGINT NOT NULL,
    body TEXT NOT NULL
);

CREATE TABLE maintenance_target (
    key TEXT PRIMARY KEY,
    maintenance BIGINT NOT NULL,
    host TEXT NOT NULL,
    wave BIGINT NOT NULL,
    operation BIGINT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('working', 'done', 'failed')),
    ended_ms BIGINT NOT NULL,
    reason TEXT NOT NULL
);
CREATE INDEX maintenance_target_of ON maintenance_target (maintenance);
