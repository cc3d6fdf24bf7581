-- The control planes that share the store, each with a sign of life (H-8, U-4).
CREATE TABLE process (
    token TEXT PRIMARY KEY,
    -- Where its operator API is; empty: not known.
    url TEXT NOT NULL,
    version TEXT NOT NULL,
    -- Number of the last commit that it has.
    generation BIGINT NOT NULL CHECK (generation >= 0),
    -- When it was seen, by the database's clock.
    seen_ms BIGINT NOT NULL
);
