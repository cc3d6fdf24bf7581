-- What its maintenance does to a host after the VMs have left it (F-1).
ALTER TABLE operation ADD COLUMN followed_by TEXT NOT NULL DEFAULT 'nothing'
    CHECK (followed_by IN ('nothing', 'work', 'work-and-return'));
-- VMs return after its work, within this many seconds; 0: they stay away (F-1).
ALTER TABLE maintenance ADD COLUMN return_s BIGINT NOT NULL DEFAULT 0 CHECK (return_s >= 0);

-- When the last sound backup was begun; one row at most.
CREATE TABLE backup (
    number BIGINT PRIMARY KEY CHECK (number = 1),
    at_ms BIGINT NOT NULL CHECK (at_ms > 0)
);
