-- Orders of many hosts at once, and how many of their hosts have had their turn.
CREATE TABLE work_order (
    number BIGINT PRIMARY KEY CHECK (number > 0),
    cause TEXT NOT NULL,
    impact TEXT NOT NULL,
    source TEXT NOT NULL,
    hosts BIGINT NOT NULL CHECK (hosts > 0),
    digest TEXT NOT NULL,
    description TEXT NOT NULL,
    duration_s BIGINT NOT NULL CHECK (duration_s >= -1),
    asked_ms BIGINT NOT NULL CHECK (asked_ms >= 0),
    destination TEXT NOT NULL,
    created_ms BIGINT NOT NULL,
    actor TEXT NOT NULL,
    planned BIGINT NOT NULL CHECK (planned >= 0),
    left_out BIGINT NOT NULL CHECK (left_out >= 0),
    cancelled_ms BIGINT NOT NULL CHECK (cancelled_ms >= 0),
    ended_ms BIGINT NOT NULL CHECK (ended_ms >= 0),
    reason TEXT NOT NULL
);
CREATE TABLE work_order_hosts (
    number BIGINT PRIMARY KEY REFERENCES work_order (number),
    names TEXT NOT NULL
);
CREATE INDEX work_order_live ON work_order (number) WHERE ended_ms = 0;
CREATE INDEX operation_request ON operation (request, number) WHERE request <> number;
