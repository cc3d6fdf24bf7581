-- How far each destination of the outbox is in history. `active` is 1 where the settings have it:
-- history is kept for it then.
CREATE TABLE outbox (
    name TEXT PRIMARY KEY,
    seq BIGINT NOT NULL CHECK (seq >= 0),
    active BIGINT NOT NULL CHECK (active IN (0, 1))
);
