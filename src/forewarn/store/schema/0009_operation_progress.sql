-- What a driver said last of its work, and how much of it is done; -1 where it said no share.
ALTER TABLE operation ADD COLUMN progress TEXT NOT NULL DEFAULT '';
ALTER TABLE operation ADD COLUMN progress_percent BIGINT NOT NULL DEFAULT -1;
