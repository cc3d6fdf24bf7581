"""What becomes of a maintenance's host when its operation ends, or its driver or host fails.

Each function costs one host. `waves.py` decides whether the maintenance continues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.impact import SECOND_MS, TRAITS, Cause, Source
from forewarn.core.lifecycle import Operation, OperationState
from forewarn.core.maintenance import Maintenance, Target, TargetState
from forewarn.values import replace

if TYPE_CHECKING:
    from forewarn.core.draft import Draft

#: A host that fails so soon after its service counts as a failure of the maintenance, in seconds.
FAILURE_AFTER_S = 3600
#: A group that polled so long before a host's work is expected to poll after it, in seconds.
POLLED_BEFORE_S = 3600


def operation_ended(draft: Draft, operation: Operation) -> None:
    """Note how the work on a host has ended; one that was withdrawn is to be done again.

    Where its VMs have left, the maintenance's own work follows at once, before another VM can
    come: nobody is on the host to get notice of it. See F-1.
    """
    target = draft.target(operation.maintenance, operation.host)
    maintenance = draft.maintenances.get(operation.maintenance)
    if maintenance is None or target is None or target.operation != operation.number:
        return
    emptied = operation.state is OperationState.SUCCEEDED and is_move_away(maintenance, operation)
    goes_on = maintenance.running or maintenance.keeps_announced
    if emptied and goes_on and not draft.topology.vms_on(operation.host):
        _work_on_emptied(draft, maintenance, target)
    elif emptied or operation.state is OperationState.CANCELLED:
        text = f"host {target.host} is still to be done by {maintenance.id}"
        draft.remove("maintenance.host-withdrawn", text, target)
    else:
        failed = operation.state is OperationState.FAILED
        state = TargetState.FAILED if failed else TargetState.DONE
        reason = (operation.reason or "its operation failed") if failed else ""
        ended = replace(target, state=state, ended_ms=draft.now_ms, reason=reason)
        text = f"host {target.host} of {maintenance.id} {'failed' if failed else 'is done'}"
        action = "maintenance.host-failed" if failed else "maintenance.host-done"
        draft.put(action, text, ended)
    draft.look_at(maintenance.number)


def is_move_away(maintenance: Maintenance, operation: Operation) -> bool:
    """Whether an operation moves VMs away before the maintenance's own work on their host."""
    moved, wanted = operation.cause, maintenance.cause
    return moved is Cause.LIVE_MIGRATION and wanted is not Cause.LIVE_MIGRATION


def _work_on_emptied(draft: Draft, maintenance: Maintenance, target: Target) -> None:
    number, host = draft.next_number(), target.host
    description, duration_s = TRAITS[maintenance.cause].shown(maintenance.impact)
    work = Operation(
        number,
        number,
        maintenance.cause,
        maintenance.impact,
        Source.PLATFORM,
        routine=True,
        host=host,
        vms=(),
        of_vm=False,
        description=maintenance.description or description,
        duration_s=duration_s,
        notice_s=draft.policy.notice_s[maintenance.impact],
        created_ms=draft.now_ms,
        actor=maintenance.actor,
        maintenance=maintenance.number,
    )
    text = f"{work.id}: the VMs of host {host} have left; {maintenance.cause.value} follows"
    draft.put("operation.planned", text, work, replace(target, operation=number))
    draft.look_at(number)


def driver_failed(draft: Draft, operation: Operation) -> None:
    """Count a host whose driver has failed against the gate. See F-5."""
    target = draft.target(operation.maintenance, operation.host)
    if target is not None and target.operation == operation.number:
        _fail(draft, replace(target, reason=operation.reason))


def host_failed(draft: Draft, host: str) -> None:
    """Count a host that fails soon after its service against the gate. See F-5."""
    since_ms = draft.now_ms - FAILURE_AFTER_S * SECOND_MS
    for number in tuple(draft.maintenances):
        target = draft.target(number, host)
        if target is None or target.state is not TargetState.DONE:
            continue
        assert target.ended_ms is not None, target
        if target.ended_ms >= since_ms:
            reason = "the host failed after its service"
            _fail(draft, replace(target, state=TargetState.FAILED, reason=reason))


def silent_groups(draft: Draft, number: int, since_ms: int) -> tuple[str, ...]:
    """Return the groups of the last wave's VMs that polled before, and have not since, sorted.

    Those whose last poll was in the hour before their host's work began. Costs the hosts that were
    touched, and the VMs of the last wave's. See F-5.

    Args:
        draft: the draft to read.
        number: the maintenance.
        since_ms: polls that count are later than this, too, ms since the epoch UTC: when the
            service was last back, or its clock last stepped. Until then nobody counted as silent
            (B-2), and a time ahead of the clock says no more than that it was before that.
    """
    maintenance = draft.maintenances.get(number)
    targets = draft.progress(number).targets.values()
    if maintenance is None or not targets:
        return ()
    last = max(each.wave for each in targets)
    before_s = POLLED_BEFORE_S + maintenance.duration_s
    groups, topology = set(), draft.topology
    plan = draft.plans.get(maintenance.plan)
    moves = plan.body.moves if plan else {}
    for target in targets:
        if target.wave != last or target.state is not TargetState.DONE:
            continue
        assert target.ended_ms is not None, target
        ended_ms = target.ended_ms if target.ended_ms <= draft.now_ms else since_ms
        names = {*topology.vms_on(target.host), *(vm for vm, _ in moves.get(target.host, ()))}
        for group in {topology.vms[name].group for name in names if name in topology.vms}:
            enrolment = draft.enrolment(group)
            if enrolment is None:
                continue
            polled_ms = enrolment.polled_ms if enrolment.polled_ms <= draft.now_ms else since_ms
            if ended_ms - before_s * SECOND_MS <= polled_ms < max(ended_ms, since_ms + 1):
                groups.add(group)
    return tuple(sorted(groups))


def _fail(draft: Draft, failed: Target) -> None:
    text = f"host {failed.host} counts as a failure of m-{failed.maintenance}: {failed.reason}"
    draft.put("maintenance.host-failed", text, failed)
    draft.look_at(failed.maintenance)
