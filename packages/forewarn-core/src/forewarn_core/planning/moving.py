"""Builds waves of hosts whose VMs leave first, each from the placement after the previous wave.

Source: F-3. No VM arrives on a host of the wave or on a host with live work. A VM stays at its
destination, or returns before the wave ends; room for it stays reserved on its old host. If a
driver's own scheduler chooses, the plan has no destination for its VMs and reserves no room.

A wave takes hosts whose VMs all have a destination where they are as well placed as now, in other
fault domains than the rest of their group. Without such a host, the wave takes any host whose
VMs have a destination. Moves may take the room or the budget that a later host needs; then another
order is tried.
"""

from __future__ import annotations

from typing import TypeAlias

from forewarn_core.planning.eligible import Calendar, Calendars, PlanningTerms, closed
from forewarn_core.planning.fleet import Index, WaveDomains
from forewarn_core.planning.limits import BudgetLimits
from forewarn_core.planning.occupied import Occupied
from forewarn_core.planning.placement import Placement
from forewarn_core.planning.plan import VmMove
from forewarn_core.planning.policy import subject_text
from forewarn_core.planning.sites import Batch
from forewarn_core.rules.blockers import Blocker, Code
from forewarn_core.rules.budget import BUDGET
from forewarn_core.rules.capacity import CAPACITY, NO_OTHER_HOST, UNSIZED, own_moves
from forewarn_core.rules.test_first import TEST, TEST_FIRST

#: A wave is closed after this many successive hosts that do not fit; a wave of hosts whose VMs
#: stay well placed even if it is empty.
_MISSES_MAX = 500
#: Orders that are tried before hosts are blocked by the plan's own moves.
_ORDERS_MAX = 4

#: Hosts with one calendar, in order of preference, and whether they are canaries.
Part: TypeAlias = tuple[Calendar, list[int], bool]


