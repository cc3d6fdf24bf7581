"""The placement of VMs during a plan, the room of each host, and the best destination of a VM.

Source: F-3. A host always has room for its VMs and for VMs on their way there.

Cost: a few look-ups for each moved VM if a host that is done has room in its fault domain, else
O(fault domains of its zone). With labels that groups name, O(fault domains * their values).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from itertools import chain
from typing import TypeAlias

from forewarn_core.planning.fleet import Index
from forewarn_core.planning.limits import BudgetLimits
from forewarn_core.planning.spread import LabelValues, Nearness, Spread

#: Hosts of a fault domain that are compared for one VM; beyond, its host may have more VMs of its
#: group than another one.
_COMPARED_MAX = 64
#: Maximum hosts that a blocker names, in order of falling room.
_NAMED_MAX = 5

#: Hosts with their free room, ascending.
_HostsByRoom: TypeAlias = list[tuple[int, int]]
#: A possible destination, the best first: whether a limit is exceeded, how near other VMs of the
#: group are, how many are on the host, whether the host is not done yet, whether its fault domain
#: is another one, its free room, and its number.
_Rank: TypeAlias = tuple[bool, Nearness, int, int, bool, int, int]
#: Hosts by fault domain and labels.
_HostPools: TypeAlias = dict[tuple[int, LabelValues], _HostsByRoom]
_APART: Nearness = (0, 0)


class Placement:
    """The placement of VMs during a plan, and the free room of each host."""

    def __init__(
        self,
        index: Index,
        limits: BudgetLimits,
        *,
        closed: Iterable[int],
        undone: Iterable[int],
        returning: bool,
    ) -> None:
        """Start with the current fleet.

        Args:
            index: the fleet.
            limits: the limits of every wave.
            closed: hosts that no VM may move to.
            undone: hosts that are not done yet; of equal destinations, done hosts are preferred.
            returning: whether VMs return after the work on their host.
        """
        self.index, self._returning = index, returning
        self.spread = Spread(index, limits)
        fleet = index.fleet
        self.vms: list[list[int]] = [[] for _ in fleet.hosts]
        self.free = [host.capacity for host in fleet.hosts]
        for vm, at in enumerate(fleet.vm_hosts):
            self.vms[at].append(vm)
            self.free[at] -= fleet.vm_sizes[vm]
        self._undone = set(undone)
        #: Zone and driver -> hosts that are done, and hosts that are not.
        self._pools: dict[tuple[str, str], tuple[_HostPools, _HostPools]] = {}
        #: Host that VMs may arrive on -> its row.
        self._row_of: dict[int, _HostsByRoom] = {}
        shut = set(closed)
        for number, host in enumerate(fleet.hosts):
            if host.capacity and not host.scheduled and number not in shut:
                self.open(number)

    def _row(self, host: int) -> _HostsByRoom:
        done, undone = self._pools.setdefault(self.index.fleet.hosts[host].pool, ({}, {}))
        rows = undone if host in self._undone else done
        return rows.setdefault((self.index.fault_zone[host], self.spread.values[host]), [])

    def open(self, host: int) -> None:
        """Allow VMs to arrive on a host."""
        row = self._row_of[host] = self._row(host)
        insort(row, (self.free[host], host))

    def close(self, host: int) -> bool:
        """Forbid VMs to arrive on a host; return whether it was allowed before."""
        row = self._row_of.pop(host, None)
        if row is None:
            return False
        del row[bisect_left(row, (self.free[host], host))]
        return True

    def groups_on(self, host: int) -> dict[int, int]:
        """Return the VMs on a host now, by group."""
        return self.spread.on_host[host]

    def evacuated(self, host: int, *, apart: bool) -> dict[int, int] | None:
        """Reserve a destination for each VM on a closed host; None if a VM has no destination.

        Large VMs are placed first. The VMs' old room is free only after the wave. If the driver
        chooses destinations, each destination is the host itself. With `apart`, also None if a
        group would lose a fault domain, or its labels or a limit would be kept less.
        """
        if self.index.fleet.hosts[host].scheduled:
            return dict.fromkeys(self.vms[host], host)
        sizes, groups, spread = self.index.fleet.vm_sizes, self.index.fleet.vm_groups, self.spread
        before = {group: spread.order(group) for group in spread.on_host[host]} if apart else {}
        moves: dict[int, int] = {}
        for vm in sorted(self.vms[host], key=lambda each: (-sizes[each], each)):
            group, size = groups[vm], sizes[vm]
            there = self._destination(host, group, size) if size else None
            if there is None or (apart and spread.exceeds(group, there)):
                self.stay(host, moves)
                return None
            self._take(there, size)
            spread.move(group, host, there)
            moves[vm] = there
        if any(spread.is_worse(group, *order) for group, order in before.items()):
            self.stay(host, moves)
            return None
        return moves

    def stay(self, host: int, moves: dict[int, int]) -> None:
        """Give up the destinations of VMs that are on a host."""
        fleet = self.index.fleet
        for vm, there in moves.items():
            if there != host:
                self._take(there, -fleet.vm_sizes[vm])
                self.spread.move(fleet.vm_groups[vm], there, host)

    def _take(self, host: int, size: int) -> None:
        row, free = self._row_of[host], self.free[host]
        del row[bisect_left(row, (free, host))]
        self.free[host] = free - size
        insort(row, (free - size, host))

    def _destination(self, host: int, group: int, size: int) -> int | None:
        """Return the best open host with room for a VM on another host; None if no host has room.

        Of equal hosts: first done, then of the same fault domain, then the fullest.
        """
        own = self.index.fault_zone[host], self.spread.values[host]
        best: _Rank | None = None
        for undone, rows in enumerate(self._pools.get(self.index.fleet.hosts[host].pool, ())):
            for place in chain((own,), rows):
                row = rows.get(place)
                if not row or row[-1][0] < size:
                    continue
                nearness = self.spread.nearness(group, place, leaving=host)
                if best is not None and not best[0] and nearness > best[1]:
                    continue
                start, other = bisect_left(row, (size, -1)), place[0] != own[0]
                alike = best is not None and best[:5] == (False, nearness, 0, undone, other)
                if best is not None and alike and row[start] > best[5:]:
                    continue  # all its hosts have more room
                exceeds, siblings, free, there = self._least(row, start, group)
                rank = (exceeds, nearness, siblings, undone, other, free, there)
                best = rank if best is None else min(best, rank)
                if best[:5] == (False, _APART, 0, undone, False):
                    return best[-1]
            if best is not None and best[:3] == (False, _APART, 0):
                break
        return best[-1] if best is not None else None

    def _least(self, row: _HostsByRoom, start: int, group: int) -> tuple[bool, int, int, int]:
        """Return the host of a row, from a position on, with the fewest VMs of a group.

        With whether it would exceed a limit, these VMs, and its free room.
        """
        on_host, spread = self.spread.on_host, self.spread
        limited = spread.is_limited(group)
        free, there = row[start]
        best = limited and spread.exceeds(group, there), on_host[there].get(group, 0), free, there
        for at in range(start + 1, min(len(row), start + _COMPARED_MAX)):
            if best[:2] == (False, 0):
                break
            free, there = row[at]
            siblings = on_host[there].get(group, 0)
            best = min(best, (limited and spread.exceeds(group, there), siblings, free, there))
        return best

    def arrive(self, moves: dict[int, int], host: int, *, reopen: bool) -> None:
        """Place the VMs of a host after its wave, and mark the host as done."""
        if self.index.fleet.hosts[host].scheduled:
            pass
        elif self._returning:
            self.stay(host, moves)
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
        hosts = self.index.fleet.hosts
        pools = self._pools.get(hosts[host].pool, ())
        there = [each for rows in pools for row in rows.values() for each in row if each[1] != host]
        return [hosts[other].name for _, other in sorted(there, reverse=True)[:_NAMED_MAX]]
