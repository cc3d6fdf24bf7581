-- All statements of the store, for every engine. `:name` is a parameter. Fixed texts in the code,
-- never values, replace `{…}`. statements.py generates the statements for whole records.

-- name: schema_table
CREATE TABLE IF NOT EXISTS migration (
    number BIGINT PRIMARY KEY,
    name TEXT NOT NULL,
    checksum TEXT NOT NULL
)

-- name: schema_steps
SELECT number, name, checksum FROM migration ORDER BY number

-- name: schema_step_done
INSERT INTO migration (number, name, checksum) VALUES (:number, :name, :checksum)

-- name: copied
SELECT * FROM {table}

-- name: pages_check
PRAGMA quick_check({table})

-- name: database_facts
SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint), pg_is_in_recovery()

-- name: database_unsafe
SELECT name, setting FROM pg_settings
WHERE setting = 'off' AND name IN ('fsync', 'full_page_writes', 'synchronous_commit')
ORDER BY name

-- name: copied_open
DECLARE copied_{table} NO SCROLL CURSOR FOR SELECT * FROM {table}

-- name: copied_next
FETCH 5000 FROM copied_{table}

-- name: copy_emptied
DELETE FROM {table}

-- name: raise
UPDATE service SET
    generation = :number, history_seq = :number, last_number = :number,
    writer = '', boot = '', clock_ahead_ms = 0, epoch = :epoch
WHERE id = 1 AND generation < :number AND history_seq < :number AND last_number < :number
RETURNING generation

-- name: restore_begun
UPDATE service SET epoch = :epoch WHERE id = 1 AND generation = 0

-- name: restore_empty
SELECT COUNT(*) FROM service WHERE id = 1 AND epoch = :epoch AND generation = 0

-- name: restore_ended
UPDATE service SET epoch = '', writer = '' WHERE id = 1

-- name: lease_freed
UPDATE lease SET holder = '', beat = beat + 1, measured = 0 WHERE id = 1

-- name: claim
UPDATE service SET
    generation = generation + 1, writer = :writer,
    epoch = CASE WHEN epoch = '' THEN :writer ELSE epoch END,
    commit_key = CASE WHEN commit_key = '' THEN :key ELSE commit_key END
WHERE id = 1
RETURNING generation, history_seq, last_number, boot, clock_ahead_ms, epoch,
    lost_epoch, lost_commit, commit_key,
    COALESCE((
        SELECT digest FROM commit_digest WHERE commit_digest.generation < service.generation
        ORDER BY commit_digest.generation DESC LIMIT 1
    ), '')

-- name: claim_seen
UPDATE service SET generation = generation + 1, writer = :writer
WHERE id = 1 AND (generation = :generation OR writer = :writer) AND lost_epoch <> epoch
RETURNING generation

-- name: service
SELECT generation, history_seq, last_number, boot, clock_ahead_ms, epoch,
    lost_epoch, lost_commit, commit_key,
    COALESCE((
        SELECT digest FROM commit_digest WHERE commit_digest.generation = service.generation
    ), '')
FROM service WHERE id = 1

-- name: commit_digest
SELECT digest FROM commit_digest WHERE generation = :generation

-- name: commit_digest_put
INSERT INTO commit_digest (generation, digest) VALUES (:generation, :digest)

-- name: commit_digest_trim
DELETE FROM commit_digest WHERE generation <= :until

-- name: commit_lost
UPDATE service SET
    lost_commit = CASE WHEN lost_epoch = epoch THEN lost_commit ELSE :lost END,
    lost_epoch = epoch
WHERE id = 1 AND epoch = :epoch AND (
    lost_epoch = epoch OR generation < :generation OR EXISTS (
        SELECT 1 FROM commit_digest
        WHERE commit_digest.generation = :generation AND digest <> :digest AND :digest <> ''
    )
)
RETURNING lost_commit

-- name: commit_lost_mark
UPDATE service SET
    lost_commit = CASE WHEN lost_epoch = epoch THEN lost_commit ELSE :lost END,
    lost_epoch = epoch
