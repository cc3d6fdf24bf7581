-- A request for a later hand-back deadline may be withdrawn by its owner (T-4). SQLite cannot
-- change a check, so the table is made again; the previous version does not know it.
ALTER TABLE owner_deferral RENAME TO owner_deferral_before;
CREATE TABLE owner_deferral (
    key TEXT PRIMARY KEY,
    maintenance BIGINT NOT NULL,
    host TEXT NOT NULL,
    owner TEXT NOT NULL,
    asked_ms BIGINT NOT NULL,
    asked_by TEXT NOT NULL,
    until_ms BIGINT NOT NULL,
    reason TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('asked', 'granted', 'refused', 'withdrawn')),
    granted_ms BIGINT NOT NULL,
    decide_by_ms BIGINT NOT NULL,
    answered_ms BIGINT NOT NULL,
    answered_by TEXT NOT NULL,
    answer TEXT NOT NULL
);
INSERT INTO owner_deferral (
    key, maintenance, host, owner, asked_ms, asked_by, until_ms, reason, state, granted_ms,
    decide_by_ms, answered_ms, answered_by, answer
) SELECT
    key, maintenance, host, owner, asked_ms, asked_by, until_ms, reason, state, granted_ms,
    decide_by_ms, answered_ms, answered_by, answer
FROM owner_deferral_before;
DROP TABLE owner_deferral_before;
CREATE INDEX owner_deferral_maintenance ON owner_deferral (maintenance);
