"""Checks the hard constraints for announcing, starting or postponing one host of a wave.

Source: F-3, F-8. The plan met the constraints when it was made; failures and manual work may have
followed. `fleet/usage.py` counts the use of budgets. The planner chooses the new time of a
postponed host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from forewarn_base.protocol.timestamps import iso8601
from forewarn_base.values import replace
from forewarn_core.fleet import transitions
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.durations import host_s, span_s
from forewarn_core.fleet.impact import SECOND_MS, Source
from forewarn_core.fleet.lifecycle import Operation, OperationState, with_execution
from forewarn_core.fleet.maintenance import (
    Announcing,
    Due,
    Maintenance,
    Planning,
    Postponement,
    Working,
    move_phase,
    phase_with,
)
from forewarn_core.fleet.refusals import PostponementRefused, UnknownMaintenance
from forewarn_core.fleet.sites import AnnouncingSite, HostSite, StartingSite, WaveSites
from forewarn_core.fleet.stimulus import PostponeHosts
from forewarn_core.fleet.topology import Health
from forewarn_core.fleet.usage import subjects_of_host
from forewarn_core.fleet.waiting import obstacle, waits_since_ms, work_before
from forewarn_core.planning.eligible import HORIZON_MS
from forewarn_core.planning.plan import Wave
from forewarn_core.planning.policy import Subject, subject_text
from forewarn_core.rules import ANNOUNCING, REQUESTED, STARTING, blockers_of
from forewarn_core.rules.blockers import Blocker
from forewarn_core.rules.budget import BUDGET
from forewarn_core.rules.local_time import Span
from forewarn_core.rules.other_waits import HOST_FAILED, OPERATOR, PLANNING, UNKNOWN_HOST

#: Maximum number of postponements per maintenance.
POSTPONED_MAX = 1000


class Admission:
    """The hard constraints of one maintenance, checked against one draft."""

    def __init__(self, draft: Draft, maintenance: Maintenance) -> None:
        """Check hosts of one maintenance in a draft."""
        self._draft, self._maintenance = draft, maintenance
        self._sites = WaveSites(draft, maintenance)

    def blocker(self, host: str, wave: Wave) -> Blocker | None:
        """Return the first hard constraint that forbids announcing a host. Source: F-3.

        None if all constraints hold.

        Costs the work on the host and in its groups, and the VMs of hosts with budgets.
        """
        draft, now_ms = self._draft, self._draft.now_ms
        record = draft.topology.hosts.get(host)
        if record is None:
            return Blocker(UNKNOWN_HOST, host, now_ms)
        if record.health is Health.FAILED:
            return Blocker(HOST_FAILED, host, now_ms)
        limit = draft.policy.max_operations
        if len(draft.state.operations) >= limit:
            text = f"{limit} operations are live, the limit that [lifecycle] max_operations sets"
            return Blocker(BUDGET, "operations of the service", now_ms, text=text)
        site = AnnouncingSite(self._sites, host, wave)
        first = next(blockers_of(ANNOUNCING, draft.policy_of(self._maintenance), site), None)
        if first is not None:
            return first
        return self._obstacle(host)

    def _obstacle(self, host: str) -> Blocker | None:
        """Return the other work, missing destination or budget that blocks a host."""
        draft, maintenance, now_ms = self._draft, self._maintenance, self._draft.now_ms
        if is_outdated(draft, maintenance, host):
            return Blocker(PLANNING, maintenance.id, now_ms)
        placements = planned_placements(draft, maintenance, host)
        probe = with_execution(_probe(maintenance, host), placements=placements)
        if blocker := obstacle(draft, probe):
            return blocker
        over = announce_shortage(draft, maintenance, host)
        return Blocker(BUDGET, subject_text(over), now_ms) if over else None

    def earliest_start_ms(self, host: str, wave: Wave) -> int | None:
        """Return the earliest start of the work on a host, apart from its approval. Source: L-6.

        In ms since the epoch, UTC; None: any time. See F-3, F-8.
        """
        draft = self._draft
        if wave.earliest_start_ms > draft.now_ms:
            return wave.earliest_start_ms
        site = HostSite(draft, self._maintenance, host)
        times = (each(draft.policy_of(self._maintenance), site) for each in REQUESTED)
        return max(at_ms for requested in times for _, at_ms, _, _ in requested) or None

    def too_late(self, operation: Operation) -> str:
        """Return why due work must no longer start; empty if the work may start.

        The plan holds for the announced start. After a later start, the work may end after its
        window or its deadline.
        """
        draft, maintenance = self._draft, self._maintenance
        end_ms = draft.now_ms + span_s(draft.state, maintenance, operation) * SECOND_MS
        if draft.now_ms <= (operation.requested_start_ms or 0):
            return ""
        if maintenance.deadline_ms and end_ms > maintenance.deadline_ms:
            return "it would end after the deadline"
        if not self._is_open(operation.host, (draft.now_ms, end_ms)):
            return "its window closes before the work would end"
        return ""

    def closed_since(self, operation: Operation) -> str:
        """Return why announced work must be withdrawn because its time is closed; empty if not.

        A newer policy may have closed the time, the clock may have moved to a closed time or beyond
        the deadline, or this machine may not know the time zone of a window. Work may start
        anywhere between its NotBefore and the end of its notice, so the whole span must be open.
        """
        draft = self._draft
        put_back = draft.now_ms < operation.created_ms
        put_ahead = draft.now_ms < operation.announced_ms
        applied = draft.state.applied_policy
        newer = applied is not None and applied.applied_ms >= operation.created_ms
        unreadable = self._unreadable(operation.host)
        if not (newer or put_back or put_ahead or unreadable):
            return ""
        lasts_s = span_s(draft.state, self._maintenance, operation)
        end_ms = operation.not_before_ms + lasts_s * SECOND_MS
        deadline_ms = self._maintenance.deadline_ms
        if put_ahead and deadline_ms is not None and deadline_ms < end_ms:
            return "it would end after the deadline"
        start_ms = max(operation.earliest_start_ms or 0, draft.now_ms)
        if put_ahead and not put_back:
            start_ms = max(start_ms, operation.announced_ms)
        if start_ms < end_ms and not self._is_open(operation.host, (start_ms, end_ms)):
            if unreadable:
                return f"window {unreadable} counts as closed"
            stepped = put_back or put_ahead
            return "the clock was stepped" if stepped else "the new policy closes its time"
        return ""

    def _unreadable(self, host: str) -> str:
        """Return a window of a host whose time zone this machine does not know; empty if none."""
        windows = self._draft.policy_of(self._maintenance).windows
        if all(each.is_readable for each in windows):
            return ""
        words = self._draft.topology.words_on(host)
        return next((e.label for e in windows if e.is_for(words) and not e.is_readable), "")

    def _is_open(self, host: str, span: Span) -> bool:
        """Whether windows and freezes leave the whole of a span open for a host."""
        words = self._draft.topology.words_on(host)
        return self._draft.policy_of(self._maintenance).is_open(words, span)


def _probe(maintenance: Maintenance, host: str) -> Operation:
    """Return the work on a host as an operation, to check its blockers."""
    return Operation(
        number=0,
        request=0,
        cause=maintenance.cause,
        impact=maintenance.impact,
        source=Source.PLATFORM,
        routine=True,
        host=host,
        vms=(),
        of_vm=False,
        description="",
        maintenance=maintenance.number,
    )


def announce_shortage(draft: Draft, maintenance: Maintenance, host: str) -> Subject | None:
    """Return the first limit that announced work exhausts for a host; O(host's VMs)."""
    return _shortage(draft, maintenance, host, running=False)


def start_blockers(draft: Draft, operation: Operation) -> Iterator[Blocker]:
    """Yield what delays the start of announced work, apart from approvals and times. G-1, F-3."""
    before = _missing_driver(draft, operation) or work_before(draft, operation)
    before = before or _rules_before_start(draft, operation) or _plan_before_start(draft, operation)
    if before is not None:
        yield before
    maintenance = draft.maintenances.get(operation.maintenance)
    if maintenance is None or operation.is_return:  # budgets do not limit other work
        return
    # Failures and manual work may have followed the announcement.
    subject = _shortage(draft, maintenance, operation.host, running=True)
    if subject is not None:
        over = Blocker(BUDGET, subject_text(subject), waits_since_ms(operation), wakes=subject)
        yield replace(over, text=over.sentence(operation.host))


def _missing_driver(draft: Draft, operation: Operation) -> Blocker | None:
    """Return the blocker of work whose driver is missing here. Source: L-12.

    The work must not start, because its VMs would be disturbed without it.
    """
    host = draft.host_of(operation)
    reason = draft.missing_driver(host.driver if host else "")
    if not reason:
        return None
    text = f"{operation.target} waits for its driver: {reason}"
    return Blocker(OPERATOR, operation.target, waits_since_ms(operation), text=text)


def _shortage(
    draft: Draft, maintenance: Maintenance, host: str, *, running: bool
) -> Subject | None:
    """Return the first limit that a host's share would exceed; work on its VMs counts already."""
    limits, usage = draft.plan_of(maintenance).limits, draft.state.current_usage()
    wanted = Counter(subjects_of_host(draft.topology, host) if limits else ())
    for vm in draft.topology.vms_on(host) if limits else ():
        wanted.subtract(usage.share_of(("vm", vm))[running])
    counts = usage.running if running else usage.taken
    over = (
        subject
        for subject, amount in wanted.items()
        if subject in limits and counts[subject] + amount > limits[subject]
    )
    return next(over, None)


def _rules_before_start(draft: Draft, operation: Operation) -> Blocker | None:
    """Return what the rules let announced work of a maintenance wait for. See F-3."""
    maintenance = draft.maintenances.get(operation.maintenance)
    if maintenance is None or operation.is_return:
        return None
    site = StartingSite(draft, maintenance, operation)
    for each in blockers_of(STARTING, draft.policy_of(maintenance), site):
        return replace(each, text=each.text or each.sentence(operation.host))
    return None


def _plan_before_start(draft: Draft, operation: Operation) -> Blocker | None:
    """Return the plan that announced work of a maintenance waits for; None: no plan is due.

    After a change of the policy only the new plan has the limits of its budgets. See F-3.
    """
    maintenance = draft.maintenances.get(operation.maintenance)
    if maintenance is None or operation.is_return or not maintenance.plan_wanted:
        return None
    blocker = Blocker(PLANNING, maintenance.id, waits_since_ms(operation))
    return replace(blocker, text=blocker.sentence(operation.host))


def known_maintenance(draft: Draft, number: int) -> Maintenance:
    """Return a live maintenance; raises `UnknownMaintenance` without one."""
    maintenance = draft.maintenances.get(number)
    if maintenance is None:
        raise UnknownMaintenance(name=f"m-{number}")
    return maintenance


def postpone(draft: Draft, word: PostponeHosts) -> tuple[int, ...]:
    """Postpone hosts for their owner within policy and deadline, or refuse. Source: F-8.

    If one host cannot be postponed, no host is; O(hosts of the maintenance).

    Announced work on them is withdrawn and announced again with full notice.

    Raises:
        PostponementRefused: the policy, the deadline or the state of a host forbids it.
        UnknownMaintenance: there is no such live maintenance.
    """
    maintenance = known_maintenance(draft, word.maintenance)
    by_host = {each.host: each for each in maintenance.postponed}
    for host in word.hosts:
        from_ms = (
            by_host[host].from_ms if host in by_host else _first_start_ms(draft, maintenance, host)
        )
        problem = _problem(draft, maintenance, host, from_ms=from_ms, until_ms=word.until_ms)
        if problem:
            raise PostponementRefused(host=host, maintenance=maintenance.id, problem=problem)
        by_host[host] = Postponement(host, word.until_ms, from_ms, word.by, word.reason)
    if len(by_host) > POSTPONED_MAX:
        problem = f"a maintenance can have {POSTPONED_MAX} postponements at most"
        raise PostponementRefused(host=word.hosts[0], maintenance=maintenance.id, problem=problem)
    postponed = replace(maintenance, postponed=tuple(by_host[host] for host in sorted(by_host)))
    until = iso8601(word.until_ms)
    text = f"{', '.join(word.hosts)} of {postponed.id} postponed until {until} for {word.by}"
    text = transitions.with_reason(text, word.reason)
    draft.put("maintenance.postponed", text, postponed)
    for host in word.hosts:
        operation = draft.work_on(postponed.number, host)
        if operation is not None and operation.state is OperationState.ANNOUNCED:
            transitions.cancel(draft, operation, f"postponed for {word.by}")
    plan_remaining_again(draft, postponed, f"{postponed.id} is planned again: hosts were postponed")
    return (word.maintenance,)


def plan_remaining_again(draft: Draft, maintenance: Maintenance, text: str) -> None:
    """Request a new plan for hosts that are not announced, unless one is already due."""
    between = isinstance(maintenance.phase, Planning | Due | Announcing)
    if between and not maintenance.plan_wanted:
        plan_again(draft, maintenance, text)


def plan_without(draft: Draft, removed: frozenset[str]) -> None:
    """Request new plans instead of those that name removed hosts; O(hosts of these plans). F-4."""
    for maintenance in tuple(draft.maintenances.values()) if removed else ():
        named = {name for _, each in draft.plan_of(maintenance).blocked for name in each.names}
        if not removed.isdisjoint((*maintenance.hosts, *named)):
            text = f"{maintenance.id} is planned again: a host has left the fleet"
            plan_remaining_again(draft, maintenance, text)


def plan_again(draft: Draft, maintenance: Maintenance, text: str = "") -> None:
    """Request a new plan; while a wave is active, only its hosts' budgets are planned again."""
    wanted = Planning(reason=maintenance.halt_reason)
    beside = isinstance(maintenance.phase, Working) and maintenance.due_ms is not None
    again = move_phase(maintenance, phase_with(maintenance.phase, wanted) if beside else wanted)
    draft.put("maintenance.replanning", text or f"{again.id} is planned again", again)


def _first_start_ms(draft: Draft, maintenance: Maintenance, host: str) -> int:
    """Return the latest start of a host by the current plan, ms since the epoch UTC."""
    operation = draft.work_on(maintenance.number, host)
    if operation is not None and operation.notice.not_before_ms is not None:
        return operation.not_before_ms
    for wave in draft.plan_of(maintenance).waves:
        if host in wave.hosts:
            return wave.latest_start_ms
    return max(draft.now_ms, maintenance.earliest_ms or 0)


def _problem(
    draft: Draft, maintenance: Maintenance, host: str, *, from_ms: int, until_ms: int
) -> str:
    """Return why a host may not be postponed until a time; empty if it may."""
    if host not in maintenance.hosts:
        return "it is not among its hosts"
    operation = draft.work_on(maintenance.number, host)
    if draft.target(maintenance.number, host) and (
        operation is None or operation.state is not OperationState.ANNOUNCED
    ):
        return "its work has started already"
    if until_ms <= draft.now_ms:
        return f"{iso8601(until_ms)} has passed"
    if maintenance.exemption.emergency:
        return "it is an emergency"
    limit_s = draft.maintenance_policy.postpone_max_s
    if not limit_s:
        return "the policy does not allow postponing"
    latest_ms = from_ms + limit_s * SECOND_MS
    if until_ms > latest_ms:
        return f"the policy allows {iso8601(latest_ms)} at the latest"
    duration_ms = host_s(draft.state, maintenance, host) * SECOND_MS
    if maintenance.deadline_ms and until_ms + duration_ms > maintenance.deadline_ms:
        return f"it would end after the deadline, {iso8601(maintenance.deadline_ms)}"
    end_ms = maintenance.deadline_ms or until_ms + HORIZON_MS
    if not _has_opening(draft, host, (until_ms, end_ms), duration_ms):
        return "no window is open long enough after that time"
    return ""


def _has_opening(draft: Draft, host: str, span: tuple[int, int], duration_ms: int) -> bool:
    """Whether a host has a long enough opening within a span, given windows and freezes."""
    spans = draft.maintenance_policy.open_spans_of(draft.topology.words_on(host), span)
    return any(min(end, span[1]) - max(start, span[0]) >= duration_ms for start, end in spans)


def planned_placements(
    draft: Draft, maintenance: Maintenance, host: str
) -> tuple[tuple[str, str], ...]:
    """Return the destinations of a host's VMs by the plan in force, without VMs that have left."""
    moves = draft.plan_of(maintenance).moves.get(host, ())
    there = set(draft.topology.vms_on(host))
    return tuple((vm, to) for vm, to in moves if to and vm in there)


def is_outdated(draft: Draft, maintenance: Maintenance, host: str) -> bool:
    """Whether a host has a VM that the plan in force does not move away."""
    planned = {vm for vm, _ in draft.plan_of(maintenance).moves.get(host, ())}
    return bool(maintenance.move_s) and not planned.issuperset(draft.topology.vms_on(host))