WHERE id = 1 AND epoch = :epoch
RETURNING lost_commit

-- name: images_since
SELECT images, later_images FROM history
WHERE seq > :after AND seq <= :until ORDER BY seq

-- name: advance
UPDATE service SET
    generation = generation + 1, history_seq = history_seq + :entries, last_number = :last_number
WHERE id = 1 AND generation = :generation AND lost_epoch <> epoch
RETURNING history_seq

-- name: mark
UPDATE service SET boot = :boot, clock_ahead_ms = :ahead_ms WHERE id = 1

-- name: writer
SELECT writer FROM service WHERE id = 1

-- name: settle
UPDATE service SET writer = writer WHERE id = 1
RETURNING generation, writer

-- name: lease
SELECT holder, beat, url FROM lease WHERE id = 1

-- name: lease_move
UPDATE lease SET holder = :holder, beat = beat + 1, url = :url
WHERE id = 1 AND holder = :seen_holder AND beat = :seen_beat
RETURNING beat

-- name: lease_clock
UPDATE lease SET measured = 1, ahead_ms = :now_ms - {now_ms} WHERE id = 1 AND holder = :holder
RETURNING {now_ms}

-- name: writer_now
SELECT {now_ms} + ahead_ms FROM lease WHERE id = 1 AND measured = 1

-- name: process_noted
INSERT INTO process (token, url, version, generation, seen_ms)
VALUES (:token, :url, :version, :generation, {now_ms})
ON CONFLICT (token) DO UPDATE SET
    url = excluded.url, generation = excluded.generation, seen_ms = excluded.seen_ms
RETURNING token

-- name: process_gone
DELETE FROM process WHERE token = :token

-- name: processes_gone
DELETE FROM process WHERE seen_ms < {now_ms} - :kept_ms RETURNING token

-- name: processes
SELECT token, url, version, generation, {now_ms} - seen_ms FROM process
ORDER BY seen_ms DESC LIMIT :limit

-- name: load_host
SELECT {host} FROM host ORDER BY name

-- name: load_group
SELECT {group} FROM vm_group ORDER BY name

-- name: load_vm
SELECT {vm} FROM vm ORDER BY name

-- name: groups_of
SELECT name FROM vm_group WHERE owner = :owner

-- name: places_of
SELECT vm.host, vm.name FROM vm JOIN vm_group ON vm_group.name = vm.group_name
WHERE vm_group.owner = :owner

-- name: load_operation
SELECT {operation} FROM operation
WHERE state = 'planned' OR state = 'announced' OR state = 'running'
UNION ALL
SELECT {operation} FROM operation WHERE abort_owed = 1
ORDER BY number

-- name: load_ended
SELECT {operation} FROM operation
WHERE ended_ms > 0 AND disturbed_owners <> '[]'
    AND ended_ms > (SELECT MAX(ended_ms) FROM operation WHERE ended_ms > 0) - :within_ms
ORDER BY number

-- name: load_event
SELECT {event} FROM event
WHERE state = 'scheduled' OR state = 'approved' OR state = 'started'
ORDER BY operation, group_name

-- name: load_enrolment
SELECT {enrolment} FROM enrolment ORDER BY group_name

-- name: load_document
SELECT {document} FROM document ORDER BY key

-- name: load_plan
SELECT {plan} FROM maintenance_plan WHERE id IN (
    SELECT plan FROM maintenance
    WHERE state = 'draft' OR state = 'running' OR state = 'paused' OR state = 'stopped'
)

-- name: load_maintenance
SELECT {maintenance} FROM maintenance
WHERE state = 'draft' OR state = 'running' OR state = 'paused' OR state = 'stopped'
ORDER BY number

-- name: load_target
SELECT {target} FROM maintenance_target WHERE maintenance IN (
    SELECT number FROM maintenance
    WHERE state = 'draft' OR state = 'running' OR state = 'paused' OR state = 'stopped'
)

