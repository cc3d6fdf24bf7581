"""Builds waves of hosts whose VMs leave first, each from the placement after the previous wave.

Source: F-3. No VM arrives on a host of the wave or on a host with live work. A host always has room
for its VMs and for VMs on their way there. A VM stays at its destination, or returns before the
wave ends; room for it stays reserved on its old host. If a driver's own scheduler chooses, the plan
has no destination
for its VMs and reserves no room.

Cost: O(moved VMs * fault domains of a zone).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

from forewarn.planning.blockers import NO_OTHER_HOST, UNSIZED, Blocker, Code
from forewarn.planning.eligible import Calendar
from forewarn.planning.fleet import Index
from forewarn.planning.occupied import Occupied
from forewarn.planning.plan import VmMove
from forewarn.planning.policy import BudgetLimits, subject_text
from forewarn.planning.timing import Batch

#: A non-empty wave is closed after this many successive hosts that do not fit.
_MISSES_MAX = 500
#: Maximum hosts that a blocker names, in order of falling room.
_NAMED_MAX = 5


class Placement:
    """The placement of VMs during a plan, and the free room of each host."""

    def __init__(
        self, index: Index, closed: Iterable[int], asked: Iterable[int], *, returning: bool
    ) -> None:
        """Start with the current fleet.

        Args:
            index: the fleet.
            closed: hosts that no VM may move to.
            asked: hosts that are not done yet; VMs move there only if no other host has room.
            returning: whether VMs return after the work on their host.
        """
        self.index, self._returning = index, returning
        fleet = index.fleet
        self.vms: list[list[int]] = [[] for _ in fleet.hosts]
        self.free = [host.capacity for host in fleet.hosts]
        for vm, at in enumerate(fleet.vm_hosts):
            self.vms[at].append(vm)
            self.free[at] -= fleet.vm_sizes[vm]
        self._undone = set(asked)
        #: Zone and driver -> whether not done yet, and fault domain -> free room and host.
        self._pools: dict[tuple[str, str], dict[tuple[bool, int], list[tuple[int, int]]]] = {}
        shut = set(closed)
        self._open: set[int] = set()
        for number, host in enumerate(fleet.hosts):
            if host.capacity and not host.scheduled and number not in shut:
                self.open(number)

    def _row(self, host: int) -> list[tuple[int, int]]:
        pool = self._pools.setdefault(self.index.fleet.hosts[host].pool, {})
        return pool.setdefault((host in self._undone, self.index.fault_zone[host]), [])

    def open(self, host: int) -> None:
        """Allow VMs to arrive on a host."""
        insort(self._row(host), (self.free[host], host))
        self._open.add(host)

    def close(self, host: int) -> bool:
        """Forbid VMs to arrive on a host; return whether it was allowed before."""
        if host not in self._open:
            return False
        row = self._row(host)
        del row[bisect_left(row, (self.free[host], host))]
        self._open.discard(host)
        return True

    def groups_on(self, host: int) -> dict[int, int]:
        """Return the VMs on a host now, by group."""
        counts: dict[int, int] = {}
        for vm in self.vms[host]:
            group = self.index.fleet.vm_groups[vm]
            counts[group] = counts.get(group, 0) + 1
        return counts

    def evacuated(self, host: int) -> dict[int, int] | None:
        """Reserve a destination for each VM on a closed host; None if a VM has no destination.

        Large VMs are placed first. The VMs' old room is free only after the wave. If the driver
        chooses destinations, each destination is the host itself.
        """
        if self.index.fleet.hosts[host].scheduled:
            return dict.fromkeys(self.vms[host], host)
        sizes = self.index.fleet.vm_sizes
        moves: dict[int, int] = {}
        for vm in sorted(self.vms[host], key=lambda each: (-sizes[each], each)):
            destination = self._destination(host, sizes[vm]) if sizes[vm] else None
            if destination is None:
                for placed, there in moves.items():
                    self._take(there, -sizes[placed])
                return None
            self._take(destination, sizes[vm])
            moves[vm] = destination
        return moves

    def _take(self, host: int, size: int) -> None:
        self.close(host)
        self.free[host] -= size
        self.open(host)

    def _destination(self, host: int, size: int) -> int | None:
        """Return an open host with room, preferably done, full and of the same fault domain."""
        own = self.index.fault_zone[host]
        rows = self._pools.get(self.index.fleet.hosts[host].pool, {})
        for undone in (False, True):
            fits = [_fit(rows.get((undone, own), []), size)]
            if fits == [None]:
                fits = [_fit(row, size) for key, row in rows.items() if key[0] is undone]
            fullest = min((each for each in fits if each is not None), default=None)
            if fullest is not None:
                return fullest[1]
        return None

    def arrive(self, moves: dict[int, int], host: int, *, reopen: bool) -> None:
        """Place the VMs of a host after its wave, and mark the host as done."""
        if self.index.fleet.hosts[host].scheduled:
            pass
        elif self._returning:
            for vm, there in moves.items():
                self._take(there, -self.index.fleet.vm_sizes[vm])
        else:
            self.vms[host] = []
            self.free[host] = self.index.fleet.hosts[host].capacity
            for vm, there in moves.items():
                self.vms[there].append(vm)
        self._undone.discard(host)
        if reopen:
            self.open(host)

    def most_room(self, host: int) -> list[str]:
        """Return the names of possible destinations of a host's VMs, given more room."""
        rows = self._pools.get(self.index.fleet.hosts[host].pool, {}).values()
        others = sorted((each for row in rows for each in row if each[1] != host), reverse=True)
        return [self.index.fleet.hosts[other].name for _, other in others[:_NAMED_MAX]]


