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
    last_number BIGINT NOT NULL CHECK (last_number >= 0),
    -- Where the service's clock stands against the time since its machine's boot: a service that
    -- is started again within that boot goes on by its own time while a notice runs (N-4).
    boot TEXT NOT NULL DEFAULT '',
    clock_ahead_ms BIGINT NOT NULL DEFAULT 0,
    -- Which checkpoint is whole, 0: none.
    checkpoint_seq BIGINT NOT NULL DEFAULT 0,
    -- Names the sequence of commits that metadata nodes follow; the first writer gives it (M-1).
    -- Empty it where a backup was put back: nodes know commits then that never were.
    epoch TEXT NOT NULL DEFAULT ''
);
INSERT INTO service (id, generation, writer, history_seq, last_number) VALUES (1, 0, '', 0, 0);

-- One row: which process may become the writer. See docs/reference/store.md.
CREATE TABLE lease (
    id BIGINT PRIMARY KEY CHECK (id = 1),
    holder TEXT NOT NULL,
    beat BIGINT NOT NULL CHECK (beat >= 0),
    -- Where its operator API is, for the other processes.
    url TEXT NOT NULL,
    -- How far the last writer's clock was ahead of the database's, if that was measured (H-6).
    measured BIGINT NOT NULL CHECK (measured IN (0, 1)),
    ahead_ms BIGINT NOT NULL
);
INSERT INTO lease (id, holder, beat, url, measured, ahead_ms) VALUES (1, '', 0, '', 0, 0);

CREATE TABLE host (
    name TEXT PRIMARY KEY,
    fault_domain BIGINT NOT NULL CHECK (fault_domain >= 0),
    update_domain BIGINT NOT NULL CHECK (update_domain >= 0),
    zone TEXT NOT NULL,
    driver TEXT NOT NULL,
    health TEXT NOT NULL CHECK (health IN ('healthy', 'degraded', 'failed')),
    -- By which many hosts are named at once (F-1).
    labels TEXT NOT NULL,
    -- Of its VMs together; 0: unknown (F-3).
    memory_mib BIGINT NOT NULL CHECK (memory_mib >= 0)
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
    reimage_notice BIGINT NOT NULL CHECK (reimage_notice IN (0, 1)),
    approves_when_down BIGINT NOT NULL CHECK (approves_when_down IN (0, 1)),
    -- Api-version for Event Grid and Resource Graph; empty: not shown there (Z-6).
    published TEXT NOT NULL
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
    tags TEXT NOT NULL,
    -- Further instance metadata, by its dotted names (I-1).
    instance TEXT NOT NULL,
    memory_mib BIGINT NOT NULL CHECK (memory_mib >= 0)
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
        state IN ('planned', 'announced', 'running', 'succeeded', 'failed', 'cancelled')
    ),
    requested_start_ms BIGINT NOT NULL CHECK (requested_start_ms >= 0),
    not_before_ms BIGINT NOT NULL CHECK (not_before_ms >= 0),
    created_ms BIGINT NOT NULL CHECK (created_ms >= 0),
    announced_ms BIGINT NOT NULL CHECK (announced_ms >= 0),
    shown_ms BIGINT NOT NULL CHECK (shown_ms >= 0),
    started_ms BIGINT NOT NULL CHECK (started_ms >= 0),
    begun_ms BIGINT NOT NULL CHECK (begun_ms >= 0),
    ended_ms BIGINT NOT NULL CHECK (ended_ms >= 0),
    attempt BIGINT NOT NULL CHECK (attempt >= 0),
    reason TEXT NOT NULL,
    alert TEXT NOT NULL CHECK (alert IN ('none', 'blocked', 'overdue', 'stuck')),
    destination TEXT NOT NULL,
    actor TEXT NOT NULL,
    events TEXT NOT NULL,
    -- It ended without its driver, which has not been told yet (L-7).
    abort_owed BIGINT NOT NULL CHECK (abort_owed IN (0, 1)),
    -- The driver it was begun with, whatever becomes of its host's record.
    driver TEXT NOT NULL,
    -- What the driver said last, and how much of the work is done; -1 where it said no share.
    progress TEXT NOT NULL,
    progress_percent BIGINT NOT NULL,
    maintenance BIGINT NOT NULL,
    earliest_start_ms BIGINT NOT NULL,
    -- Where its driver takes its VMs, as pairs of VM and host, where nobody said before.
    placements TEXT NOT NULL,
    -- Whose VMs it has disturbed, once it has ended: owners rest after that (F-3).
    disturbed_owners TEXT NOT NULL,
    replaced_by BIGINT NOT NULL CHECK (replaced_by >= 0),
    -- As its driver measured it; -1 where none did.
    interruption_ms BIGINT NOT NULL CHECK (interruption_ms >= -1)
);
-- By comparisons: of a list SQLite makes an index each time it looks into it, which was half the
-- work of writing an operation or an event. A question must be put in the same words.
CREATE INDEX operation_live ON operation (number)
    WHERE state = 'planned' OR state = 'announced' OR state = 'running';