-- name: load_choice
SELECT {choice} FROM owner_choice WHERE maintenance IN (
    SELECT number FROM maintenance
    WHERE state = 'draft' OR state = 'running' OR state = 'paused' OR state = 'stopped'
)

-- name: load_deferral
SELECT {deferral} FROM owner_deferral WHERE maintenance IN (
    SELECT number FROM maintenance
    WHERE state = 'draft' OR state = 'running' OR state = 'paused' OR state = 'stopped'
)

-- name: load_policy
SELECT {policy} FROM maintenance_policy

-- name: audit_last
SELECT seq, digest FROM audit ORDER BY seq DESC LIMIT 1

-- name: audit_add
INSERT INTO audit (
    seq, at_ms, principal, address, request, object, outcome, token, digest, signature
) VALUES (
    :seq, :at_ms, :principal, :address, :request, :object, :outcome, :token, :digest, :signature
)

-- name: audit_trimmed
SELECT object FROM audit WHERE request = 'audit.trimmed' ORDER BY seq DESC LIMIT 1

-- name: audit_old
SELECT COALESCE(MAX(seq), 0) FROM audit
WHERE at_ms < :oldest_ms AND seq < (SELECT MAX(seq) FROM audit)

-- name: audit_trim
DELETE FROM audit WHERE seq <= :last AND seq < (SELECT MIN(seq) FROM audit) + :count

-- name: audit
SELECT seq, at_ms, principal, address, request, object, outcome, token, digest, signature
FROM audit WHERE seq > :after ORDER BY seq LIMIT :limit

-- name: answer_of
SELECT request, status, answer FROM idempotency
WHERE principal = :owner AND key = :key AND at_ms > :since_ms

-- name: answers_forget
DELETE FROM idempotency WHERE at_ms <= :until_ms

-- name: answer_put
INSERT INTO idempotency (principal, key, request, at_ms, status, answer)
VALUES (:owner, :key, :request, :at_ms, :status, :answer)
ON CONFLICT (principal, key) DO UPDATE SET status = excluded.status, answer = excluded.answer

-- name: load_principal
SELECT {principal} FROM principal

-- name: load_token
SELECT {token} FROM access_token

-- name: load_confirmation
SELECT {confirmation} FROM confirmation ORDER BY number

-- name: load_ticket
SELECT {ticket} FROM ticket WHERE closed_ms = 0 ORDER BY number

-- name: ticket
SELECT {ticket} FROM ticket WHERE number = :number

-- name: tickets
SELECT {ticket} FROM ticket WHERE {filters} ORDER BY number DESC LIMIT :limit

-- name: ticket_concerns
INSERT INTO ticket_owner (owner, ticket) VALUES (:owner, :ticket)
ON CONFLICT (owner, ticket) DO NOTHING

-- name: tickets_old
SELECT number FROM ticket
WHERE closed_ms > 0 AND closed_ms < :before_ms ORDER BY closed_ms LIMIT :limit

-- name: ticket_owner_forget
DELETE FROM ticket_owner WHERE ticket = :number

-- name: ticket_forget
DELETE FROM ticket WHERE number = :number

-- name: token_used
INSERT INTO token_use (id, used_ms) VALUES (:id, :used_ms)
ON CONFLICT (id) DO UPDATE SET used_ms = excluded.used_ms

-- name: sign_outs
SELECT digest, at_ms FROM sign_out

-- name: signed_out
INSERT INTO sign_out (digest, at_ms) VALUES (:digest, :at_ms)
ON CONFLICT (digest) DO UPDATE SET at_ms = excluded.at_ms

-- name: sign_outs_forget
DELETE FROM sign_out WHERE digest <> '' AND at_ms <= :until_ms

-- name: token_uses
SELECT id, used_ms FROM token_use

-- name: maintenance
SELECT {maintenance} FROM maintenance WHERE number = :number

-- name: maintenances
SELECT {maintenance} FROM maintenance WHERE number < :before ORDER BY number DESC LIMIT :limit

