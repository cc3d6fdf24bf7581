-- The fleet, the work on it, what is shown, and the history of all of it.
-- Run by every engine as it stands here; SQLite reads BIGINT as INTEGER.
-- Times are milliseconds since the epoch, UTC; 0 means "not yet". Truths are 0 or 1.
-- Lists are JSON arrays, sorted as the record says. `group` is a reserved word: `group_name`.

-- One row: who writes, and how far it has come.
CREATE TABLE service (
    id BIGINT PRIMARY KEY CHECK (id = 1),
    generation BIGINT NOT NULL CHECK (generation >= 0),
    writer TEXT NOT NULL,
    history_seq BIGINT NOT NULL CHECK (history_seq >= 0),
    last_number BIGINT NOT NULL CHECK (last_number >= 0)
);
INSERT INTO service (id, generation, writer, history_seq, last_number) VALUES (1, 0, '', 0, 0);

-- One row: which process may become the writer. See docs/reference/store.md.
CREATE TABLE lease (
    id BIGINT PRIMARY KEY CHECK (id = 1),
    holder TEXT NOT NULL,
    beat BIGINT NOT NULL CHECK (beat >= 0)
);
INSERT INTO lease (id, holder, beat) VALUES (1, '', 0);

CREATE TABLE host (
    name TEXT PRIMARY KEY,
    fault_domain BIGINT NOT NULL CHECK (fault_domain >= 0),
    update_domain BIGINT NOT NULL CHECK (update_domain >= 0),
    zone TEXT NOT NULL,
    driver TEXT NOT NULL,
    health TEXT NOT NULL CHECK (health IN ('healthy', 'degraded', 'failed'))
);

CREATE TABLE vm_group (
    name TEXT PRIMARY KEY,
    kind TEXT NOT NULL
        CHECK (kind IN ('availability-set', 'scale-set', 'cloud-service', 'lone')),
    owner TEXT NOT NULL,
    fault_domain_count BIGINT NOT NULL CHECK (fault_domain_count >= 0),
    strict_approval BIGINT NOT NULL CHECK (strict_approval IN (0, 1)),
    automatic_approval TEXT NOT NULL,
    terminate_notice_s BIGINT NOT NULL CHECK (terminate_notice_s >= 0),
    reimage_notice BIGINT NOT NULL CHECK (reimage_notice IN (0, 1))
);

CREATE TABLE vm (
    name TEXT PRIMARY KEY,
    host TEXT NOT NULL REFERENCES host (name),
    group_name TEXT NOT NULL REFERENCES vm_group (name),
    size TEXT NOT NULL,
    gpu BIGINT NOT NULL CHECK (gpu IN (0, 1)),
    spot BIGINT NOT NULL CHECK (spot IN (0, 1)),
    addresses TEXT NOT NULL,
    interface TEXT NOT NULL,
    instance_id TEXT NOT NULL,
    vm_id TEXT NOT NULL,
    os_type TEXT NOT NULL,
    location TEXT NOT NULL,
    resource_group TEXT NOT NULL,
    subscription TEXT NOT NULL,
    tags TEXT NOT NULL
);
CREATE INDEX vm_host ON vm (host);
CREATE INDEX vm_group_name ON vm (group_name);

