"""The state of a maintenance's host after its operation ends, or its driver or host fails.

VMs that left the host return to it by one operation each, announced and approved like other work on
a VM. A return is requested as soon as the VMs have left, independently of the maintenance's end.
Source: F-1, F-3.

Each function reads and changes one host. `waves.py` decides whether the maintenance continues.
"""

from __future__ import annotations

from collections.abc import Iterator

from forewarn_base.values import replace
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.host_orders import with_end_of_test
from forewarn_core.fleet.impact import SECOND_MS, TRAITS, Cause, Impact, Source
from forewarn_core.fleet.lifecycle import FollowedBy, Operation, OperationState
from forewarn_core.fleet.maintenance import Maintenance, Target, TargetState
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.stimulus import CreateMaintenance

#: A host that fails within this many seconds after its service counts as a failure of the
#: maintenance.
FAILURE_AFTER_S = 3600
#: A group that polled within this many seconds before a host's work is expected to poll after the
#: work.
POLLED_BEFORE_S = 3600


def operation_ended(draft: Draft, operation: Operation) -> None:
    """Record the end of the work on a host; withdrawn work must be planned again.

    If the VMs have left, the maintenance's own work starts before another VM can arrive, because an
    empty host needs no notice. See F-1.
    """
    if operation.is_return:
        _vm_returned(draft, operation)
        return
    succeeded = operation.state is OperationState.SUCCEEDED
    if succeeded:
        plan_returns(draft, operation)
    target = draft.target(operation.maintenance, operation.host)
    maintenance = draft.maintenances.get(operation.maintenance)
    if maintenance is None or target is None or target.operation != operation.number:
        return
    emptied = succeeded and operation.followed_by is not FollowedBy.NOTHING
    goes_on = maintenance.running or maintenance.keeps_announced
    if emptied and goes_on and not draft.topology.vms_on(operation.host):
        _work_on_emptied(draft, maintenance, target, operation)
    elif emptied or operation.state is OperationState.CANCELLED:
        text = f"host {target.host} is still to be done by {maintenance.id}"
        draft.remove("maintenance.host-withdrawn", text, target)
    elif succeeded:
        _await_returns(draft, replace(target, reason=""))
    else:
        reason = operation.reason or "its operation failed"
        failed = replace(target, state=TargetState.FAILED, ended_ms=draft.now_ms, reason=reason)
        text = f"host {target.host} of {maintenance.id} failed"
        tested = with_end_of_test(draft, target.maintenance, target.host)
        draft.put("maintenance.host-failed", text, failed, *tested)
    draft.look_at(maintenance.number)


def _vm_returned(draft: Draft, operation: Operation) -> None:
    """Record that a VM has returned or failed to return; the host is done after its last VM."""
    target = _target_of(draft, operation)
    if target is None:
        return
    if operation.state is OperationState.FAILED:
        target = replace(target, reason=_not_returned(operation))
    _await_returns(draft, target)
    draft.look_at(target.maintenance)


def _await_returns(draft: Draft, target: Target) -> None:
    """Wait for the next returning VM of a host; without one the host is done."""
    left = [each.number for each in returns_to(draft, target.maintenance, target.host)]
    if not left:
        done = replace(target, state=TargetState.DONE, ended_ms=draft.now_ms)
        text = f"host {target.host} of m-{target.maintenance} is done"
        tested = with_end_of_test(draft, target.maintenance, target.host)
        draft.put("maintenance.host-done", text, done, *tested)
        return
    waits = replace(target, operation=min(left))
    if waits != draft.target(target.maintenance, target.host):
        text = f"the VMs of host {target.host} of m-{target.maintenance} return: {len(left)} left"
        draft.put("maintenance.host-refilling", text, waits)
    for number in left:
        draft.look_at(number)


def _target_of(draft: Draft, operation: Operation) -> Target | None:
    """Return the host whose work an operation is; None if it belongs to no host."""
    if not operation.is_return:
        target = draft.target(operation.maintenance, operation.host)
        return target if target and target.operation == operation.number else None
    target = draft.target(operation.maintenance, operation.destination)
    if target is None or target.state is not TargetState.WORKING:
        return None
    under_way = draft.operation(target.operation)
    at_work = under_way is not None and not under_way.is_return
    return None if at_work else target


def _not_returned(operation: Operation) -> str:
    reason = operation.reason or "its operation failed"
    return f"VM {operation.target} has not returned: {reason}"


