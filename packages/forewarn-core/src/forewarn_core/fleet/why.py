"""Describes all blockers of a live operation for people, with their end times.

`waiting.py`, `host_admission.py` and the planner decide whether work is blocked.
"""

from __future__ import annotations

from forewarn_base.protocol.timestamps import iso8601
from forewarn_base.values import replace
from forewarn_core.fleet.approvals import (
    events_to_approve,
    is_unasked,
    unapproving,
    unasked_start_ms,
    undecided_siblings,
)
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.durations import learned_duration, least_host_s
from forewarn_core.fleet.hand_back import deferral_of, owners_on
from forewarn_core.fleet.host_admission import Admission, start_blockers
from forewarn_core.fleet.impact import SECOND_MS
from forewarn_core.fleet.lifecycle import Alert, Operation, OperationState, progress_text
from forewarn_core.fleet.maintenance import Checking, Maintenance, MaintenanceState, Planning
from forewarn_core.fleet.sites import HostSite
from forewarn_core.fleet.topology import Health
from forewarn_core.fleet.waiting import unseen_blocker, unseen_note, waits_since_ms, work_before
from forewarn_core.planning.durations import duration_text
from forewarn_core.planning.plan import Wave
from forewarn_core.rules import blockers_of, hand_back, postponement, test_first
from forewarn_core.rules.blockers import Blocker
from forewarn_core.rules.hand_back import HAND_BACK
from forewarn_core.rules.other_waits import (
    APPROVAL,
    COUPLED,
    DEADLINE,
    DRIVER,
    GATE,
    HOST_FAILED,
    OPERATOR,
    PLANNING,
    TIME,
    UNKNOWN_HOST,
)
from forewarn_core.rules.previous_wave import PREVIOUS_WAVE
from forewarn_core.rules.window import WINDOW, WINDOW_TOO_SHORT

#: Rules about later starts that people asked for.
_REQUESTED = (postponement.blockers, hand_back.blockers, test_first.blockers)
#: Blockers that depend on how long the work takes.
_BY_LENGTH = frozenset({WINDOW, WINDOW_TOO_SHORT, DEADLINE})


def why(draft: Draft, operation: Operation) -> tuple[Blocker, ...]:
    """Return the blockers of an operation; a waiting operation has at least one. Source: F-4.

    The first blocker comes first; empty after the operation's end.
    """
    return tuple(_by_clock(draft, each) for each in _of_operation(draft, operation))


def _by_clock(draft: Draft, blocker: Blocker) -> Blocker:
    """Return a blocker that starts now at the latest: the clock may have been set back. N-4."""
    return replace(blocker, since_ms=min(blocker.since_ms, draft.now_ms))


def _of_operation(draft: Draft, operation: Operation) -> tuple[Blocker, ...]:
    if operation.state is OperationState.PLANNED:
        blocked = work_before(draft, operation)
        return (blocked,) if blocked else ()
    if unseen := unseen_blocker(draft, operation):
        return (unseen, *_why_announced(draft, operation))
    blockers: tuple[Blocker, ...] = ()
    if operation.state is OperationState.ANNOUNCED:
        blockers = _why_announced(draft, operation)
    elif operation.state is OperationState.RUNNING:
        blockers = _why_running(operation, draft.driver_waits(operation.number), draft.now_ms)
    note = unseen_note(operation)
    return (*blockers, note) if note else blockers


