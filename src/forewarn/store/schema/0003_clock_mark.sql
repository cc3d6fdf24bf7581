-- Where the service's clock stands against the time since its machine's boot: a service that is
-- started again within that boot goes on by its own time while a notice runs (N-4).
ALTER TABLE service ADD COLUMN boot TEXT NOT NULL DEFAULT '';
ALTER TABLE service ADD COLUMN clock_ahead_ms BIGINT NOT NULL DEFAULT 0;
