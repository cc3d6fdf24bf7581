-- Digests of the newest commits. Each covers its commit and the digest before, so that a store that
-- has lost commits is recognised even once their numbers are used again (H-10).
CREATE TABLE commit_digest (
    generation BIGINT PRIMARY KEY CHECK (generation >= 0),
    digest TEXT NOT NULL
);
-- Signs what others are told about commits; the first writer makes it.
ALTER TABLE service ADD COLUMN commit_key TEXT NOT NULL DEFAULT '';
-- The epoch in which the store has lost commits, and one of these for people. No process decides
-- while it is the current epoch.
ALTER TABLE service ADD COLUMN lost_epoch TEXT NOT NULL DEFAULT '';
ALTER TABLE service ADD COLUMN lost_commit TEXT NOT NULL DEFAULT '';
