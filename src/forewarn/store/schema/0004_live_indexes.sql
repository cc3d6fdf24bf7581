-- What is live, by comparisons: of a list SQLite makes an index each time it looks into it, which
-- was half the work of writing an operation or an event. A question must be put in the same words.
DROP INDEX operation_live;
DROP INDEX event_live;
CREATE INDEX operation_live ON operation (number)
    WHERE state = 'planned' OR state = 'noticed' OR state = 'running';
CREATE INDEX event_live ON event (operation)
    WHERE state = 'scheduled' OR state = 'approved' OR state = 'started';
