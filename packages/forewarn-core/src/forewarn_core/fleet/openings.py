"""The times at which an owner can have declared work start on a host. Source: T-2.

A chosen start is a wave of its own, or joins the hosts that chose the same start: two waves never
overlap, from the notice of a wave to its end. Work that waits for the deadline is planned around
the chosen starts and takes no time away.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterator
from functools import cached_property

from forewarn_base.values import value
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.durations import host_s, span_s
from forewarn_core.fleet.host_orders import orders_by_host, orders_of, owner_orders
from forewarn_core.fleet.impact import SECOND_MS
from forewarn_core.fleet.maintenance import Maintenance
from forewarn_core.fleet.notices import planning_notice_s
from forewarn_core.fleet.owner_choices import Decision
from forewarn_core.fleet.topology import Topology
from forewarn_core.fleet.usage import subjects_of_host
from forewarn_core.planning.plan import HostOrder
from forewarn_core.rules import CHOOSING, blockers_of
from forewarn_core.rules.blockers import Blocker
from forewarn_core.rules.pause import after_pause_ms
from forewarn_core.rules.site import Site, SiteWork
from forewarn_core.rules.subjects import Subject

#: Time to plan after a choice, in seconds.
PLANNING_S = 60
#: Maximum number of openings of a host.
OPENINGS_MAX = 200
#: Number of openings that a refusal names.
NEAREST = 3


@value
class Opening:
    """A span in which work on a host can start. Times are ms since the epoch UTC."""

    start_ms: int
    #: The latest start in this opening.
    latest_ms: int
    #: Number of hosts that may still choose this start; None: no budget limits it.
    room: int | None = None


class Openings:
    """The openings of one declared maintenance; costs its choices once."""

    def __init__(self, draft: Draft, maintenance: Maintenance) -> None:
        """Read the chosen starts and the work at hand."""
        assert maintenance.declaration is not None, maintenance
        self.draft, self.maintenance = draft, maintenance
        self._deadline_ms = maintenance.declaration.deadline_ms
        policy = draft.policy_of(maintenance)
        notice_ms = planning_notice_s(policy, draft.policy, maintenance) * SECOND_MS
        lasts_s = [host_s(draft.state, maintenance, host) for host in maintenance.hosts]
        self.lasts_ms = max(lasts_s) * SECOND_MS
        #: Time from the end of a wave to the start of the next.
        self._gap_ms = max(notice_ms, after_pause_ms(policy, 0))
        self._wave_at: dict[int, _ChosenWave] = {}
        #: The chosen starts, by time.
        self._starts: list[int] = []
        self._start_of: dict[str, int] = {}
        orders = orders_of(draft.state, maintenance, draft.now_ms)
        self._orders = orders_by_host(orders)
        self._test_hosts = {host for order in orders for host in order.first}
        #: The end of each observation; by identity, as the hash of an order costs its hosts.
        self._observed_ms: dict[int, int | None] = {}
        for each in draft.state.choices.values():
            at = each.decision is Decision.AT and each.maintenance == maintenance.number
            if at and draft.target(maintenance.number, each.host) is None:
                self.take(each.host, each.start_ms)
        soonest_ms = draft.now_ms + notice_ms + PLANNING_S * SECOND_MS
        self.soonest_ms = max(soonest_ms, self._free_ms(), maintenance.rests_until_ms or 0)

    @property
    def now_ms(self) -> int:
        """The time for which the openings are computed, ms since the epoch UTC."""
        return self.draft.now_ms

    @cached_property
    def after_own_test(self) -> frozenset[tuple[str, str]]:
        """The owners and those of their hosts that they want after their test. Source: T-8."""
        orders = owner_orders(self.draft.state, self.maintenance)
        return frozenset((each.first_group.owner, host) for each in orders for host in each.after)

    def _free_ms(self) -> int:
        """Return when a wave may start after the work at hand, ms since the epoch UTC."""
        maintenance, draft = self.maintenance, self.draft
        ends_ms = [0]
        for target in draft.progress(maintenance.number).worked_on:
            operation = draft.operation(target.operation)
            if operation is not None:
                # The return of VMs waits without a time until it is announced.
                from_ms = operation.execution.started_ms or operation.notice.not_before_ms
                from_ms = from_ms or draft.now_ms
                ends_ms.append(from_ms + span_s(draft.state, maintenance, operation) * SECOND_MS)
        return max(ends_ms) + self._gap_ms

    def take(self, host: str, start_ms: int) -> None:
        """Count a host at its chosen start, and no longer at an earlier choice."""
        before_ms = self._start_of.get(host)
        if before_ms is not None:
            self._wave_at[before_ms].remove(host)
            if not self._wave_at[before_ms].hosts:
                del self._wave_at[before_ms]
                self._starts.remove(before_ms)
        self._start_of[host] = start_ms
        if host in self._test_hosts:
            self._observed_ms.clear()
        if start_ms not in self._wave_at:
            insort(self._starts, start_ms)
            topology, label = self.draft.topology, self.maintenance.failure_domain
            self._wave_at[start_ms] = _ChosenWave(topology, label)
        self._wave_at[start_ms].add(host)

    def blocker(self, host: str, start_ms: int, *, until_ms: int = 0) -> Blocker | None:
        """Return why work on a host cannot start at a time; None if it can.

        `until_ms`: the hand-back deadline of the owner who chooses, ms since the epoch UTC; 0: that
        of the declaration.
        """
        site = _ChosenSite(self, host, start_ms, until_ms=until_ms or self._deadline_ms)
        policy = self.draft.policy_of(self.maintenance)
        return next(blockers_of(CHOOSING, policy, site), None)

    def tested_ms(self, host: str) -> int | None:
        """Return when the tests before a host are over by the chosen times; None: unknown. T-8.

        Costs the hosts of a test once, until another start is chosen for a test host.
        """
        tested_ms = 0
        for order in self._orders.get(host, ()):
            if id(order) not in self._observed_ms:
                self._observed_ms[id(order)] = self._end_of_observation_ms(order)
            observed_ms = self._observed_ms[id(order)]
            if observed_ms is None:
                return None
            tested_ms = max(tested_ms, observed_ms)
        return tested_ms

    def _end_of_observation_ms(self, order: HostOrder) -> int | None:
        starts_ms = [self._start_of.get(each) for each in order.first]
        if None in starts_ms:
            return None
        ends_ms = [at_ms + self.lasts_ms for at_ms in starts_ms if at_ms is not None]
        return max([order.ended_ms, *ends_ms]) + order.observation_s * SECOND_MS

    def meets_other_wave(self, host: str, start_ms: int) -> bool:
        """Whether a start is too near the start that other hosts chose, without being the same."""
        clear_ms = self._gap_ms + self.lasts_ms
        first = bisect_right(self._starts, start_ms - clear_ms)
        near = self._starts[first : bisect_left(self._starts, start_ms + clear_ms)]
        return any(each != start_ms and not self._is_alone(host, each) for each in near)

    def _is_alone(self, host: str, start_ms: int) -> bool:
        """Whether a host is the only one that chose a start."""
        return self._wave_at[start_ms].hosts.keys() == {host}

    def beside(self, host: str, start_ms: int) -> _ChosenWave | None:
        """Return the hosts that chose a start; None: no host did but this one."""
        wave = self._wave_at.get(start_ms)
        return None if wave is None or wave.hosts.keys() == {host} else wave

    def room(self, host: str, wave: _ChosenWave | None, *, again: bool = False) -> int | None:
        """Return how many hosts like this one fit beside others; None: no budget limits them.

        Its own place in the wave is free if `again`: it chooses this start once more.
        """
        topology, limits = self.draft.topology, self.draft.plan_of(self.maintenance).limits
        if not limits:
            return None
        wanted = Counter(subjects_of_host(topology, host))
        used = wave.used if wave else Counter[Subject]()
        own = wanted if again and wave and host in wave.hosts else Counter[Subject]()
        rooms = [
            max(limits[each] - used[each] + own[each], 0) // amount
            for each, amount in wanted.items()
            if each in limits
        ]
        return min(rooms, default=None)

    def of(self, host: str, *, until_ms: int = 0) -> list[Opening]:
        """Return the openings of a host until a deadline, by time; O(chosen and open spans)."""
        draft, lasts_ms = self.draft, self.lasts_ms
        tested_ms = self.tested_ms(host)
        if tested_ms is None:
            return []
        first_ms = max(self.soonest_ms, self.maintenance.earliest_ms or 0, tested_ms)
        first_ms = -(-first_ms // SECOND_MS) * SECOND_MS
        until_ms = until_ms or self._deadline_ms
        last_ms = until_ms // SECOND_MS * SECOND_MS
        if first_ms > last_ms or host not in draft.topology.hosts:
            return []
        words, span = draft.topology.words_on(host), (first_ms, last_ms + lasts_ms)
        spans = draft.policy_of(self.maintenance).open_spans_of(words, span)
        others = [each for each in self._starts if not self._is_alone(host, each)]
        openings = [
            Opening(each, each, self.room(host, self._wave_at[each]))
            for each in others
            if first_ms <= each <= last_ms and self.blocker(host, each, until_ms=until_ms) is None
        ]
        alone = self.room(host, None)
        if alone != 0:
            for from_ms, to_ms in spans:
                ends_ms = min(to_ms - lasts_ms, last_ms)
                for start_ms, latest_ms in self._between(from_ms, ends_ms, others):
                    openings.append(Opening(start_ms, latest_ms, alone))
        return sorted(openings, key=lambda each: each.start_ms)[:OPENINGS_MAX]

    def _between(self, from_ms: int, to_ms: int, others: list[int]) -> Iterator[tuple[int, int]]:
        """Yield the spans of starts that stay clear of other chosen starts."""
        clear_ms = self._gap_ms + self.lasts_ms
        for other_ms in others:
            if from_ms > to_ms:
                return
            if other_ms + clear_ms <= from_ms:
                continue
            if other_ms - clear_ms >= from_ms:
                yield from_ms, min(other_ms - clear_ms, to_ms)
            from_ms = max(from_ms, other_ms + clear_ms)
        if from_ms <= to_ms:
            yield from_ms, to_ms

    def nearest(self, host: str, start_ms: int, *, until_ms: int = 0) -> list[Opening]:
        """Return the openings of a host that are nearest to a time, by time."""
        openings = self.of(host, until_ms=until_ms)
        openings.sort(key=lambda each: abs(self.start_in(each, start_ms) - start_ms))
        return sorted(openings[:NEAREST], key=lambda each: each.start_ms)

    def start_in(self, opening: Opening, start_ms: int) -> int:
        """Return the start within an opening that is nearest to a time."""
        return min(max(start_ms, opening.start_ms), opening.latest_ms)


class _ChosenSite(Site):
    """A host at the start that its owner chooses."""

    def __init__(self, openings: Openings, host: str, start_ms: int, *, until_ms: int) -> None:
        draft = openings.draft
        self._openings, self._host = openings, host
        self.now_ms = self.since_ms = draft.now_ms
        self.start_ms, self.end_ms = start_ms, start_ms + openings.lasts_ms
        self.soonest_ms, self.hand_back_ms = openings.soonest_ms, until_ms
        self.earliest_ms = openings.maintenance.earliest_ms or 0
        self.tested_ms = openings.tested_ms(host)

    @property
    def words(self) -> frozenset[str]:  # type: ignore[override]
        """The pairs of the host."""
        return self._openings.draft.topology.words_on(self._host)

    @property
    def meets_other_wave(self) -> bool:  # type: ignore[override]
        """Whether another wave is too near."""
        return self._openings.meets_other_wave(self._host, self.start_ms)

    @property
    def meets_other_domain(self) -> bool:  # type: ignore[override]
        """Whether hosts of another failure domain chose the same start."""
        wave = self._openings.beside(self._host, self.start_ms)
        return wave is not None and wave.has_other_domain(self._host)

    @property
    def room(self) -> int | None:  # type: ignore[override]
        """The room beside the hosts that chose the same start; a host alone has room."""
        wave = self._openings.beside(self._host, self.start_ms)
        return self._openings.room(self._host, wave, again=True) if wave else None

    def work_elsewhere(self) -> Iterator[SiteWork]:
        """Yield hosts that chose the same start in other fault domains of its groups."""
        wave = self._openings.beside(self._host, self.start_ms)
        for other in wave.in_other_fault_domains(self._host) if wave else ():
            yield SiteWork(other)


class _ChosenWave:
    """The hosts that chose one start; what they use together is counted at first use."""

    def __init__(self, topology: Topology, label: str) -> None:
        """Begin without hosts. `label` is that of the failure domains, or empty."""
        self._topology, self._label = topology, label
        #: The hosts, in the order of their choices.
        self.hosts: dict[str, None] = {}
        self._counted = False
        self._used: Counter[Subject] = Counter()
        self._domains: Counter[str] = Counter()
        #: Group and fault domain -> hosts.
        self._places: dict[str, dict[tuple[str, int], dict[str, None]]] = {}

    @property
    def used(self) -> Counter[Subject]:
        """What the hosts use of each limit."""
        self._count()
        return self._used

    def add(self, host: str) -> None:
        """Add a host; O(its VMs) once the wave is counted."""
        self.hosts[host] = None
        if self._counted:
            self._count_host(host, 1)

    def remove(self, host: str) -> None:
        """Remove a host, as `add`."""
        del self.hosts[host]
        if self._counted:
            self._count_host(host, -1)

    def has_other_domain(self, host: str) -> bool:
        """Whether hosts are in another failure domain, if the work is on one at a time. T-12."""
        self._count()
        domain = self._topology.failure_domain(host, self._label)
        return len(self.hosts) > self._domains[domain]

    def in_other_fault_domains(self, host: str) -> Iterator[str]:
        """Yield hosts that have VMs of a host's groups in other fault domains; not each one."""
        self._count()
        own = self._topology.hosts[host].fault_zone
        for group in self._groups(host):
            for zone, hosts in self._places.get(group, {}).items():
                if zone != own and hosts:
                    yield next(iter(hosts))

    def _count(self) -> None:
        if not self._counted:
            self._counted = True
            for host in self.hosts:
                self._count_host(host, 1)

    def _count_host(self, host: str, amount: int) -> None:
        topology = self._topology
        for subject in subjects_of_host(topology, host):
            self._used[subject] += amount
        self._domains[topology.failure_domain(host, self._label)] += amount
        record = topology.hosts.get(host)
        if record is None:
            return
        for group in self._groups(host):
            hosts = self._places.setdefault(group, {}).setdefault(record.fault_zone, {})
            if amount > 0:
                hosts[host] = None
            else:
                del hosts[host]

    def _groups(self, host: str) -> set[str]:
        topology = self._topology
        return {topology.vms[name].group for name in topology.vms_on(host)}