CREATE TABLE operation (
    number BIGINT PRIMARY KEY CHECK (number > 0),
    request BIGINT NOT NULL CHECK (request > 0),
    cause TEXT NOT NULL CHECK (cause IN (
        'live-migration', 'host-update', 'host-reboot', 'network-update', 'hardware-degraded',
        'hardware-failure', 'host-lost', 'reboot', 'redeploy', 'eviction', 'deletion', 'reimage'
    )),
    impact TEXT NOT NULL
        CHECK (impact IN ('Freeze', 'Reboot', 'Redeploy', 'Preempt', 'Terminate')),
    source TEXT NOT NULL CHECK (source IN ('Platform', 'User')),
    routine BIGINT NOT NULL CHECK (routine IN (0, 1)),
    host TEXT NOT NULL,
    vms TEXT NOT NULL,
    of_vm BIGINT NOT NULL CHECK (of_vm IN (0, 1)),
    description TEXT NOT NULL,
    duration_s BIGINT NOT NULL CHECK (duration_s >= -1),
    notice_s BIGINT NOT NULL CHECK (notice_s >= 0),
    silent BIGINT NOT NULL CHECK (silent IN (0, 1)),
    state TEXT NOT NULL CHECK (
        state IN ('planned', 'noticed', 'running', 'succeeded', 'failed', 'cancelled')
    ),
    asked_ms BIGINT NOT NULL CHECK (asked_ms >= 0),
    not_before_ms BIGINT NOT NULL CHECK (not_before_ms >= 0),
    created_ms BIGINT NOT NULL CHECK (created_ms >= 0),
    noticed_ms BIGINT NOT NULL CHECK (noticed_ms >= 0),
    shown_ms BIGINT NOT NULL CHECK (shown_ms >= 0),
    started_ms BIGINT NOT NULL CHECK (started_ms >= 0),
    begun_ms BIGINT NOT NULL CHECK (begun_ms >= 0),
    ended_ms BIGINT NOT NULL CHECK (ended_ms >= 0),
    attempt BIGINT NOT NULL CHECK (attempt >= 0),
    reason TEXT NOT NULL,
    alerted BIGINT NOT NULL CHECK (alerted IN (0, 1)),
    destination TEXT NOT NULL,
    actor TEXT NOT NULL,
    events TEXT NOT NULL
);
CREATE INDEX operation_live ON operation (number)
    WHERE state IN ('planned', 'noticed', 'running');
CREATE INDEX operation_host ON operation (host, number);

-- Which operations disturbed a VM; the list in `operation.vms` again, in a form that can be sought.
CREATE TABLE operation_vm (
    vm TEXT NOT NULL,
    operation BIGINT NOT NULL REFERENCES operation (number),
    PRIMARY KEY (vm, operation)
);
CREATE INDEX operation_vm_operation ON operation_vm (operation);

CREATE TABLE event (
    id TEXT PRIMARY KEY,
    operation BIGINT NOT NULL REFERENCES operation (number),
    group_name TEXT NOT NULL,
    resources TEXT NOT NULL,
    state TEXT NOT NULL CHECK (
        state IN ('scheduled', 'approved', 'started', 'completed', 'cancelled')
    ),
    approved_by TEXT NOT NULL
);
CREATE INDEX event_live ON event (operation)
    WHERE state IN ('scheduled', 'approved', 'started');
CREATE INDEX event_operation ON event (operation);
CREATE INDEX event_group ON event (group_name, operation);

CREATE TABLE enrolment (
    group_name TEXT PRIMARY KEY REFERENCES vm_group (name),
    enabled_ms BIGINT NOT NULL CHECK (enabled_ms >= 0),
    polled_ms BIGINT NOT NULL CHECK (polled_ms >= 0)
);

CREATE TABLE document (
    key TEXT PRIMARY KEY,
    group_name TEXT NOT NULL REFERENCES vm_group (name),
    document TEXT NOT NULL
);
CREATE INDEX document_group ON document (group_name);

-- One row for each transition, in the order they happened, without gaps.
-- `images` is what the records became: [[kind, key, row or null], …].
CREATE TABLE history (
    seq BIGINT PRIMARY KEY CHECK (seq > 0),
    at_ms BIGINT NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    text TEXT NOT NULL,
    operation BIGINT NOT NULL,
    event TEXT NOT NULL,
    group_name TEXT NOT NULL,
    vm TEXT NOT NULL,
    host TEXT NOT NULL,
    images TEXT NOT NULL
);
CREATE INDEX history_operation ON history (operation, seq) WHERE operation <> 0;
CREATE INDEX history_event ON history (event, seq) WHERE event <> '';
CREATE INDEX history_group ON history (group_name, seq) WHERE group_name <> '';
CREATE INDEX history_vm ON history (vm, seq) WHERE vm <> '';
CREATE INDEX history_host ON history (host, seq) WHERE host <> '';
CREATE INDEX history_action ON history (action, seq);