def _why_announced(draft: Draft, operation: Operation) -> tuple[Blocker, ...]:
    blockers: list[Blocker] = []
    since_ms, due_ms = waits_since_ms(operation), operation.not_before_ms
    due = bool(operation.notice.shown_ms) and due_ms <= draft.now_ms
    for event in events_to_approve(draft, operation) if not due else ():
        text = f"group {event.group} has not approved event {event.id}"
        if draft.topology.groups[event.group].strict_approval:
            text += f" (missing: {', '.join(unapproving(event))})"
        blockers.append(Blocker(APPROVAL, event.group, since_ms, due_ms, text))
    siblings = undecided_siblings(draft, operation)
    if siblings and not blockers and not due:
        names = ", ".join(sibling.id for sibling in siblings)
        text = f"the same request's {names} is not approved"
        blockers.append(Blocker(COUPLED, names, since_ms, due_ms, text))
    blockers += start_blockers(draft, operation)
    if blockers:
        return tuple(blockers)
    earliest_ms = operation.earliest_start_ms or 0
    if not due and is_unasked(draft, operation):
        earliest_ms = unasked_start_ms(operation)
    if earliest_ms > draft.now_ms and earliest_ms != due_ms:
        at_ms, text = earliest_ms, "its earliest start is not reached"
    else:
        at_ms, text = due_ms, "its NotBefore is not reached"
    return (Blocker(TIME, operation.id, since_ms, at_ms, text),)


def _why_running(operation: Operation, driver: str, now_ms: int) -> tuple[Blocker, ...]:
    """Return the blocker of running work: an operator's decision, or its driver. See L-8."""
    since_ms = waits_since_ms(operation)
    gate = operation.execution.validation
    if operation.alert is Alert.STUCK:
        failed = operation.reason if gate else f"the driver failed: {operation.reason}"
        text = f"{failed}; retry, complete or fail it"
        return (Blocker(OPERATOR, operation.target, since_ms, text=text),)
    late = "; it takes longer than it should" if operation.alert is Alert.OVERDUE else ""
    if driver:
        return (Blocker(OPERATOR, operation.target, since_ms, text=f"{driver}{late}"),)
    if gate:
        text = f"its work is done; gate {gate} validates {operation.target}{late}"
        return (Blocker(GATE, gate, since_ms, text=text),)
    does = "works" if operation.execution.begun_ms else "has not begun to work"
    progress = progress_text(operation)
    text = f"the driver {does} on {operation.target}{progress and ': '}{progress}{late}"
    assert operation.execution.started_ms is not None, operation
    due_ms = operation.execution.started_ms + operation.duration_s * SECOND_MS
    clears_ms = due_ms if due_ms > now_ms else 0
    return (Blocker(DRIVER, operation.target, since_ms, clears_ms, text),)


def why_maintenance(draft: Draft, maintenance: Maintenance) -> Blocker | None:
    """Return the first blocker of a maintenance; None after its end. Costs its working hosts."""
    blocker = _of_maintenance(draft, maintenance)
    return _by_clock(draft, blocker) if blocker else None


def _of_maintenance(draft: Draft, maintenance: Maintenance) -> Blocker | None:
    if not maintenance.live:
        return None
    halted = _why_halted(draft, maintenance)
    if halted is not None:
        return halted
    phase = maintenance.phase
    if isinstance(phase, Checking):
        return Blocker(GATE, phase.gate, maintenance.moved_ms)
    if maintenance.plan_wanted:
        return _planning(maintenance)
    working = draft.progress(maintenance.number).worked_on
    if working:
        number = min(target.operation for target in working)
        operation = draft.operation(number)
        return blocker_of(draft, operation) if operation else None
    if maintenance.halt_reason:
        return _planning(maintenance)
    waves = draft.plan_of(maintenance).waves
    if isinstance(phase, Planning) or not waves:
        return _why_planned_again(draft, maintenance)
    return _of_wave(waves[0])


def _why_planned_again(draft: Draft, maintenance: Maintenance) -> Blocker:
    """Return the blocker of a maintenance between plans; costs a wave's hosts."""
    body = draft.plan_of(maintenance)
    first = next((each for each in body.blocked if not _is_repaired(draft, *each)), None)
    if first is not None:
        return _of_host(*first)
    if not body.waves:
        return _planning(maintenance)
    wave = body.waves[0]
    refused = _blocker_of_due_wave(draft, maintenance, wave)
    if refused is not None:
        return refused
    return _of_wave(wave) if wave.shown_ms > draft.now_ms else _planning(maintenance)