CREATE INDEX operation_host ON operation (host, number);
CREATE INDEX operation_abort ON operation (number) WHERE abort_owed = 1;
CREATE INDEX operation_ended ON operation (ended_ms) WHERE ended_ms > 0;
CREATE INDEX operation_maintenance ON operation (maintenance, number) WHERE maintenance > 0;

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
    WHERE state = 'scheduled' OR state = 'approved' OR state = 'started';
CREATE INDEX event_operation ON event (operation);
CREATE INDEX event_group ON event (group_name, operation);

CREATE TABLE enrolment (
    group_name TEXT PRIMARY KEY REFERENCES vm_group (name),
    enabled_ms BIGINT NOT NULL CHECK (enabled_ms >= 0),
    polled_ms BIGINT NOT NULL CHECK (polled_ms >= 0),
    -- Which hosts VMs have left lately: an approval that a node there had accepted counts (M-3).
    departures TEXT NOT NULL
);

CREATE TABLE document (
    key TEXT PRIMARY KEY,
    group_name TEXT NOT NULL REFERENCES vm_group (name),
    document TEXT NOT NULL
);
CREATE INDEX document_group ON document (group_name);

-- One row for each transition, in the order they happened, without gaps.
-- `images` is what the records became: [[kind, key, row or null], …]. A new host, group or VM may
-- leave out what most of them have in common: ["+vm", key, {what differs}].
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

-- The whole state as history had left it where its older part was removed: a replay begins there.
-- Written in portions; `service.checkpoint_seq` says which one is whole.
CREATE TABLE checkpoint (
    seq BIGINT NOT NULL CHECK (seq > 0),
    portion BIGINT NOT NULL CHECK (portion > 0),
    at_ms BIGINT NOT NULL,
    images TEXT NOT NULL,
    PRIMARY KEY (seq, portion)
);

-- Maintenances of many hosts, their plans, and the hosts they have touched (F-1, F-2).
CREATE TABLE maintenance (
    number BIGINT PRIMARY KEY CHECK (number > 0),
    cause TEXT NOT NULL,
    impact TEXT NOT NULL,
    created_ms BIGINT NOT NULL,
    actor TEXT NOT NULL,
    duration_s BIGINT NOT NULL CHECK (duration_s > 0),
    reason TEXT NOT NULL,
    description TEXT NOT NULL,
    earliest_ms BIGINT NOT NULL,
    deadline_ms BIGINT NOT NULL,
    priority BIGINT NOT NULL,
    budgets TEXT NOT NULL,
    canary_hosts TEXT NOT NULL,
    max_failures BIGINT NOT NULL CHECK (max_failures >= 0),
    state TEXT NOT NULL
        CHECK (state IN ('draft', 'running', 'paused', 'stopped', 'done', 'cancelled')),
    started_ms BIGINT NOT NULL,
    ended_ms BIGINT NOT NULL,
    plan TEXT NOT NULL,
    phase TEXT NOT NULL,
    rests_until_ms BIGINT NOT NULL,
    moved_ms BIGINT NOT NULL,
    forgiven BIGINT NOT NULL CHECK (forgiven >= 0),
    gate TEXT NOT NULL,
    -- Later starts that were granted to owners, by host (F-8).
    postponed TEXT NOT NULL,
    -- VMs leave each host first, within this many seconds; 0: they stay (F-1).
    move_s BIGINT NOT NULL CHECK (move_s >= 0)
);

