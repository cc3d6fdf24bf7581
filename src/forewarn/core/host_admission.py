"""Checks the hard constraints for announcing, starting or postponing one host of a wave.

Source: F-3, F-8. The plan met the constraints when it was made; failures and manual work may have
followed. `core/usage.py` counts the use of budgets. The planner chooses the new time of a postponed
host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property

from forewarn.core import transitions
from forewarn.core.draft import Draft
from forewarn.core.impact import SECOND_MS, Source
from forewarn.core.indexes import is_disturbing
from forewarn.core.lifecycle import Operation, OperationState, with_execution
from forewarn.core.maintenance import (
    Announcing,
    Due,
    Maintenance,
    Planning,
    Postponement,
    Working,
    move_phase,
    phase_with,
)
from forewarn.core.refusals import PostponementRefused, UnknownMaintenance
from forewarn.core.stimulus import PostponeHosts
from forewarn.core.topology import Health
from forewarn.core.usage import disturbed_owners, owners_of, subjects_of_host
from forewarn.core.waiting import lack_of_room, waits_since_ms, work_before
from forewarn.planning.eligible import HORIZON_MS
from forewarn.planning.plan import Wave
from forewarn.planning.policy import Scope, Subject, subject_text
from forewarn.protocol.timestamps import iso8601
from forewarn.rules.blockers import Blocker, Code
from forewarn.rules.local_time import Span
from forewarn.values import replace

#: Maximum number of postponements per maintenance.
POSTPONED_MAX = 1000


class Admission:
    """The hard constraints of one maintenance, checked against one draft."""

    def __init__(self, draft: Draft, maintenance: Maintenance) -> None:
        """Check hosts of one maintenance in a draft."""
        self._draft, self._maintenance = draft, maintenance

    def blocker(self, host: str, wave: Wave) -> Blocker | None:
        """Return the first hard constraint that forbids announcing a host. Source: F-3.

        None if all constraints hold.

        Costs the work on the host and in its groups, and the VMs of hosts with budgets.
        """
        draft, maintenance = self._draft, self._maintenance
        now_ms = draft.now_ms
        known = draft.topology.hosts.get(host)
        if known is None:
            return Blocker(Code.UNKNOWN_HOST, host, now_ms)
        if known.health is Health.FAILED:
            return Blocker(Code.HOST_FAILED, host, now_ms)
        limit = draft.policy.max_operations
        if len(draft.state.operations) >= limit:
            text = f"{limit} operations are live, the limit that [lifecycle] max_operations sets"
            return Blocker(Code.BUDGET, "operations of the service", now_ms, text=text)
        least_s = draft.policy.notice_s[maintenance.shown_impact]
        notice_s = max(least_s, draft.maintenance_policy.notice_s)
        if now_ms + notice_s * SECOND_MS + draft.policy.notice_margin_ms > wave.latest_start_ms:
            return Blocker(Code.NOTICE, f"wave {wave.number}", now_ms)
        for each in maintenance.postponed:
            if each.host == host and each.until_ms > wave.earliest_start_ms:
                return Blocker(Code.POSTPONED, each.by, now_ms, each.until_ms)
        resting = self._resting(host, wave)
        if resting is not None:
            return resting
        return self._obstacle(host)

    def _obstacle(self, host: str) -> Blocker | None:
        """Return the other work, missing destination or budget that blocks a host."""
        draft, maintenance, now_ms = self._draft, self._maintenance, self._draft.now_ms
        if is_outdated(draft, maintenance, host):
            return Blocker(Code.PLANNING, maintenance.id, now_ms)
        placements = planned_placements(draft, maintenance, host)
        probe = with_execution(_probe(maintenance, host), placements=placements)
        before = work_before(draft, probe)
        if before is not None:
            return Blocker(before.code, before.subject, now_ms)
        lack = lack_of_room(draft, probe)
        if lack is not None:
            return lack
        over = announce_shortage(draft, maintenance, host)
        return Blocker(Code.BUDGET, subject_text(over), now_ms) if over else None

    def _resting(self, host: str, wave: Wave) -> Blocker | None:
        """Return a blocker if work disturbs an owner or did so recently; None otherwise.

        The hosts of one wave disturb an owner once, so only the first host must wait. The end of
        other work is uncertain, so no host is announced before that end.
        """
        draft = self._draft
        start_ms = max(wave.earliest_start_ms, draft.now_ms)
        for owner, until_ms in {} if self._wave_begun else _rest_ends_ms(draft, host).items():
            if owner in self._disturbed_owners:
                return Blocker(Code.OWNER_REST, owner, draft.now_ms)
            if start_ms < until_ms:
                return Blocker(Code.OWNER_REST, owner, draft.now_ms, until_ms)
        return None

    @cached_property
    def _disturbed_owners(self) -> frozenset[str]:
        """Return the owners disturbed by a failed host or by work announced before this check.

        Costs that work and the VMs on its hosts.
        """
        draft, topology = self._draft, self._draft.topology
        hosts = draft.state.current_usage().hosts
        owners = owners_of(topology, [vm for host in hosts for vm in topology.vms_on(host)])
        states = (OperationState.ANNOUNCED, OperationState.RUNNING)
        work = draft.operations(*(("state", each.value) for each in states))
        return owners.union(*(disturbed_owners(e, topology) for e in work if is_disturbing(e)))

    def earliest_start_ms(self, host: str, wave: Wave) -> int | None:
        """Return the earliest start of the work on a host, apart from its approval. Source: L-6.

        In ms since the epoch, UTC; None: any time.

        Requested times and the pause stay in force after they pass, because the clock may be set
        back. F-3, F-8, N-4.
        """
        maintenance = self._maintenance
        if wave.earliest_start_ms > self._draft.now_ms:
            return wave.earliest_start_ms
        limits_ms = [each.until_ms for each in maintenance.postponed if each.host == host]
        limits_ms += filter(None, (maintenance.earliest_ms, maintenance.rests_until_ms))
        return max(limits_ms, default=None) or None

    @cached_property
    def _wave_begun(self) -> bool:
        """Whether hosts of the wave were announced before this step; O(touched hosts)."""
        maintenance = self._maintenance
        return self._draft.progress(maintenance.number).has_begun(maintenance.wave)

    def too_late(self, operation: Operation) -> str:
        """Return why due work must no longer start; empty if the work may start.

        The plan holds for the announced start. After a later start, the work may end after its
        window or its deadline.
        """
        draft, maintenance = self._draft, self._maintenance
        end_ms = draft.now_ms + maintenance.span_s(operation) * SECOND_MS
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
        span_s = self._maintenance.span_s(operation)
        end_ms = operation.not_before_ms + span_s * SECOND_MS
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
        windows = self._draft.maintenance_policy.windows
        if all(each.is_readable for each in windows):
            return ""
        words = self._draft.topology.words_on(host)
        return next((e.label for e in windows if e.is_for(words) and not e.is_readable), "")

    def _is_open(self, host: str, span: Span) -> bool:
        """Whether windows and freezes leave the whole of a span open for a host."""
        words = self._draft.topology.words_on(host)
        return self._draft.maintenance_policy.is_open(words, span)


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
    )


def announce_shortage(draft: Draft, maintenance: Maintenance, host: str) -> Subject | None:
    """Return the first limit that announced work exhausts for a host; O(host's VMs)."""
    return _shortage(draft, maintenance, host, running=False)


def start_blockers(draft: Draft, operation: Operation) -> Iterator[Blocker]:
    """Yield what delays the start of announced work, apart from approvals and times. G-1, F-3."""
    before = _missing_driver(draft, operation) or work_before(draft, operation)
    before = before or _rest_before_start(draft, operation) or _plan_before_start(draft, operation)
    if before is not None:
        yield before
    maintenance = draft.maintenances.get(operation.maintenance)
    if maintenance is None or operation.is_return:  # budgets do not limit other work
        return
    # Failures and manual work may have followed the announcement.
    subject = _shortage(draft, maintenance, operation.host, running=True)
    if subject is not None:
        over = Blocker(Code.BUDGET, subject_text(subject), waits_since_ms(operation), wakes=subject)
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
    return Blocker(Code.OPERATOR, operation.target, waits_since_ms(operation), text=text)


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


def _rest_before_start(draft: Draft, operation: Operation) -> Blocker | None:
    """Return the owner that must rest before announced work of a maintenance starts. See F-3.

    Failures and manual work may have disturbed the owner since the announcement. A failed host
    disturbs its owners until it is repaired. The hosts of one wave disturb an owner once, so they
    do not wait for one another. Costs the running work and the VMs on its hosts.
    """
    maintenance = draft.maintenances.get(operation.maintenance)
    rests_ms = _rest_ends_ms(draft, operation.host)
    if maintenance is None or operation.is_return or not rests_ms:
        return None
    resting = {each for each, until_ms in rests_ms.items() if draft.now_ms < until_ms}
    disturbing = {
        owner: other.number
        for other in draft.operations(("state", OperationState.RUNNING.value))
        if other.maintenance != operation.maintenance
        for owner in rests_ms.keys() & disturbed_owners(other, draft.topology)
    }
    failed = _owners_on_failed(draft)
    waits = (resting | disturbing.keys() | failed) & rests_ms.keys()
    if waits:
        waits -= _disturbed_by_wave(draft, maintenance, operation.host)
    for owner in sorted(waits):
        wakes = disturbing.get(owner) or (Scope.OWNER, owner)  # the repair of a failed host
        clears_ms = 0 if owner in disturbing or owner in failed else rests_ms[owner]
        since_ms = waits_since_ms(operation)
        text = Blocker(Code.OWNER_REST, owner, since_ms).sentence(operation.host)
        return Blocker(Code.OWNER_REST, owner, since_ms, clears_ms, text, wakes)
    return None


def _plan_before_start(draft: Draft, operation: Operation) -> Blocker | None:
    """Return the plan that announced work of a maintenance waits for; None: no plan is due.

    After a change of the policy only the new plan has the limits of its budgets. See F-3.
    """
    maintenance = draft.maintenances.get(operation.maintenance)
    if maintenance is None or operation.is_return or not maintenance.plan_wanted:
        return None
    blocker = Blocker(Code.PLANNING, maintenance.id, waits_since_ms(operation))
    return replace(blocker, text=blocker.sentence(operation.host))


def _owners_on_failed(draft: Draft) -> frozenset[str]:
    """Return the owners of VMs on failed hosts; O(disturbed hosts and these VMs)."""
    hosts, vms_on = draft.topology.hosts, draft.topology.vms_on
    disturbed = draft.state.current_usage().hosts
    failed = [name for name in disturbed if name in hosts and hosts[name].health is Health.FAILED]
    return owners_of(draft.topology, [vm for name in failed for vm in vms_on(name)])


def _rest_ends_ms(draft: Draft, host: str) -> dict[str, int]:
    """Return the owners on a host, each with the end of its rest; empty if no owner rests. F-3.

    0: the owner was not disturbed before.
    """
    rest_ms = draft.maintenance_policy.owner_rest_s * SECOND_MS
    if not rest_ms:
        return {}
    ended_ms = draft.state.last_disturbed_ms
    owners = sorted(owners_of(draft.topology, draft.topology.vms_on(host)))
    return {each: ended_ms[each] + rest_ms if each in ended_ms else 0 for each in owners}


def _disturbed_by_wave(draft: Draft, maintenance: Maintenance, host: str) -> frozenset[str]:
    """Return the owners that other hosts of a host's wave disturb or have disturbed.

    Costs the touched hosts, and the VMs on those of the wave.
    """
    targets = draft.progress(maintenance.number).targets
    moves = draft.plan_of(maintenance).moves
    vms: list[str] = []
    for each in targets.values():
        if each.host == host or each.wave != targets[host].wave:
            continue
        work = draft.operation(each.operation)
        # Work that follows on an empty host has no requested start: its VMs were disturbed already.
        waits = work and work.state is OperationState.ANNOUNCED and work.requested_start_ms
        if not waits:
            vms += draft.topology.vms_on(each.host)
            vms += [vm for vm, _ in moves.get(each.host, ())]
    return owners_of(draft.topology, vms)


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
    known = {each.host: each for each in maintenance.postponed}
    for host in word.hosts:
        from_ms = (
            known[host].from_ms if host in known else _first_start_ms(draft, maintenance, host)
        )
        problem = _problem(draft, maintenance, host, from_ms=from_ms, until_ms=word.until_ms)
        if problem:
            raise PostponementRefused(host=host, maintenance=maintenance.id, problem=problem)
        known[host] = Postponement(host, word.until_ms, from_ms, word.by, word.reason)
    if len(known) > POSTPONED_MAX:
        problem = f"a maintenance can have {POSTPONED_MAX} postponements at most"
        raise PostponementRefused(host=word.hosts[0], maintenance=maintenance.id, problem=problem)
    postponed = replace(maintenance, postponed=tuple(known[host] for host in sorted(known)))
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
    limit_s = draft.maintenance_policy.postpone_max_s
    if not limit_s:
        return "the policy does not allow postponing"
    latest_ms = from_ms + limit_s * SECOND_MS
    if until_ms > latest_ms:
        return f"the policy allows {iso8601(latest_ms)} at the latest"
    duration_ms = maintenance.host_s * SECOND_MS
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