def why_wave(draft: Draft, maintenance: Maintenance, number: int) -> Blocker | None:
    """Return the first blocker of a wave; None if it is over, or not part of the plan.

    While another wave is at work, the blocker is the reason that ends last: that wave, or, for
    instance, the wave's window. Costs the hosts of the plan.
    """
    waves = draft.plan_of(maintenance).waves
    wave = next((each for each in waves if each.number == number), None)
    if wave is None or not maintenance.live:
        return None
    touched, at_work = draft.progress(maintenance.number).targets, maintenance.wave
    following = next((each for each in waves if not touched.keys() >= set(each.hosts)), None)
    if number == at_work or (at_work is None and wave is following):
        return why_maintenance(draft, maintenance)
    halted = _why_halted(draft, maintenance)
    early = wave is following and wave.waits.code.meaning.ends_with_wave
    if halted is None and at_work is not None and (early or wave.shown_ms <= draft.now_ms):
        before = Blocker(PREVIOUS_WAVE, f"wave {at_work}", wave.waits.since_ms)
        clears_ms = wave.shown_ms if wave.shown_ms > draft.now_ms else 0
        before = replace(before, clears_ms=clears_ms, text=before.sentence(str(number), "wave"))
        return _by_clock(draft, before)
    return _by_clock(draft, halted or _of_wave(wave))


def why_host(draft: Draft, maintenance: Maintenance, host: str) -> Blocker | None:
    """Return the first blocker of a maintenance's host; None if it is done. Costs the hosts."""
    blocker = _of_maintenance_host(draft, maintenance, host)
    return _by_clock(draft, blocker) if blocker else None


def _of_maintenance_host(draft: Draft, maintenance: Maintenance, host: str) -> Blocker | None:
    if not maintenance.live:
        return None
    target = draft.target(maintenance.number, host)
    if target is not None:
        operation = draft.operation(target.operation)
        return blocker_of(draft, operation) if operation is not None else None
    first = _why_halted(draft, maintenance) or _why_later(draft, maintenance, host)
    if first is not None:
        return first
    record = draft.topology.hosts.get(host)
    if record is None or record.health is Health.FAILED:
        code = HOST_FAILED if record else UNKNOWN_HOST
        return _of_host(host, Blocker(code, host, maintenance.moved_ms))
    plan = draft.plans.get(maintenance.plan)
    if plan is None:
        return why_maintenance(draft, maintenance)
    blocked = dict(plan.body.blocked)
    if host in blocked and not _is_repaired(draft, host, blocked[host]):
        blocker = _of_host(host, blocked[host])
        return _with_duration(draft, maintenance, host, blocker)
    for wave in plan.waves:
        if host in wave.hosts:
            waits = why_wave(draft, maintenance, wave.number)
            return _with_duration(draft, maintenance, host, waits) if waits else None
    return Blocker(PLANNING, maintenance.id, maintenance.moved_ms)


def _with_duration(draft: Draft, maintenance: Maintenance, host: str, blocker: Blocker) -> Blocker:
    """Return the blocker of a host; if the length of its work matters, with its reason. F-9."""
    duration = learned_duration(draft.state, maintenance, host)
    if duration is None or blocker.code not in _BY_LENGTH:
        return blocker
    text = f"{blocker.text}; its work {duration_text(duration, maintenance.duration_s)}"
    return replace(blocker, text=text)


def _is_repaired(draft: Draft, host: str, blocker: Blocker) -> bool:
    """Whether a host that had failed at the time of planning can be planned again."""
    record = draft.topology.hosts.get(host)
    failed = record is None or record.health is Health.FAILED
    return blocker.code is HOST_FAILED and not failed


def blocker_of(draft: Draft, operation: Operation) -> Blocker | None:
    """Return the first blocker of an operation; None after its end."""
    for each in why(draft, operation):
        return replace(each, text=f"{operation.id} of {operation.target}: {each.text}")
    return None


