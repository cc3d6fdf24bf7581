"""Turns a request for maintenance into operations, a refusal, or a blocker.

Source: N-1, O-2, G-1. Reads the draft, never writes it.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING

from forewarn.core.impact import (
    DURATION_S_MAX,
    DURATION_UNKNOWN_S,
    SECOND_MS,
    TRAITS,
    Cause,
    Impact,
    Source,
    TargetKind,
)
from forewarn.core.indexes import disturbed_groups, is_disturbing
from forewarn.core.lifecycle import Operation, OperationState
from forewarn.core.naming import TEXT_LENGTH_MAX
from forewarn.core.refusals import (
    AlreadyAsked,
    NoticeTooShort,
    OperationInvalid,
    TooManyOperations,
    TooManyUserOperations,
    Unknown,
)
from forewarn.core.returns import return_blocker
from forewarn.core.stimulus import TARGETS_MAX
from forewarn.core.topology import Health
from forewarn.core.transitions import approved_by_policy, least_not_before_ms
from forewarn.planning.blockers import Blocker, Code
from forewarn.planning.policy import subject_text
from forewarn.protocol.timestamps import iso8601
from forewarn.values import replace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from forewarn.core.draft import Draft
    from forewarn.core.indexes import Place
    from forewarn.core.stimulus import RequestMaintenance
    from forewarn.planning.policy import Subject

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
        problem = f"its duration is {ask.duration_s} s; give -1 to {DURATION_S_MAX}"
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
    known: Mapping[str, object] = draft.topology.vms if of_vm else draft.topology.hosts
    if target not in known:
        raise Unknown(kind=traits.target.value, name=target)
    impact = ask.impact or traits.impact
    text, duration_s = traits.shown(impact)
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
        requested_start_ms=_whole_second(ask.not_before_ms),
        created_ms=draft.now_ms,
        destination=ask.destination,
        actor=draft.actor,
    )
    return _with_notice(draft, operation)


def _whole_second(at_ms: int | None) -> int | None:
    return None if at_ms is None else -(-at_ms // SECOND_MS) * SECOND_MS


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
        problem = f"vm {target} is not a Spot VM"
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
            notice_s=operation.notice_s,
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


def _check_limit(draft: Draft, asked: list[Operation]) -> None:
    """Refuse scheduled user-initiated work beyond an owner's limit. Source: O-1.

    Costs the scheduled operations of the requesting owners. Work that needs no approval starts at
    once, so it does not count. See B-3, A-10.
    """
    wanted = Counter(_owners_of(draft, asked))
    limit = draft.policy.max_user_operations
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


def work_before(draft: Draft, operation: Operation) -> Blocker | None:
    """Return the other work that an operation must wait for, as a blocker; None: no wait. See G-1.

    Costs the work on the same VM, host, destination and groups.
    """
    blocker = return_blocker(draft, operation) if operation.is_return else None
    if blocker is None:
        blocker = _work_at_its_places(draft, operation)
    if blocker is None and operation.routine:
        blocker = _other_fault_domain_disturbed(draft, operation)
    return blocker


def _work_at_its_places(draft: Draft, operation: Operation) -> Blocker | None:
    """Return work that occupies the operation's VM or host. See G-1.

    Work on a VM waits for other work on the VM. Work on a host waits for other work there and for
    VMs on their way to the host. A move waits for work on its destination, so that no VM arrives
    during a disturbance.
    """
    places: list[Place] = []
    if operation.of_vm:
        places.append(("vm", operation.target))
    else:
        places += [("host", operation.host), ("destination", operation.host)]
    places += [("host", host) for host in operation.destinations]
    for place in places:
        other = next(_under_way(draft, operation, place), None)
        if other is not None:
            code = Code.VM_BUSY if place[0] == "vm" else Code.HOST_BUSY
            return _blocked_by(other, operation, code, _busy(other, place))
    return None


def _other_fault_domain_disturbed(draft: Draft, operation: Operation) -> Blocker | None:
    """Keep routine work to one fault domain of a group at a time. Source: G-1.

    Routine work is announced only if no other domain of its groups has announced or running work.
    Once announced, routine work waits for running work in other domains.
    """
    domain = fault_domain_of(draft, operation)
    for group in disturbed_groups(draft.topology, operation):
        for other in _under_way(draft, operation, ("group", group)):
            elsewhere = fault_domain_of(draft, other)
            if elsewhere != domain:
                text = f"group {group} is disturbed in fault domain {elsewhere[1]} by {other.id}"
                return _blocked_by(other, operation, Code.FAULT_DOMAIN, text)
    return None


def _blocked_by(other: Operation, operation: Operation, code: Code, text: str) -> Blocker:
    return Blocker(code, other.id, waits_since_ms(operation), text=text, operation=other.number)


def waits_since_ms(operation: Operation) -> int:
    """Return when an operation began to wait for its next move, ms since the epoch UTC."""
    return operation.execution.started_ms or operation.notice.announced_ms or operation.created_ms


def _busy(other: Operation, place: Place) -> str:
    """Return a clause that names the work at a place and its effect there."""
    kind, name = place
    if kind == "destination":
        return f"{other.id} is moving VMs to host {name}"
    state = "running" if other.state is OperationState.RUNNING else "announced"
    return f"{other.id} is already {state} on {kind} {name}"


def _under_way(draft: Draft, operation: Operation, place: Place) -> Iterator[Operation]:
    """Yield the operations at a place that may block an operation.

    Work on the VM's host is also listed under the VM; only the place of the host yields it.
    """
    planned = operation.state is OperationState.PLANNED
    for other in draft.operations_at(place):
        if place[0] == "vm" and not other.of_vm:
            continue
        running = other.state is OperationState.RUNNING
        if (running or (planned and is_disturbing(other))) and other.number != operation.number:
            yield other


def fault_domain_of(draft: Draft, operation: Operation) -> tuple[str, int]:
    """Return the fault domain that an operation disturbs."""
    topology = draft.topology
    vm = topology.vms.get(operation.vms[0]) if operation.of_vm else None
    host = topology.hosts.get(vm.host if vm is not None else operation.host)
    return host.fault_zone if host is not None else ("", 0)


def no_room(operation: Operation, subject: Subject | None) -> Blocker | None:
    """Return the budget that delays the start of announced work; None if none does. F-3."""
    if subject is None:
        return None
    blocker = Blocker(Code.BUDGET, subject_text(subject), waits_since_ms(operation))
    return replace(blocker, text=blocker.sentence(operation.host))