def _fit(row: list[tuple[int, int]], size: int) -> tuple[int, int] | None:
    """Return the fullest host of a list that has room."""
    place = bisect_left(row, (size, -1))
    return row[place] if place < len(row) else None


class Mover:
    """Builds batches one after another; hosts that fit in no batch stay in the list."""

    def __init__(self, placement: Placement, limits: BudgetLimits, occupied: Occupied) -> None:
        """Store the limits of every wave."""
        self._placement, self._limits, self._occupied = placement, limits, occupied

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
        placement = self._placement
        batch = Batch([], calendar, canary, {}, {})
        assert batch.groups is not None
        assert batch.moves is not None
        names = placement.index.fleet.hosts
        wave = _Wave(self._limits, self._occupied, placement)
        misses = 0
        for host in hosts:
            moves = wave.admitted(host) if self._endless(host) is None else None
            if moves is None:
                misses += 1
                if batch.hosts and misses > _MISSES_MAX:
                    break
                continue
            misses = 0
            batch.hosts.append(host)
            batch.groups[host] = placement.groups_on(host)
            batch.moves[host] = tuple(
                VmMove(vm, "" if there == host else names[there].name)
                for vm, there in sorted(moves.items())
            )
        wave.end()
        return batch

    def _endless(self, host: int) -> tuple[Code, str] | None:
        """Return live work that blocks a host and has no known end, by the current placement."""
        groups = self._placement.groups_on(host)
        for code, ends_ms, operation in self._occupied.obstacles(host, groups):
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
                return Blocker(Code.BUDGET, subject_text(subject), now_ms)
        sizes = placement.index.fleet.vm_sizes
        if not all(sizes[vm] for vm in placement.vms[host]):
            return Blocker(Code.CAPACITY, UNSIZED, now_ms)
        hosts = ", ".join(placement.most_room(host)) or NO_OTHER_HOST
        return Blocker(Code.CAPACITY, hosts, now_ms)


class _Wave:
    """Hosts of one wave, with the rules within it."""

    def __init__(self, limits: BudgetLimits, occupied: Occupied, placement: Placement) -> None:
        self._limits, self._occupied, self._placement = limits, occupied, placement
        self._used = dict(occupied.taken)
        self._zone_of_group: dict[int, int] = {}
        self._destinations: set[int] = set()
        #: Host -> VM -> its destination, and whether VMs may arrive on the host afterwards.
        self._moves: dict[int, tuple[dict[int, int], bool]] = {}

    def admitted(self, host: int) -> dict[int, int] | None:
        """Add a host; return the destinations of its VMs, or None if it does not fit."""
        groups = self._placement.groups_on(host)
        zone = self._placement.index.fault_zone[host]
        if host in self._destinations:
            return None
        if any(self._zone_of_group.get(group, zone) != zone for group in groups):
            return None
        amounts = self._occupied.amounts(host, groups, vms=self._placement.vms[host])
        if any(self._used.get(s, 0) + n > self._limits.limit[s] for s, n in amounts):
            return None
        was_open = self._placement.close(host)
        moves = self._placement.evacuated(host)
        if moves is None:
            if was_open:
                self._placement.open(host)
            return None
        self._moves[host] = moves, was_open
        self._destinations.update(set(moves.values()) - {host})
        for subject, amount in amounts:
            self._used[subject] = self._used.get(subject, 0) + amount
        for group in groups:
            self._zone_of_group[group] = zone
        return moves

    def end(self) -> None:
        """Move all VMs of the wave to their destinations."""
        for host, (moves, was_open) in self._moves.items():
            self._placement.arrive(moves, host, reopen=was_open)
