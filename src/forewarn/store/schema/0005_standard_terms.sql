-- Standard terms: what was `noticed` is `announced`, in the state, in the column, and in history.
DROP INDEX operation_live;
ALTER TABLE operation ADD COLUMN phase TEXT NOT NULL DEFAULT 'planned' CHECK (
    phase IN ('planned', 'announced', 'running', 'succeeded', 'failed', 'cancelled')
);
UPDATE operation SET phase = CASE state WHEN 'noticed' THEN 'announced' ELSE state END;
ALTER TABLE operation DROP COLUMN state;
ALTER TABLE operation RENAME COLUMN phase TO state;
ALTER TABLE operation RENAME COLUMN noticed_ms TO announced_ms;
CREATE INDEX operation_live ON operation (number)
    WHERE state = 'planned' OR state = 'announced' OR state = 'running';
UPDATE history SET action = 'operation.announced' WHERE action = 'operation.noticed';
UPDATE history SET action = 'operation.unannounced' WHERE action = 'operation.struck';
UPDATE history SET action = 'document.updated' WHERE action = 'document.moved';
UPDATE history SET images = REPLACE(
    REPLACE(images, '"state":"noticed"', '"state":"announced"'),
    '"noticed_ms":', '"announced_ms":'
) WHERE operation <> 0;