-- name: plan
SELECT {plan} FROM maintenance_plan WHERE id = :id

-- A maintenance that has ended leaves its hosts as they were: there, the operation knows better.
-- name: maintenance_counts
SELECT CASE WHEN target.state <> 'working' THEN target.state
    WHEN operation.state = 'succeeded' THEN 'done' ELSE operation.state END AS stands,
    COUNT(*)
FROM maintenance_target AS target LEFT JOIN operation ON operation.number = target.operation
WHERE target.maintenance = :maintenance
    AND (target.state <> 'working' OR operation.state <> 'cancelled') GROUP BY stands

-- name: maintenance_work
-- The work on a host that is done, and not the last return of a VM to it, which ended it.
SELECT target.host, target.wave, COALESCE(operation.number, target.operation),
    CASE WHEN target.state <> 'working' THEN target.state
    WHEN latest.state = 'succeeded' THEN 'done' ELSE latest.state END,
    operation.announced_ms, operation.started_ms, target.ended_ms, target.reason
FROM maintenance_target AS target LEFT JOIN operation AS latest ON latest.number = target.operation
LEFT JOIN operation ON operation.number =
    CASE WHEN target.state = 'done' AND latest.of_vm = 1 THEN (
        SELECT MAX(own.number) FROM operation AS own WHERE own.host = target.host
        AND own.maintenance = target.maintenance AND own.of_vm = 0
    ) ELSE target.operation END
WHERE target.maintenance = :maintenance
    AND (target.state <> 'working' OR latest.state <> 'cancelled') ORDER BY target.host

-- name: place_vm
INSERT INTO operation_vm (vm, operation) VALUES (:vm, :operation)
ON CONFLICT (vm, operation) DO NOTHING

-- name: displace_vm
DELETE FROM operation_vm WHERE vm = :vm AND operation = :operation

-- name: record
INSERT INTO history (
    seq, at_ms, actor, action, text, operation, event, group_name, vm, host, images, later_images
) VALUES (
    :seq, :at_ms, :actor, :action, :text, :operation, :event, :group_name, :vm, :host, :images,
    :later_images
)

-- name: history_sizes
SELECT seq, at_ms,
    96 + LENGTH(actor) + LENGTH(action) + LENGTH(text) + LENGTH(event) + LENGTH(group_name)
        + LENGTH(vm) + LENGTH(host) + LENGTH(images) + LENGTH(later_images)
FROM history WHERE seq > :after ORDER BY seq LIMIT :limit

-- name: history_bytes
SELECT COALESCE(SUM(
    96 + LENGTH(actor) + LENGTH(action) + LENGTH(text) + LENGTH(event) + LENGTH(group_name)
        + LENGTH(vm) + LENGTH(host) + LENGTH(images) + LENGTH(later_images)
), 0) FROM history

-- name: work_count
SELECT COUNT(*) FROM operation WHERE ended_ms > 0

-- name: work_old_count
SELECT COUNT(*) FROM operation WHERE ended_ms > 0 AND ended_ms < :before_ms

-- name: work_at
SELECT ended_ms FROM operation WHERE ended_ms > 0 ORDER BY ended_ms LIMIT 1 OFFSET :place

-- name: work_sizes
-- An operation, its events, and its rows with VMs.
SELECT 96 + {operation_bytes}
    + 32 * (SELECT COUNT(*) FROM operation_vm WHERE operation_vm.operation = operation.number)
    + COALESCE((
        SELECT SUM(32 + {event_bytes}) FROM event WHERE event.operation = operation.number
    ), 0)
FROM operation WHERE ended_ms > 0 ORDER BY ended_ms {direction} LIMIT :limit

-- name: work_ended
-- Work of a maintenance stays as long as the maintenance.
SELECT ended_ms, number, CASE WHEN abort_owed = 1 OR maintenance > 0 AND EXISTS (
    SELECT 1 FROM maintenance AS own WHERE own.number = operation.maintenance
        AND own.state <> 'done' AND own.state <> 'cancelled'
) THEN 1 ELSE 0 END
FROM operation
WHERE ended_ms > 0 AND ended_ms < :before_ms
    AND (ended_ms > :after_ms OR ended_ms = :after_ms AND number > :after)