def why_impossible(draft: Draft, maintenance: Maintenance) -> Blocker | None:
    """Return why a host of a draft cannot be done by its plan; None if no such host is known."""
    owed_s = draft.policy.notice_s[maintenance.shown_impact]
    owed_s += least_host_s(draft.state, maintenance)
    deadline_ms = maintenance.deadline_ms
    if deadline_ms is not None and deadline_ms < draft.now_ms + owed_s * SECOND_MS:
        late = Blocker(DEADLINE, "its notice", maintenance.moved_ms)
        return _of_host(maintenance.hosts[0], late)
    blocked = draft.plan_of(maintenance).blocked if not maintenance.plan_wanted else ()
    for host, blocker in blocked:
        if blocker.code.meaning.prevents_start:
            return _with_duration(draft, maintenance, host, _of_host(host, blocker))
    return None


def _why_halted(draft: Draft, maintenance: Maintenance) -> Blocker | None:
    """Return the blocker of a maintenance that an operator must resume; None if it runs."""
    if maintenance.running:
        return None
    if maintenance.state is MaintenanceState.DRAFT:
        impossible = why_impossible(draft, maintenance)
        if impossible is not None:
            return impossible
    subject = {
        MaintenanceState.DRAFT: f"start {maintenance.id}",
        MaintenanceState.PAUSED: f"resume {maintenance.id}, which is paused",
    }.get(maintenance.state, f"look at {maintenance.id}, which is stopped, and resume it")
    if maintenance.halt_reason:
        subject += f" ({maintenance.halt_reason})"
    return Blocker(OPERATOR, subject, maintenance.moved_ms)


def _planning(maintenance: Maintenance) -> Blocker:
    """Return the blocker of a maintenance that waits for planning, with the last failure."""
    text = f"no plan of {maintenance.id} could be made: {maintenance.halt_reason}"
    return Blocker(
        PLANNING,
        maintenance.id,
        maintenance.moved_ms,
        maintenance.due_ms or 0,
        text=text if maintenance.halt_reason else "",
    )


def _why_later(draft: Draft, maintenance: Maintenance, host: str) -> Blocker | None:
    """Return the later start that people asked for; None: there is none."""
    site = HostSite(draft, maintenance, host)
    site.since_ms = maintenance.moved_ms
    waits = blockers_of(_REQUESTED, draft.policy_of(maintenance), site)
    blocker = next((_of_host(host, each) for each in waits), None)
    if blocker is None or blocker.code is not HAND_BACK:
        return blocker
    return replace(blocker, text=blocker.text + _deferrals(draft, maintenance, host))


def _deferrals(draft: Draft, maintenance: Maintenance, host: str) -> str:
    """Return clauses about the requests for a later deadline of a host. Source: T-4."""
    clauses = []
    for owner in owners_on(draft.state, host):
        each = deferral_of(draft.state, maintenance.number, host, owner=owner)
        if each is not None:
            whose = f"owner {owner}" if owner else "the operator"
            clause = f"; {whose} asked for {iso8601(each.until_ms)}: {each.state.value}"
            clauses.append(f"{clause}, {each.answer}" if each.answer else clause)
    return "".join(clauses)


def _of_host(host: str, blocker: Blocker) -> Blocker:
    """Return a host's blocker as the blocker of its maintenance."""
    return replace(blocker, text=blocker.sentence(host))


def _blocker_of_due_wave(draft: Draft, maintenance: Maintenance, wave: Wave) -> Blocker | None:
    """Return the blocker of a due wave; O(its hosts)."""
    admission = Admission(draft, maintenance)
    for host in wave.hosts:
        blocker = admission.blocker(host, wave)
        if blocker is None or blocker.code.meaning.renewed:
            continue
        if blocker.code is PLANNING:  # VMs have arrived since; the next plan moves them
            return _planning(maintenance)
        return _of_host(host, blocker)
    return None


def _of_wave(wave: Wave) -> Blocker:
    """Return the blocker of a wave that clears when the wave is announced."""
    waits = wave.waits
    return replace(waits, clears_ms=wave.shown_ms, text=waits.sentence(str(wave.number), "wave"))
