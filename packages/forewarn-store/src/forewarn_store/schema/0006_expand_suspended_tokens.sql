-- A token is refused until an administrator resumes it, as after a restore (U-5).
ALTER TABLE access_token ADD COLUMN suspended BIGINT NOT NULL DEFAULT 0
    CHECK (suspended IN (0, 1));