class MovingPlan:
    """Waves of hosts whose VMs leave first, for all hosts of a plan."""

    def __init__(
        self,
        index: Index,
        limits: BudgetLimits,
        *,
        occupied: Occupied,
        calendars: Calendars,
        terms: PlanningTerms,
    ) -> None:
        self._index, self._limits, self._occupied = index, limits, occupied
        self._calendars, self._terms = calendars, terms

    def batches(self, parts: list[Part]) -> tuple[list[Batch], list[tuple[int, Blocker]]]:
        """Return the waves of parts, and the hosts without a wave with their blockers.

        Cost: that of one order; of up to `_ORDERS_MAX` orders if moves block a host.
        """
        first: list[int] = []
        best: tuple[list[Batch], list[tuple[int, Blocker]]] | None = None
        for _ in range(_ORDERS_MAX):
            batches, stuck = self._in_order(parts, first)
            blocked = self._blocked_by_moves(
                [host for host, blocker in stuck if blocker.code is not TEST_FIRST]
            )
            if best is None or len(stuck) < len(best[1]):
                best = (
                    batches,
                    [
                        (host, own_moves(blocker) if host in blocked else blocker)
                        for host, blocker in stuck
                    ],
                )
            if blocked <= set(first):
                break
            first = [*(host for host, _ in stuck if host in blocked - set(first)), *first]
        assert best is not None
        return best

    def first_wave(self, hosts: list[int], calendar: Calendar) -> list[int]:
        """Return hosts that may share a wave, earlier ones preferred."""
        return self._mover(hosts).batch(hosts, calendar, canary=True).hosts

    def _in_order(
        self, parts: list[Part], first: list[int]
    ) -> tuple[list[Batch], list[tuple[int, Blocker]]]:
        """Return the waves, with some hosts before all others of their part, and other hosts."""
        everyone = [host for _, hosts, _ in parts for host in hosts]
        mover = self._mover(everyone)
        rank = {host: place for place, host in enumerate(first)}
        left = [
            (calendar, sorted(hosts, key=lambda each: rank.get(each, len(rank))), canary)
            for calendar, hosts, canary in parts
        ]
        batches: list[Batch] = []
        goes_on = True
        while goes_on:
            new = [
                batch
                for calendar, hosts, canary in left
                if not closed(calendar, self._terms, self._host_ms(hosts[0]))
                and self._is_tested(calendar, batches)
                for batch in mover.batches(hosts, calendar, canary=canary)
            ]
            batches += new
            left = [part for each in left for part in self._regrouped(each, mover)]
            # Hosts of one part have seen the placement after the last wave already, unless they
            # waited for a test.
            waited = any(calendar.after for calendar, _, _ in left)
            goes_on = bool(new) and (len(left) > 1 or self._calendars.by_group or waited)
        return batches, [
            (
                host,
                closed(calendar, self._terms, self._host_ms(host))
                or self._untested(calendar, batches)
                or mover.blocker(host, self._terms.now_ms),
            )
            for calendar, hosts, _ in left
            for host in hosts
        ]

    def _is_tested(self, calendar: Calendar, batches: list[Batch]) -> bool:
        """Whether all hosts that come before those of a calendar have a wave. Source: T-8."""
        if not calendar.after:
            return True
        hosts = self._index.fleet.hosts
        placed = {hosts[host].name for batch in batches for host in batch.hosts}
        return all(
            placed.issuperset(self._terms.request.orders[each].first) for each in calendar.after
        )

    def _untested(self, calendar: Calendar, batches: list[Batch]) -> Blocker | None:
        if self._is_tested(calendar, batches):
            return None
        return Blocker(TEST_FIRST, TEST, self._terms.now_ms)

    def _host_ms(self, host: int) -> int:
        return self._terms.host_ms(self._index.fleet.hosts[host])

    def _regrouped(self, part: Part, mover: Mover) -> list[Part]:
        """Return the hosts left of a part by their calendars, which arrived VMs may change.

        Hosts of a new calendar are also apart by the length of their work: it may not fit in it.
        """
        calendar, hosts, _ = part
        if not self._calendars.by_group:
            return [(calendar, hosts, False)] if hosts else []
        parts: dict[tuple[int, int], Part] = {}
        for host in hosts:
            now = mover.calendar(host)
            key = (id(now), self._host_ms(host))
            parts.setdefault(key, (now, [], False))[1].append(host)
        return list(parts.values())

    def _blocked_by_moves(self, hosts: list[int]) -> set[int]:
        """Return the hosts that could be done before all moves of the plan."""
        if self._terms.request.return_s or not hosts:
            return set()
        mover = self._mover(hosts)
        return {host for host in hosts if mover.fits(host)}

    def _mover(self, hosts: list[int]) -> Mover:
        placement = Placement(
            self._index,
            self._limits,
            closed=self._occupied.hosts,
            undone=hosts,
            returning=bool(self._terms.request.return_s),
        )
        return Mover(placement, self._limits, self._occupied, calendars=self._calendars)


