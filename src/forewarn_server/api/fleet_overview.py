"""The fleet overview: a letter for each host, counts for each rack, and live operations.

The overview is a copy of the relevant state, updated from each commit's changes, so that readers
never wait for the writer. A commit costs O(its changed records). Adding, removing or moving hosts
costs O(hosts), once for several commits.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from typing import TypeAlias

from forewarn_core.fleet.impact import TRAITS
from forewarn_core.fleet.indexes import Members
from forewarn_core.fleet.lifecycle import Alert, Event, Operation, OperationState
from forewarn_core.fleet.state import Changes
from forewarn_core.fleet.topology import Health, Host, Topology

#: Activity of a host or VM by letter; the first applicable letter counts.
STATES: dict[str, str] = {
    "s": "stuck",
    "o": "overdue",
    "b": "blocked",
    "f": "failed",
    "r": "running",
    "a": "announced",
    "p": "planned",
    "d": "degraded",
    "h": "quiet",
}
#: Maximum number of shown racks; a larger fleet combines neighbouring racks.
RACKS_MAX = 1000
#: Largest fleet whose hosts are shown individually; a larger fleet shows only racks.
HOSTS_SHOWN_MAX = 250_000
#: Maximum number of live operations shown initially, the most urgent first.
OPERATIONS_MAX = 200
#: Maximum number of changed hosts in a message; after more changes, clients reload everything.
CHANGED_HOSTS_MAX = 5000

#: The host label that names the rack.
RACK = "rack"
#: Sort key of a rack: zone, label or "", fault domain.
RackKey: TypeAlias = "tuple[str, tuple[tuple[int, str], ...], int]"

_RANK = {letter: rank for rank, letter in enumerate(STATES)}
_OF_HEALTH = {Health.FAILED: "f", Health.DEGRADED: "d", Health.HEALTHY: "h"}
_OF_OPERATION = {
    OperationState.RUNNING: "r",
    OperationState.ANNOUNCED: "a",
    OperationState.PLANNED: "p",
}


@dataclass(slots=True)
class Rack:
    """Hosts of one rack, or of several neighbouring racks, in a zone.

    The label `rack` names a host's rack; hosts without it are grouped by fault domain.
    """

    zone: str
    #: Name of the rack; for combined racks, the names of the first and last rack.
    first: str
    last: str
    #: Number of hosts by letter.
    hosts: Counter[str] = field(default_factory=Counter)
    #: Number of affected VMs by letter.
    disturbed: Counter[str] = field(default_factory=Counter)
    #: Number of all VMs on the rack.
    vms: int = 0


@dataclass(slots=True)
class OverviewDifference:
    """Changes of the overview since the last call."""

    #: Whether hosts were added, removed or moved: clients must reload everything.
    laid_out: bool = False
    hosts: dict[int, str] = field(default_factory=dict)
    racks: tuple[int, ...] = ()
    operations: tuple[Operation, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything has changed."""
        return bool(self.laid_out or self.hosts or self.racks or self.operations)


