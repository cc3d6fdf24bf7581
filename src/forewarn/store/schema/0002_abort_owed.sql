-- An operation that ended without its driver is kept in mind until the driver was told (L-7).
ALTER TABLE operation ADD COLUMN abort_owed BIGINT NOT NULL DEFAULT 0
    CHECK (abort_owed IN (0, 1));
CREATE INDEX operation_abort ON operation (number) WHERE abort_owed = 1;