class Mover:
    """Builds batches one after another; hosts that fit in no batch stay in the list."""

    def __init__(
        self,
        placement: Placement,
        limits: BudgetLimits,
        occupied: Occupied,
        *,
        calendars: Calendars,
    ) -> None:
        self._placement, self._limits, self._occupied = placement, limits, occupied
        self._calendars = calendars

    def batches(self, hosts: list[int], calendar: Calendar, *, canary: bool) -> list[Batch]:
        """Return batches of hosts, in order of preference; remove those hosts from the list."""
        batches: list[Batch] = []
        while hosts:
            batch = self.batch(hosts, calendar, canary=canary)
            if not batch.hosts:
                break
            batches.append(batch)
            done = set(batch.hosts)
            hosts[:] = [host for host in hosts if host not in done]
        return batches

    def batch(self, hosts: list[int], calendar: Calendar, *, canary: bool) -> Batch:
        """Return one wave, empty if no host fits, and move the VMs to their destinations."""
        batch = self._batch(hosts, calendar, canary=canary, apart=True)
        return batch if batch.hosts else self._batch(hosts, calendar, canary=canary, apart=False)

    def _batch(self, hosts: list[int], calendar: Calendar, *, canary: bool, apart: bool) -> Batch:
        """Return one wave; with `apart`, of hosts whose VMs are as well placed afterwards."""
        placement = self._placement
        batch = Batch([], calendar, canary, {}, {})
        assert batch.groups is not None
        assert batch.moves is not None
        names = placement.index.fleet.hosts
        wave = _Wave(self._limits, self._occupied, placement)
        misses = 0
        for host in hosts:
            if self._calendars.by_group and self.calendar(host) is not calendar:
                continue
            groups = dict(placement.groups_on(host))
            moves = wave.admitted(host, apart=apart) if self._endless(host) is None else None
            if moves is None:
                misses += 1
                if (batch.hosts or apart) and misses > _MISSES_MAX:
                    break
                continue
            misses = 0
            batch.hosts.append(host)
            batch.groups[host] = groups
            batch.moves[host] = tuple(
                VmMove(vm, "" if there == host else names[there].name)
                for vm, there in sorted(moves.items())
            )
        wave.end()
        return batch

    def calendar(self, host: int) -> Calendar:
        """Return the calendar of a host, by the current placement."""
        return self._calendars.of(host, self._placement.groups_on(host))

    def fits(self, host: int) -> bool:
        """Whether a host could be the next wave on its own; nothing is moved."""
        wave = _Wave(self._limits, self._occupied, self._placement)
        fits = self._endless(host) is None and wave.admitted(host, apart=False) is not None
        wave.give_up()
        return fits

    def _endless(self, host: int) -> tuple[Code, str] | None:
        """Return live work that blocks a host and has no known end, by the current placement."""
        groups = self._placement.groups_on(host)
        for _, ends_ms, code, operation in self._occupied.until(host, groups):
            if not ends_ms:
                return code, operation
        return None

    def blocker(self, host: int, now_ms: int) -> Blocker:
        """Return why a host has no wave, by the placement after the last wave."""
        placement, used = self._placement, self._occupied.taken
        endless = self._endless(host)
        if endless is not None:
            return Blocker(*endless, now_ms)
        groups, vms = placement.groups_on(host), placement.vms[host]
        for subject, amount in self._occupied.amounts(host, groups, vms=vms):
            if amount > self._limits.limit[subject] - used.get(subject, 0):
                return Blocker(BUDGET, subject_text(subject), now_ms)
        sizes = placement.index.fleet.vm_sizes
        if not all(sizes[vm] for vm in placement.vms[host]):
            return Blocker(CAPACITY, UNSIZED, now_ms)
        hosts = ", ".join(placement.most_room(host)) or NO_OTHER_HOST
        return Blocker(CAPACITY, hosts, now_ms)


class _Wave:
    """Hosts of one wave, with the rules within it."""

    def __init__(self, limits: BudgetLimits, occupied: Occupied, placement: Placement) -> None:
        self._limits, self._occupied, self._placement = limits, occupied, placement
        self._used = dict(occupied.taken)
        self._domains = WaveDomains(placement.index)
        self._destinations: set[int] = set()
        #: Host -> VM -> its destination, and whether VMs may arrive on the host afterwards.
        self._moves: dict[int, tuple[dict[int, int], bool]] = {}

    def admitted(self, host: int, *, apart: bool) -> dict[int, int] | None:
        """Add a host; return the destinations of its VMs, or None if it does not fit.

        With `apart`, it does not fit if a VM would be worse placed than now.
        """
        groups = self._placement.groups_on(host)
        if host in self._destinations or not self._domains.admits(host, groups):
            return None
        amounts = self._occupied.amounts(host, groups, vms=self._placement.vms[host])
        if any(self._used.get(s, 0) + n > self._limits.limit[s] for s, n in amounts):
            return None
        disturbed = tuple(groups)
        was_open = self._placement.close(host)
        moves = self._placement.evacuated(host, apart=apart)
        if moves is None:
            if was_open:
                self._placement.open(host)
            return None
        self._moves[host] = moves, was_open
        self._destinations.update(set(moves.values()) - {host})
        for subject, amount in amounts:
            self._used[subject] = self._used.get(subject, 0) + amount
        self._domains.add(host, disturbed)
        return moves

    def give_up(self) -> None:
        """Leave all VMs of the wave where they are."""
        for host, (moves, was_open) in self._moves.items():
            self._placement.stay(host, moves)
            if was_open:
                self._placement.open(host)

    def end(self) -> None:
        """Move all VMs of the wave to their destinations."""
        for host, (moves, was_open) in self._moves.items():
            self._placement.arrive(moves, host, reopen=was_open)