class FleetOverview:
    """The overview of a fleet. Not thread-safe."""

    def __init__(
        self,
        topology: Topology,
        operations: Mapping[int, Operation],
        events: Mapping[str, Event],
        *,
        listening: Iterable[str] = (),
    ) -> None:
        """Start with a whole state; O(fleet). `listening`: names of enabled groups."""
        self._listening = set(listening)
        self._hosts: dict[str, Host] = dict(topology.hosts)
        self._host_of = {vm.name: vm.host for vm in topology.vms.values()}
        self._vms_on = Counter(self._host_of.values())
        self.operations: dict[int, Operation] = {}
        self.events: dict[str, Event] = dict(events)
        self._on_host: Members[str] = Members()
        self._of_vm: Members[str] = Members()
        #: Affected VM -> its rack and letter.
        self._disturbed: dict[str, tuple[int, str]] = {}
        self._changed_hosts: set[int] = set()
        self._changed_racks: set[int] = set()
        self._changed_operations: dict[int, Operation] = {}
        self._laid_out = True
        self._told_layout = 0
        self._place: dict[str, int] = {}
        self._rack_of: dict[str, int] = {}
        #: Operation -> the host that counts the operation in `_on_host`.
        self._seats: dict[int, str] = {}
        #: Number of the layout; grows when hosts are added, removed or moved. A host's place is
        #: valid within one layout.
        self.layout = 0
        self.names: list[str] = []
        self.states = bytearray()
        self.racks: list[Rack] = []
        for operation in operations.values():
            self._index_operation(operation)
        self.settle()
        self.difference()

    @property
    def moving(self) -> bool:
        """Whether hosts were added, removed or moved since the last layout."""
        return self._laid_out

    def adopt(self, changes: Changes) -> None:
        """Apply the changes of a commit; O(their number)."""
        hosts: set[str] = set()
        vms = set(changes.vms)
        self._adopt_vms(changes, hosts)
        self._adopt_listeners(changes)
        for event in changes.events.values():
            if event.live:
                self.events[event.id] = event
            else:
                self.events.pop(event.id, None)
            current = self.operations.get(event.operation)
            if current is not None:
                self._changed_operations[current.number] = current
        for number, operation in changes.operations.items():
            before = self.operations.get(number)
            if before is not None:
                vms.update(before.vms)
                hosts.add(self._seats[number])
                self._unindex_operation(before)
            if operation.live:
                self._index_operation(operation)
                hosts.add(self._seats[number])
            vms.update(operation.vms)
            self._changed_operations[number] = operation
        hosts |= self._adopt_hosts(changes)
        if not self._laid_out:
            for name in vms:
                hosts |= self._refresh_vm(name)
            for name in hosts:
                self._refresh_host(name)

    def settle(self) -> None:
        """Rebuild the layout if hosts were added, removed or moved; O(hosts) for a rebuild."""
        if not self._laid_out:
            return
        self.layout += 1
        self.names = sorted(self._hosts, key=lambda name: (*self._key_of(name), name))
        self._place = {name: place for place, name in enumerate(self.names)}
        self._lay_racks()
        for number in tuple(self._seats):
            self._seat(self.operations[number])
        self.states = bytearray(b"h") * len(self.names)
        for name in self.names:
            letter = self._letter_of_host(name)
            self.racks[self._rack_of[name]].hosts[letter] += 1
            self.states[self._place[name]] = ord(letter)
        disturbed, self._disturbed = self._disturbed, {}
        for name in {*disturbed, *(vm for each in self.operations.values() for vm in each.vms)}:
            self._refresh_vm(name)
        self._laid_out = False
        self._changed_hosts.clear()
        self._changed_racks.clear()

    def _lay_racks(self) -> None:
        racks = [(key, list(names)) for key, names in groupby(self.names, self._key_of)]
        fold = max(-(-len(racks) // RACKS_MAX), 1)
        zones = len({key[0] for key, _ in racks})
        if fold > 1 and zones < RACKS_MAX // 2:
            fold = -(-len(racks) // (RACKS_MAX - zones))  # the last rack of a zone may be smaller
        self.racks, self._rack_of = [], {}
        folded = 0
        for key, names in racks:
            zone, name = key[0], _rack_name(key)
            apart = zones < RACKS_MAX // 2 and self.racks and self.racks[-1].zone != zone
            if not self.racks or apart or folded == fold:
                self.racks.append(Rack(zone, name, name))
                folded = 0
            folded += 1
            rack = self.racks[-1]
            rack.last = name
            for host in names:
                self._rack_of[host] = len(self.racks) - 1
                rack.vms += self._vms_on[host]

    def _key_of(self, name: str) -> RackKey:
        return _rack_key(self._hosts[name])

    def difference(self, operations_max: int = OPERATIONS_MAX) -> OverviewDifference:
        """Return the changes since the last call, up to a limit; the next call returns more."""
        layout, self._told_layout = self._told_layout, self.layout
        numbers = list(self._changed_operations)[:operations_max]
        changes = OverviewDifference(
            laid_out=layout != self.layout or len(self._changed_hosts) > CHANGED_HOSTS_MAX,
            racks=tuple(sorted(self._changed_racks)),
            operations=tuple(self._changed_operations.pop(number) for number in numbers),
        )
        if not changes.laid_out:
            changes.hosts = {place: chr(self.states[place]) for place in self._changed_hosts}
        self._changed_hosts.clear()
        self._changed_racks.clear()
        return changes

    def urgent(self, limit: int = OPERATIONS_MAX) -> list[Operation]:
        """Return running operations, then those that start next; O(live operations)."""
        return heapq.nsmallest(limit, self.operations.values(), key=_urgency)

    def counts(self) -> Counter[str]:
        """Return the number of live operations by state."""
        return Counter(each.state.value for each in self.operations.values())

    def _adopt_listeners(self, changes: Changes) -> None:
        for group, enrolment in changes.enrolments.items():
            if enrolment is None:
                self._listening.discard(group)
            else:
                self._listening.add(group)

    def approvals(self, operation: Operation) -> tuple[int, int]:
        """Return the number of approved or started events, and the number of asked groups.

        The two numbers exclude groups that do not listen for events. Source: B-2.
        """
        events = [self.events[each] for each in operation.events if each in self.events]
        events = [event for event in events if event.group in self._listening]
        return sum(1 for event in events if event.state.value != "scheduled"), len(events)

    def encoded_states(self) -> str:
        """Return every host's letter in order of names, run-length encoded: `h40r1h9`."""
        if len(self.names) > HOSTS_SHOWN_MAX:
            return ""
        letters = self.states.decode("ascii")
        return "".join(f"{letter}{sum(1 for _ in same)}" for letter, same in groupby(letters))

    def hosts(self, first: int, count: int) -> list[tuple[str, int]]:
        """Return the names and VM counts of hosts at the given places."""
        return [(name, self._vms_on[name]) for name in self.names[first : first + count]]

    def place_of(self, host: str) -> int | None:
        """Return the place of a host; None if the host is unknown."""
        return self._place.get(host)

    # --- updates ------------------------------------------------------------------------------

    def _adopt_vms(self, changes: Changes, hosts: set[str]) -> None:
        for name, vm in changes.vms.items():
            before = self._host_of.pop(name, None)
            if before is not None:
                self._vms_on[before] -= 1
                self._count_vm(before, -1)
            if vm is not None:
                self._host_of[name] = vm.host
                self._vms_on[vm.host] += 1
                self._count_vm(vm.host, 1)
            for number in self._of_vm.of(name):
                hosts.add(self._seats[number])
                hosts.add(self._seat(self.operations[number]))

    def _count_vm(self, host: str, count: int) -> None:
        rack = self._rack_of.get(host)
        if rack is not None:
            self.racks[rack].vms += count
            self._changed_racks.add(rack)

    def _adopt_hosts(self, changes: Changes) -> set[str]:
        for name, host in changes.hosts.items():
            before = self._hosts.get(name)
            if host is None:
                self._hosts.pop(name, None)
                self._vms_on.pop(name, None)
            else:
                self._hosts[name] = host
            if before is None or host is None or _rack_key(before) != _rack_key(host):
                self._laid_out = True
        return set(changes.hosts)

    def _index_operation(self, operation: Operation) -> None:
        self.operations[operation.number] = operation
        self._seat(operation)
        for vm in operation.vms:
            self._of_vm.add(vm, operation.number)

    def _unindex_operation(self, operation: Operation) -> None:
        del self.operations[operation.number]
        self._on_host.discard(self._seats.pop(operation.number), operation.number)
        for vm in operation.vms:
            self._of_vm.discard(vm, operation.number)

    def _seat(self, operation: Operation) -> str:
        """Count an operation on its host or its VM's host, and return this host."""
        host = operation.host
        if operation.of_vm:
            host = self._host_of.get(operation.target, host)
        self._on_host.discard(self._seats.get(operation.number, ""), operation.number)
        self._on_host.add(host, operation.number)
        self._seats[operation.number] = host
        return host

    def _refresh_vm(self, name: str) -> set[str]:
        """Count a VM on its current host; return the host whose letter may have changed."""
        rack, letter = self._disturbed.pop(name, (-1, ""))
        if letter:
            self.racks[rack].disturbed[letter] -= 1
            self._changed_racks.add(rack)
        host = self._host_of.get(name)
        numbers = self._of_vm.of(name)
        if host is None or not numbers:
            return {host} if host else set()
        letter = _most_urgent(self._operation_letter(number) for number in numbers)
        rack = self._rack_of[host]
        self.racks[rack].disturbed[letter] += 1
        self._disturbed[name] = rack, letter
        self._changed_racks.add(rack)
        return {host}

    def _refresh_host(self, name: str) -> None:
        place = self._place.get(name)
        if place is None:
            return
        before, letter = chr(self.states[place]), self._letter_of_host(name)
        if before != letter:
            rack = self._rack_of[name]
            self.racks[rack].hosts[before] -= 1
            self.racks[rack].hosts[letter] += 1
            self.states[place] = ord(letter)
            self._changed_hosts.add(place)
            self._changed_racks.add(rack)

    def _letter_of_host(self, name: str) -> str:
        health = _OF_HEALTH[self._hosts[name].health]
        return _most_urgent((health, *map(self._operation_letter, self._on_host.of(name))))

    def _operation_letter(self, number: int) -> str:
        operation = self.operations[number]
        alert = operation.alert
        if TRAITS[operation.cause].fault:
            return "f"  # its VMs are down, not worked on
        return _OF_OPERATION[operation.state] if alert is Alert.NONE else alert.value[0]


def _rack_key(host: Host) -> RackKey:
    label = next((value for key, value in host.labels if key == RACK), "")
    return host.zone, _sorted_naturally(label), 0 if label else host.fault_domain


@lru_cache(RACKS_MAX)
def _sorted_naturally(label: str) -> tuple[tuple[int, str], ...]:
    """Return a key that sorts `r10` after `r9`: digits as numbers."""
    parts = (part for part in re.split(r"(\d+)", label) if part)
    return tuple((int(part), part) if part.isdecimal() else (-1, part) for part in parts)


def _rack_name(key: RackKey) -> str:
    _, label, domain = key
    return f"rack {''.join(part for _, part in label)}" if label else f"fault domain {domain}"


def _most_urgent(letters: Iterable[str]) -> str:
    return min(letters, key=_RANK.__getitem__)


def _urgency(operation: Operation) -> tuple[int, int, int]:
    """Return the sort key of an operation: state, then actual or earliest start."""
    if operation.state is OperationState.RUNNING:
        return 0, operation.execution.started_ms or 0, operation.number
    if operation.state is OperationState.ANNOUNCED:
        return 1, operation.not_before_ms, operation.number
    return 2, operation.requested_start_ms or operation.created_ms, operation.number