ORDER BY ended_ms, number LIMIT :limit

-- name: work_vms_forget
DELETE FROM operation_vm WHERE operation = :number

-- name: work_events_forget
DELETE FROM event WHERE operation = :number

-- name: work_forget
DELETE FROM operation WHERE number = :number

-- name: maintenances_ended
SELECT number FROM maintenance
WHERE ended_ms > 0 AND ended_ms < :before_ms AND (state = 'done' OR state = 'cancelled')
    AND NOT EXISTS (
        SELECT 1 FROM operation
        WHERE operation.maintenance = maintenance.number AND operation.maintenance > 0
    )
ORDER BY number LIMIT :limit

-- name: maintenance_target_forget
DELETE FROM maintenance_target WHERE maintenance = :number

-- name: owner_choice_forget
DELETE FROM owner_choice WHERE maintenance = :number

-- name: owner_deferral_forget
DELETE FROM owner_deferral WHERE maintenance = :number

-- name: maintenance_plan_forget
DELETE FROM maintenance_plan WHERE maintenance = :number

-- name: maintenance_hosts_forget
DELETE FROM maintenance_hosts WHERE maintenance = :number

-- name: maintenance_forget
DELETE FROM maintenance WHERE number = :number

-- name: audit_count
SELECT COUNT(*) FROM audit

-- name: audit_sizes
SELECT 160 + LENGTH(principal) + LENGTH(address) + LENGTH(request) + LENGTH(object)
    + LENGTH(outcome) + LENGTH(digest) + LENGTH(signature)
FROM audit ORDER BY seq {direction} LIMIT :limit

-- name: history_trim
DELETE FROM history WHERE seq <= :last AND seq < (SELECT MIN(seq) FROM history) + :count

-- name: history_first
SELECT COALESCE(MIN(seq), 0) FROM history

-- name: checkpoint_portion
INSERT INTO checkpoint (seq, portion, at_ms, images, later_images)
VALUES (:seq, :portion, :at_ms, :images, :later_images)

-- name: checkpoint_forget
DELETE FROM checkpoint WHERE seq <> :seq

-- name: checkpoint_made
UPDATE service SET checkpoint_seq = :seq WHERE id = 1

-- name: checkpoint_seq
SELECT checkpoint_seq FROM service WHERE id = 1

-- name: history_bounds
SELECT checkpoint_seq, history_seq FROM service WHERE id = 1

-- name: checkpoint
SELECT portion, at_ms, images, later_images FROM checkpoint
WHERE seq = :seq AND portion > :after ORDER BY portion LIMIT 1

-- name: history
SELECT seq, at_ms, actor, action, text, operation, event, group_name, vm, host, {images}
FROM history WHERE {filters} ORDER BY seq {direction} LIMIT :limit

-- name: operation
SELECT {operation} FROM operation WHERE number = :number

-- name: operations
SELECT {operation} FROM operation WHERE {filters} ORDER BY number DESC LIMIT :limit

-- name: event
SELECT {event} FROM event WHERE id = :id

-- name: group
SELECT {group} FROM vm_group WHERE name = :name

-- name: events_of
SELECT {event} FROM event WHERE operation = :operation ORDER BY group_name

-- name: backup_noted
INSERT INTO backup (number, at_ms) VALUES (1, :at_ms)
ON CONFLICT (number) DO UPDATE SET at_ms = :at_ms

-- name: backup_last
SELECT at_ms FROM backup

-- name: cursors_rest
UPDATE outbox SET active = 0

-- name: cursor_take_up
INSERT INTO outbox (name, seq, active) VALUES (:name, :seq, 1)
ON CONFLICT (name) DO UPDATE SET active = 1

-- name: cursors
SELECT name, seq FROM outbox WHERE active = 1

-- name: cursor_move
UPDATE outbox SET seq = :seq WHERE name = :name AND seq < :seq

