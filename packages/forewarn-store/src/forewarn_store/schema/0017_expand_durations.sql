-- How long a host's work takes as it was announced, in seconds; 0: as asked (F-9).
ALTER TABLE maintenance_target ADD COLUMN duration_s BIGINT NOT NULL DEFAULT 0;

-- How long the work of each operation took, for the durations of later plans (F-9). Kept apart from
-- history and from ended work, so that no limit of history shortens it.
CREATE TABLE duration_sample (
    operation BIGINT PRIMARY KEY,
    cause TEXT NOT NULL,
    labels TEXT NOT NULL,
    duration_s BIGINT NOT NULL CHECK (duration_s > 0)
);