-- The hosts of a maintenance never change: they are not written again with its progress (F-1).
CREATE TABLE maintenance_hosts (
    maintenance BIGINT PRIMARY KEY,
    hosts TEXT NOT NULL
);

CREATE TABLE maintenance_plan (
    id TEXT PRIMARY KEY,
    maintenance BIGINT NOT NULL,
    parent TEXT NOT NULL,
    made_ms BIGINT NOT NULL,
    body TEXT NOT NULL
);

CREATE TABLE maintenance_target (
    key TEXT PRIMARY KEY,
    maintenance BIGINT NOT NULL,
    host TEXT NOT NULL,
    wave BIGINT NOT NULL,
    operation BIGINT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('working', 'done', 'failed')),
    ended_ms BIGINT NOT NULL,
    reason TEXT NOT NULL
);
CREATE INDEX maintenance_target_of ON maintenance_target (maintenance);

-- The policy of maintenances, applied while the service runs (F-3); one row.
CREATE TABLE maintenance_policy (
    name TEXT PRIMARY KEY,
    applied_ms BIGINT NOT NULL,
    actor TEXT NOT NULL,
    policy TEXT NOT NULL
);

-- How far each destination of the outbox is in history. `active` is 1 where the settings have it:
-- history is kept for it then.
CREATE TABLE outbox (
    name TEXT PRIMARY KEY,
    seq BIGINT NOT NULL CHECK (seq >= 0),
    active BIGINT NOT NULL CHECK (active IN (0, 1))
);

-- Who may do what: a principal's bindings are pairs of role and owner, an empty owner is the whole
-- fleet (P-2). Of a token's secret only its SHA-256 is here (P-4).
CREATE TABLE principal (
    name TEXT PRIMARY KEY,
    bindings TEXT NOT NULL
);
CREATE TABLE access_token (
    id TEXT PRIMARY KEY,
    principal TEXT NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('viewer', 'owner', 'operator', 'admin', 'node')),
    owner TEXT NOT NULL,
    digest TEXT NOT NULL,
    created_ms BIGINT NOT NULL,
    expires_ms BIGINT NOT NULL CHECK (expires_ms >= 0)
);
-- When a token was used last, to ten minutes.
CREATE TABLE token_use (
    id TEXT PRIMARY KEY,
    used_ms BIGINT NOT NULL
);

-- Calls that wait for a second principal (P-8).
CREATE TABLE confirmation (
    number BIGINT PRIMARY KEY,
    principal TEXT NOT NULL,
    actor TEXT NOT NULL,
    request TEXT NOT NULL,
    body TEXT NOT NULL,
    media TEXT NOT NULL,
    asked_ms BIGINT NOT NULL,
    expires_ms BIGINT NOT NULL
);

-- Each change and each refusal of a call, in a chain: a digest covers its record and the digest
-- before (P-7). A signature is of number and digest.
CREATE TABLE audit (
    seq BIGINT PRIMARY KEY CHECK (seq > 0),
    at_ms BIGINT NOT NULL,
    principal TEXT NOT NULL,
    address TEXT NOT NULL,
    request TEXT NOT NULL,
    object TEXT NOT NULL,
    outcome TEXT NOT NULL,
    digest TEXT NOT NULL,
    signature TEXT NOT NULL
);

-- The answers to calls with an Idempotency-Key, for a day; status 0: its change is made, and its
-- answer is not here (P-10).
CREATE TABLE idempotency (
    principal TEXT NOT NULL,
    key TEXT NOT NULL,
    request TEXT NOT NULL,
    at_ms BIGINT NOT NULL,
    status BIGINT NOT NULL,
    answer TEXT NOT NULL,
    PRIMARY KEY (principal, key)
);
CREATE INDEX idempotency_at ON idempotency (at_ms);

-- What drivers keep of their tasks, by names of their own: any process finds a task again (R-2).
-- Operation or attempt 0: not of one operation or attempt.
CREATE TABLE driver_task (
    driver TEXT NOT NULL,
    operation BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    name TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (driver, operation, attempt, name)
);
-- The newest writer that has called each driver.
CREATE TABLE driver_writer (
    driver TEXT PRIMARY KEY,
    generation BIGINT NOT NULL
);
