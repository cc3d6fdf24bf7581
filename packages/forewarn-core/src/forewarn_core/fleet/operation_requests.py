"""Turns a request for maintenance into operations or a refusal.

Source: N-1, O-2. Reads the draft, never writes it.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping

from forewarn_base.names import TEXT_LENGTH_MAX
from forewarn_base.protocol.timestamps import duration_text, iso8601
from forewarn_base.values import replace
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.impact import (
    DURATION_S_MAX,
    DURATION_UNKNOWN_S,
    SECOND_MS,
    TRAITS,
    Cause,
    Impact,
    Source,
    TargetKind,
)
from forewarn_core.fleet.lifecycle import Operation
from forewarn_core.fleet.refusals import (
    AlreadyAsked,
    NoticeTooShort,
    OperationInvalid,
    TooManyOperations,
    TooManyUserOperations,
    Unknown,
)
from forewarn_core.fleet.stimulus import TARGETS_MAX, RequestMaintenance
from forewarn_core.fleet.topology import Health
from forewarn_core.fleet.transitions import approved_by_policy, least_not_before_ms

#: Latest NotBefore, in seconds from now: a year.
AHEAD_S_MAX = 366 * 24 * 3600


def plan(draft: Draft, ask: RequestMaintenance) -> list[Operation]:
    """Return one planned, numbered operation per target, in the order of the request.

    Raises:
        Unknown: a target or destination does not exist.
        OperationInvalid: the request contradicts itself or its target.
        NoticeTooShort: the requested start is before the required notice ends. See N-1.
        AlreadyAsked: the same work is already under way on a target.
        TooManyOperations: the service's limit is reached.
        TooManyUserOperations: the owner's limit is reached. See O-1.
    """
    if ask.cause is Cause.HARDWARE_FAILURE and ask.destination:  # the VMs restart elsewhere (L-4)
        ask = dataclasses.replace(ask, cause=Cause.HOST_LOST)
    _check_form(draft, ask)
    count, limit = len(draft.state.operations), draft.policy.max_operations
    if count + len(ask.targets) > limit and not TRAITS[ask.cause].fault:  # no limit for failures
        raise TooManyOperations(count=count, asked=len(ask.targets), limit=limit)
    request = draft.state.last_number + 1
    operations = []
    for target in ask.targets:
        operation = _operation(draft, ask, target, request=request, number=draft.next_number())
        check_target(draft, operation, target, queue=ask.queue)
        operations.append(operation)
    _check_limit(draft, operations)
    assert len({operation.number for operation in operations}) == len(ask.targets)
    return operations


def _check_form(draft: Draft, ask: RequestMaintenance) -> None:
    traits = TRAITS[ask.cause]
    problem = ""
    if not ask.targets or len(ask.targets) > TARGETS_MAX:
        problem = f"it names {len(ask.targets)} targets; name 1 to {TARGETS_MAX}"
    elif len(set(ask.targets)) != len(ask.targets):
        problem = "it names a target twice"
    elif ask.impact not in {None, traits.impact, *traits.also}:
        problem = f"its impact cannot be {ask.impact.value if ask.impact else ''}"
    elif ask.duration_s is not None and not DURATION_UNKNOWN_S <= ask.duration_s <= DURATION_S_MAX:
        most = duration_text(DURATION_S_MAX)
        problem = (
            f"its duration is {ask.duration_s} seconds; give at most {most}, or -1 for unknown"
        )
    elif ask.description is not None and (
        len(ask.description) > TEXT_LENGTH_MAX or not ask.description.isprintable()
    ):
        problem = f"its description is longer than {TEXT_LENGTH_MAX} characters or not printable"
    elif ask.not_before_ms and ask.not_before_ms > draft.now_ms + AHEAD_S_MAX * SECOND_MS:
        problem = "its NotBefore is more than a year ahead"
    elif ask.not_before_ms and traits.fault:
        problem = "a failure has no NotBefore"
    if problem:
        raise OperationInvalid(
            cause=ask.cause.value, target=", ".join(ask.targets[:3]), problem=problem
        )
    if ask.destination and ask.destination not in draft.topology.hosts:
        raise Unknown(kind="host", name=ask.destination)


def _operation(
    draft: Draft, ask: RequestMaintenance, target: str, *, request: int, number: int
) -> Operation:
    traits = TRAITS[ask.cause]
    of_vm = traits.target is TargetKind.VM
    targets: Mapping[str, object] = draft.topology.vms if of_vm else draft.topology.hosts
    if target not in targets:
        raise Unknown(kind=traits.target.value, name=target)
    impact = ask.impact or traits.impact
    text, duration_s = traits.shown(impact)
    start_ms = ask.not_before_ms
    if start_ms is not None:
        start_ms = -(-start_ms // SECOND_MS) * SECOND_MS
    operation = Operation(
        number=number,
        request=request,
        cause=ask.cause,
        impact=impact,
        source=ask.source or traits.source,
        routine=traits.routine and (ask.source or traits.source) is Source.PLATFORM,
        host=draft.topology.vms[target].host if of_vm else target,
        vms=(target,) if of_vm else draft.topology.vms_on(target),
        of_vm=of_vm,
        description=text if ask.description is None else ask.description,
        duration_s=duration_s if ask.duration_s is None else ask.duration_s,
        requested_start_ms=start_ms,
        created_ms=draft.now_ms,
        destination=ask.destination,
        actor=draft.actor,
        unconfirmed_by=draft.unconfirmed_by,
    )
    return _with_notice(draft, operation)


def _with_notice(draft: Draft, operation: Operation) -> Operation:
    """Return the operation with its required notice, or without notice. See N-1, O-2."""
    if TRAITS[operation.cause].fault:
        return operation
    notice_s = draft.policy.notice_s[operation.impact]
    if not operation.of_vm:
        return replace(operation, notice_s=notice_s)
    vm = draft.topology.vms[operation.vms[0]]
    group = draft.topology.groups[vm.group]
    if operation.impact is Impact.TERMINATE:
        if not group.terminate_notice_s:
            return replace(operation, silent=True)
        notice_s = max(group.terminate_notice_s, notice_s)
    unasked = not (group.reimage_notice and vm.reimage_announceable)
    if operation.cause is Cause.REIMAGE and unasked:
        return replace(operation, silent=True)
    return replace(operation, notice_s=notice_s)


def check_target(draft: Draft, operation: Operation, target: str, *, queue: bool) -> None:
    """Refuse work that its target does not allow; raises as `plan`.

    Costs the work on the target.
    """
    host = draft.topology.hosts[operation.host]
    cause = operation.cause.value
    fault = TRAITS[operation.cause].fault
    for other in draft.operations(("vm" if operation.of_vm else "host", target)):
        if other.of_vm == operation.of_vm:
            again = other.cause is operation.cause and not (queue and operation.routine)
            # A failed host may later be found lost, so the request is allowed; `transitions` ends
            # the failure.
            lost = operation.cause is Cause.HOST_LOST
            both_faults = fault and TRAITS[other.cause].fault and not lost
            if again or both_faults:
                raise AlreadyAsked(cause=other.cause.value, target=target, operation=other.id)
    problem = _problem_of_destination(draft, operation)
    if not operation.of_vm and host.health is Health.FAILED and not fault:
        problem = f"host {host.name} has failed; repair it first"
    elif operation.cause is Cause.EVICTION and not draft.topology.vms[target].spot:
        problem = f"VM {target} is not a Spot VM"
    if problem:
        raise OperationInvalid(cause=cause, target=target, problem=problem)
    owed_ms = draft.now_ms + operation.notice_s * SECOND_MS
    if (
        operation.requested_start_ms
        and not operation.silent
        and operation.requested_start_ms < owed_ms
    ):
        earliest = least_not_before_ms(draft, replace(operation, requested_start_ms=1))
        raise NoticeTooShort(
            cause=cause,
            target=target,
            asked=iso8601(operation.requested_start_ms),
            notice=duration_text(operation.notice_s),
            earliest=iso8601(earliest),
        )


def _problem_of_destination(draft: Draft, operation: Operation) -> str:
    destination = operation.destination
    if not destination:
        return ""
    if not TRAITS[operation.cause].moves:
        return "it moves no VM, so it can have no destination"
    if destination == operation.host and not operation.of_vm:
        return "its destination is the host itself"
    if draft.topology.hosts[destination].health is Health.FAILED:
        return f"host {destination} has failed; nothing can be moved there"
    return ""


def _check_limit(draft: Draft, operations: list[Operation]) -> None:
    """Refuse scheduled user-initiated work beyond an owner's limit. Source: O-1.

    Costs the scheduled operations of the requesting owners. Work that needs no approval starts at
    once, so it does not count. See B-3, A-10.
    """
    limit = draft.policy.max_user_operations
    wanted = Counter(_owners_of(draft, operations) if limit else ())
    for owner, count in wanted.items():
        before = Counter(_owners_of(draft, draft.operations(("owner", owner))))[owner]
        if before + count > limit:
            raise TooManyUserOperations(
                owner=owner or "(none)", count=before, asked=count, limit=limit
            )


def _owners_of(draft: Draft, operations: list[Operation]) -> Iterator[str]:
    """Yield the owners whose limits count the operations."""
    for operation in operations:
        if operation.source is not Source.USER or operation.silent or not operation.of_vm:
            continue
        vm = draft.topology.vms.get(operation.vms[0])
        if vm is None or not draft.enabled(vm.group):
            continue
        if operation.requested_start_ms or not approved_by_policy(draft, operation, vm.group):
            yield draft.topology.groups[vm.group].owner