def _work_on_emptied(
    draft: Draft, maintenance: Maintenance, target: Target, move: Operation
) -> None:
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
        unconfirmed_by=maintenance.unconfirmed_by,
        maintenance=maintenance.number,
        window=move.window,
    )
    text = f"{work.id}: the VMs of host {host} have left; {maintenance.cause.value} follows"
    draft.put("operation.planned", text, work, replace(target, operation=number))
    draft.look_at(number)


def driver_failed(draft: Draft, operation: Operation) -> None:
    """Count a host with a failed driver against the gate. See F-5."""
    target = _target_of(draft, operation)
    if target is not None:
        reason = _not_returned(operation) if operation.is_return else operation.reason
        _fail(draft, replace(target, reason=reason))


def host_failed(draft: Draft, host: str) -> None:
    """Count a host that fails soon after its service against the gate. See F-5.

    Its service ends with its work; its VMs may still be returning.
    """
    since_ms = draft.now_ms - FAILURE_AFTER_S * SECOND_MS
    for number in tuple(draft.maintenances):
        target = draft.target(number, host)
        if target is None or target.reason or target.state is TargetState.FAILED:
            continue
        failed = replace(target, reason="the host failed after its service")
        if target.state is TargetState.DONE:
            assert target.ended_ms is not None, target
            if target.ended_ms >= since_ms:
                _fail(draft, replace(failed, state=TargetState.FAILED))
        elif (under_way := draft.operation(target.operation)) and under_way.is_return:
            _fail(draft, failed)


def silent_groups(draft: Draft, number: int, since_ms: int) -> tuple[str, ...]:
    """Return the groups of the last wave that polled before and not since, sorted.

    Considers groups that polled within the hour before their host's work began. Polls before
    `since_ms` do not count, in ms since the epoch UTC. Callers give the last restart of the service
    or step of its clock: no group was silent until then (B-2), and poll times ahead of the clock
    are inexact. Costs the touched hosts, and the VMs of the last wave's. See F-5.
    """
    maintenance = draft.maintenances.get(number)
    targets = draft.progress(number).targets.values()
    if maintenance is None or not targets:
        return ()
    last = max(each.wave for each in targets)
    before_s = POLLED_BEFORE_S + maintenance.duration_s
    groups, topology = set(), draft.topology
    moves = draft.plan_of(maintenance).moves
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


def return_time_s(request: CreateMaintenance, policy: NoticePolicy) -> int:
    """Return how long the VMs of a host take to return, in seconds, notice included; 0: they stay.

    The return takes as long as the departure did.
    """
    return policy.notice_s[Impact.FREEZE] + request.move_s if request.return_vms else 0


def followed_by(maintenance: Maintenance) -> FollowedBy:
    """Return the work that follows once the VMs have left a host."""
    if maintenance.cause is Cause.LIVE_MIGRATION:
        return FollowedBy.NOTHING
    return FollowedBy.RETURN if maintenance.return_s else FollowedBy.WORK


def plan_returns(draft: Draft, move: Operation) -> None:
    """Request the return of the VMs that a move took away; O(its VMs)."""
    if move.followed_by is not FollowedBy.RETURN:
        return
    traits = TRAITS[Cause.LIVE_MIGRATION]
    for name in move.vms:
        vm = draft.topology.vms.get(name)
        if vm is None or vm.host == move.host:
            continue
        number = draft.next_number()
        back = Operation(
            number,
            number,
            Cause.LIVE_MIGRATION,
            Impact.FREEZE,
            Source.PLATFORM,
            routine=True,
            host=vm.host,
            vms=(name,),
            of_vm=True,
            description=traits.description,
            duration_s=traits.duration_s,
            notice_s=draft.policy.notice_s[Impact.FREEZE],
            created_ms=draft.now_ms,
            destination=move.host,
            actor=move.actor,
            maintenance=move.maintenance,
            window=move.window,
        )
        text = f"{back.id}: VM {name} is to return to {move.host} from {vm.host}"
        draft.put("operation.planned", text, back)
        draft.look_at(number)


def returns_to(draft: Draft, maintenance: int, host: str) -> Iterator[Operation]:
    """Yield the unfinished returns of VMs to a host of a maintenance."""
    for each in draft.operations(("destination", host)):
        if each.is_return and each.maintenance == maintenance:
            yield each
