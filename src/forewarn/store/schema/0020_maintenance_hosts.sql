-- The hosts of a maintenance never change: they are not written again with its progress (F-1).
CREATE TABLE maintenance_hosts (
    maintenance BIGINT PRIMARY KEY,
    hosts TEXT NOT NULL
);
INSERT INTO maintenance_hosts (maintenance, hosts) SELECT number, hosts FROM maintenance;
ALTER TABLE maintenance DROP COLUMN hosts;
