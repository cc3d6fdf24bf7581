"""Hosts into waves where VMs leave first: each wave is made on the placement the last one left.

Source: F-3. Nobody arrives on a host of the wave or where work is live, and at every moment the
VMs on a host and those on their way to it fit there.

Cost: grows with the VMs that move and, where room is scarce, with the hosts looked at for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.planning.plan import VmMove
from forewarn.planning.timing import Batch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forewarn.planning.eligible import Calendar
    from forewarn.planning.fleet import Index
    from forewarn.planning.occupied import Occupied
    from forewarn.planning.policy import BudgetLimits, Subject

#: Hosts in a row that do not fit into a wave that has some, before the wave is closed.
_MISSES_MAX = 500


class Placement:
    """The places of VMs while a plan is carried out, and the room of each host."""

    def __init__(self, index: Index, closed: Iterable[int], asked: Iterable[int]) -> None:
        """Begin with the current fleet.

        Args:
            index: the fleet.
            closed: hosts where no VM may arrive.
            asked: hosts that are yet to be done: VMs go there only where nothing else has room.
        """
        self.index = index
        fleet = index.fleet
        self.vms: list[list[int]] = [[] for _ in fleet.hosts]
        self.free = [host.capacity for host in fleet.hosts]
        for vm, at in enumerate(fleet.vm_hosts):
            self.vms[at].append(vm)
            self.free[at] -= fleet.vm_sizes[vm]
        self._closed = frozenset(closed)
        self.undone = set(asked)
        self._in_zone: dict[str, list[int]] = {}
        for number, host in enumerate(fleet.hosts):
            if host.capacity and number not in self._closed:
                self._in_zone.setdefault(host.zone, []).append(number)

    def groups_on(self, host: int) -> dict[int, int]:
        """VMs by group on a host now."""
        counts: dict[int, int] = {}
        for vm in self.vms[host]:
            group = self.index.fleet.vm_groups[vm]
            counts[group] = counts.get(group, 0) + 1
        return counts

    def evacuated(self, host: int, wave: set[int]) -> dict[int, int] | None:
        """Return a destination for each VM on a host, and take the room; None if one has none.

        Large VMs are placed first. The room they leave is not free before the wave has ended.
        """
        sizes = self.index.fleet.vm_sizes
        counts: dict[int, int] = {}
        for vm in sorted(self.vms[host], key=lambda each: (-sizes[each], each)):
            destination = self._destination(host, sizes[vm], wave)
            if destination is None:
                for placed, there in counts.items():
                    self.free[there] += sizes[placed]
                return None
            self.free[destination] -= sizes[vm]
            counts[vm] = destination
        return counts

    def _destination(self, host: int, size: int, wave: set[int]) -> int | None:
        """Return a host of the zone with room: one done before, of the same fault domain, full."""
        zones = self.index.fault_zone
        candidates = [
            each
            for each in self._in_zone.get(self.index.fleet.hosts[host].zone, ())
            if self.free[each] >= size and each != host and each not in wave
        ]
        return min(
            candidates,
            key=lambda each: (
                each in self.undone,
                zones[each] != zones[host],
                self.free[each],
                each,
            ),
            default=None,
        )

    def arrive(self, moves: dict[int, int], host: int) -> None:
        """Put the VMs of a host where they went; the host is done and its room is free."""
        sizes = self.index.fleet.vm_sizes
        self.vms[host] = []
        self.free[host] = self.index.fleet.hosts[host].capacity
        for vm, there in moves.items():
            self.vms[there].append(vm)
            assert self.free[there] >= 0, (there, sizes[vm])
        self.undone.discard(host)


class Mover:
    """Makes batches one after another; those that fit nowhere are left over."""

    def __init__(self, placement: Placement, limits: BudgetLimits, occupied: Occupied) -> None:
        """Store the limits that every wave must respect."""
        self._placement, self._limits, self._occupied = placement, limits, occupied

    def batches(self, hosts: list[int], calendar: Calendar, *, canary: bool) -> list[Batch]:
        """Return batches for hosts, in order of preference; remove those hosts from the list."""
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
        """Return one wave, with no host if none fits, and put the VMs where it takes them."""
        placement = self._placement
        batch = Batch([], calendar, canary, {}, {})
        assert batch.groups is not None
        assert batch.moves is not None
        names = placement.index.fleet.hosts
        wave = _Wave(self._limits, self._occupied.taken, placement)
        misses = 0
        for host in hosts:
            moves = wave.admitted(host) if self._reachable(host) else None
            if moves is None:
                misses += 1
                if batch.hosts and misses > _MISSES_MAX:
                    break
                continue
            misses = 0
            batch.hosts.append(host)
            batch.groups[host] = placement.groups_on(host)
            batch.moves[host] = tuple(
                VmMove(vm, names[there].name) for vm, there in sorted(moves.items())
            )
        for host, moves in wave.moves.items():
            placement.arrive(moves, host)
        return batch

    def _reachable(self, host: int) -> bool:
        """Whether no live work without a known end keeps it off, as VMs are placed now."""
        groups = self._placement.groups_on(host)
        return all(ends_ms for _, ends_ms, _ in self._occupied.obstacles(host, groups))


class _Wave:
    """Hosts taken into one wave, with the rules that hold within it."""

    def __init__(
        self, limits: BudgetLimits, occupied_by: dict[Subject, int], placement: Placement
    ) -> None:
        self._limits, self._placement = limits, placement
        self._used = dict(occupied_by)
        self._zone_of_group: dict[int, int] = {}
        self._destinations: set[int] = set()
        #: Host -> VM -> where it goes.
        self.moves: dict[int, dict[int, int]] = {}

    def admitted(self, host: int) -> dict[int, int] | None:
        """Add a host; return the destinations of its VMs, or None if it does not fit."""
        groups = self._placement.groups_on(host)
        zone = self._placement.index.fault_zone[host]
        if host in self._destinations:
            return None
        if any(self._zone_of_group.get(group, zone) != zone for group in groups):
            return None
        amounts = self._limits.amounts(host, groups)
        if any(self._used.get(s, 0) + n > self._limits.limit[s] for s, n in amounts):
            return None
        moves = self._placement.evacuated(host, {*self.moves, host})
        if moves is None:
            return None
        self.moves[host] = moves
        self._destinations.update(moves.values())
        for subject, amount in amounts:
            self._used[subject] = self._used.get(subject, 0) + amount
        for group in groups:
            self._zone_of_group[group] = zone
        return moves
