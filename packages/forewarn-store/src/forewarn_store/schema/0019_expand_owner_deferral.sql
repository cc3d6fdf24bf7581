-- Owners' requests for a later hand-back deadline of declared work (T-4).
CREATE TABLE owner_deferral (
    key TEXT PRIMARY KEY,
    maintenance BIGINT NOT NULL,
    host TEXT NOT NULL,
    owner TEXT NOT NULL,
    asked_ms BIGINT NOT NULL,
    asked_by TEXT NOT NULL,
    until_ms BIGINT NOT NULL,
    reason TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('asked', 'granted', 'refused')),
    granted_ms BIGINT NOT NULL,
    decide_by_ms BIGINT NOT NULL,
    answered_ms BIGINT NOT NULL,
    answered_by TEXT NOT NULL,
    answer TEXT NOT NULL
);
CREATE INDEX owner_deferral_maintenance ON owner_deferral (maintenance);
