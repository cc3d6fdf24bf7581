-- The whole state as history had left it where its older part was removed: a replay begins there.
-- Written in portions; `service.checkpoint_seq` says which one is whole, 0: none.
CREATE TABLE checkpoint (
    seq BIGINT NOT NULL CHECK (seq > 0),
    portion BIGINT NOT NULL CHECK (portion > 0),
    at_ms BIGINT NOT NULL,
    images TEXT NOT NULL,
    PRIMARY KEY (seq, portion)
);
ALTER TABLE service ADD COLUMN checkpoint_seq BIGINT NOT NULL DEFAULT 0;
