-- The maintenance window of an operation (T-5); 0: none.
ALTER TABLE operation ADD COLUMN planned_open_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE operation ADD COLUMN planned_close_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE operation ADD COLUMN opened_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE operation ADD COLUMN incident BIGINT NOT NULL DEFAULT 0;

-- Images of kinds that the previous version does not know. It reads only `images`, so that it can
-- follow and replay this version's commits (H-8).
ALTER TABLE history ADD COLUMN later_images TEXT NOT NULL DEFAULT '[]';
ALTER TABLE checkpoint ADD COLUMN later_images TEXT NOT NULL DEFAULT '[]';

-- Break-fix work with its dialogue (T-9, T-10).
CREATE TABLE ticket (
    number BIGINT PRIMARY KEY,
    type TEXT NOT NULL,
    target_kind TEXT NOT NULL,
    target TEXT NOT NULL,
    opened_ms BIGINT NOT NULL,
    updated_ms BIGINT NOT NULL,
    owners TEXT NOT NULL,
    host TEXT NOT NULL,
    serial TEXT NOT NULL,
    category TEXT NOT NULL,
    description TEXT NOT NULL,
    evidence TEXT NOT NULL,
    action TEXT NOT NULL,
    account TEXT NOT NULL,
    external TEXT NOT NULL,
    operation BIGINT NOT NULL,
    maintenance BIGINT NOT NULL,
    actor TEXT NOT NULL,
    state TEXT NOT NULL,
    closed_ms BIGINT NOT NULL,
    due_ms BIGINT NOT NULL,
    texts TEXT NOT NULL
);
CREATE INDEX ticket_live ON ticket (number) WHERE closed_ms = 0;
CREATE INDEX ticket_closed ON ticket (closed_ms) WHERE closed_ms > 0;

-- The owners whom a ticket concerns.
CREATE TABLE ticket_owner (
    owner TEXT NOT NULL,
    ticket BIGINT NOT NULL REFERENCES ticket (number),
    PRIMARY KEY (owner, ticket)
);
CREATE INDEX ticket_owner_ticket ON ticket_owner (ticket);