-- name: cursors_held
SELECT COUNT(*), COALESCE(MIN(seq), 0) FROM outbox WHERE active = 1

-- name: history_next
SELECT at_ms FROM history WHERE seq > :seq ORDER BY seq LIMIT 1

-- name: task_writer
INSERT INTO driver_writer (driver, generation) VALUES (:driver, :generation)
ON CONFLICT (driver) DO UPDATE SET generation = CASE
    WHEN excluded.generation > driver_writer.generation THEN excluded.generation
    ELSE driver_writer.generation
END
RETURNING generation

-- name: task_notes
SELECT attempt, name, body FROM driver_task WHERE driver = :driver AND operation = :operation

-- name: task_note
SELECT body FROM driver_task
WHERE driver = :driver AND operation = :operation AND attempt = :attempt AND name = :name

-- name: task_claim
INSERT INTO driver_task (driver, operation, attempt, name, body)
VALUES (:driver, :operation, :attempt, :name, '')
ON CONFLICT (driver, operation, attempt, name) DO NOTHING
RETURNING attempt

-- name: task_put
INSERT INTO driver_task (driver, operation, attempt, name, body)
VALUES (:driver, :operation, :attempt, :name, :body)
ON CONFLICT (driver, operation, attempt, name) DO UPDATE SET body = excluded.body

-- name: task_drop
DELETE FROM driver_task
WHERE driver = :driver AND operation = :operation AND attempt = :attempt AND name = :name

-- name: task_tidy
DELETE FROM driver_task
WHERE driver = :driver AND operation > 0 AND operation < :before AND NOT EXISTS (
    SELECT 1 FROM operation WHERE operation.number = driver_task.operation AND (
        state = 'planned' OR state = 'announced' OR state = 'running' OR abort_owed = 1
    )
)

-- name: availability_put
INSERT INTO availability_record (
    generation, place, at_ms, kind, group_name, owner, vms, event, operation, maintenance, cause,
    impact, source, result, notice_s, announced_ms, shown_ms, not_before_ms, approved_ms,
    started_ms, interruption_ms
) VALUES (
    :generation, :place, :at_ms, :kind, :group_name, :owner, :vms, :event, :operation,
    :maintenance, :cause, :impact, :source, :result, :notice_s, :announced_ms, :shown_ms,
    :not_before_ms, :approved_ms, :started_ms, :interruption_ms
)

-- name: availability
SELECT generation, place, at_ms, kind, group_name, owner, vms, event, operation, maintenance,
    cause, impact, source, result, notice_s, announced_ms, shown_ms, not_before_ms, approved_ms,
    started_ms, interruption_ms
FROM availability_record WHERE {filters} ORDER BY generation, place LIMIT :limit

-- name: availability_since
SELECT at_ms FROM availability_since

-- name: availability_old
SELECT generation FROM availability_record WHERE at_ms < :before_ms LIMIT 1

-- name: availability_trim
DELETE FROM availability_record WHERE at_ms < :before_ms AND generation <= (
    SELECT MAX(generation) FROM (
        SELECT generation FROM availability_record WHERE at_ms < :before_ms
        ORDER BY generation LIMIT :count
    ) AS oldest
)
RETURNING generation

-- name: duration_put
INSERT INTO duration_sample (operation, cause, labels, duration_s)
VALUES (:operation, :cause, :labels, :duration_s) ON CONFLICT (operation) DO NOTHING

-- name: durations
SELECT operation, cause, labels, duration_s FROM duration_sample ORDER BY operation

-- name: durations_over
SELECT cause FROM duration_sample GROUP BY cause HAVING COUNT(*) > :most

-- name: duration_trim
DELETE FROM duration_sample WHERE operation IN (
    SELECT operation FROM (
        SELECT operation, ROW_NUMBER() OVER (PARTITION BY cause ORDER BY operation DESC) AS place
        FROM duration_sample
    ) AS ranked WHERE place > :most
)
RETURNING operation
