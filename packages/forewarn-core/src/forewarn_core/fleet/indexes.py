"""Indexes of operations by host, VM, group, owner and request.

Indexes are derived from the records and the layout, and never stored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Generic, TypeAlias, TypeVar

from forewarn_core.fleet.impact import Impact, Source
from forewarn_core.fleet.lifecycle import Operation, OperationState
from forewarn_core.fleet.topology import Topology

K = TypeVar("K")
#: An index entry: the name of an index, and a key in it.
Place: TypeAlias = "tuple[str, str | int | tuple[int, int | None]]"


class Members(Generic[K]):
    """Sets of operation numbers by key; most keys have one number."""

    def __init__(self) -> None:
        self._of: dict[K, int | set[int]] = {}

    def add(self, key: K, number: int) -> None:
        """Add a number."""
        members = self._of.setdefault(key, number)
        if isinstance(members, set):
            members.add(number)
        elif members != number:
            self._of[key] = {members, number}

    def discard(self, key: K, number: int) -> None:
        """Remove a number, if present."""
        members = self._of.get(key)
        if isinstance(members, set):
            members.discard(number)
            if len(members) == 1:
                self._of[key] = members.pop()
        elif members == number:
            del self._of[key]

    def of(self, key: K) -> Collection[int]:
        """Return the numbers of a key, in any order."""
        members = self._of.get(key)
        if members is None:
            return ()
        return members if isinstance(members, set) else (members,)

    def at(self, keys: Iterable[K]) -> set[K]:
        """Return the given keys that have a number; O(keys)."""
        members = self._of
        return {key for key in keys if key in members} if members else set()

    def all(self) -> dict[K, set[int]]:
        """Return all entries, to compare with; O(entries)."""
        return {key: set(self.of(key)) for key in self._of}


class Places(Members[Place]):
    """The index entries of each live operation; a change costs the operation's own places."""

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[int, tuple[Place, ...]] = {}
        #: Place of coupled deletions -> undecided deletions; absent: all deletions of the place.
        self.undecided: dict[Place, list[int]] = {}

    def put(self, operation: Operation, topology: Topology) -> None:
        """Index a live operation under its places, and remove it from all others."""
        number = operation.number
        before = set(self._places.get(number, ()))
        after = tuple(places_of(operation, topology))
        for place in before.difference(after):
            self._leave(place, number)
        for place in after:
            if place not in before:
                self.add(place, number)
                self.undecided.pop(place, None)
        self._places[number] = after

    def drop(self, number: int) -> None:
        """Remove an operation from the index, if present."""
        for place in self._places.pop(number, ()):
            self._leave(place, number)

    def undecided_at(self, place: Place) -> list[int]:
        """Return the undecided coupled deletions at a place; the caller may remove some."""
        numbers = self.undecided.get(place)
        if numbers is None:
            numbers = [*self.of(place)]
            if numbers:
                self.undecided[place] = numbers
        return numbers

    def _leave(self, place: Place, number: int) -> None:
        self.discard(place, number)
        if place in self.undecided and not self.of(place):
            del self.undecided[place]


def places_of(operation: Operation, topology: Topology) -> Iterator[Place]:
    """Yield the places of a live operation; O(its VMs)."""
    state = operation.state
    assert operation.live, operation
    yield "state", state.value
    if not operation.of_vm:
        yield "host", operation.host
    for host in operation.destinations:
        yield "destination", host
    if operation.of_vm or state is not OperationState.PLANNED:
        for name in operation.vms:
            yield "vm", name
    if is_disturbing(operation):
        for group in disturbed_groups(topology, operation):
            yield "group", group
    if state is not OperationState.RUNNING:
        yield from _places_until_start(operation, topology)


def _places_until_start(operation: Operation, topology: Topology) -> Iterator[Place]:
    if operation.impact is Impact.TERMINATE and operation.state is OperationState.ANNOUNCED:
        yield "deletion", deletion_key(operation)
    if operation.source is Source.USER and operation.of_vm and not operation.silent:
        for name in operation.vms[:1]:
            vm = topology.vms.get(name)
            if vm is not None:
                yield "owner", topology.groups[vm.group].owner


def is_placed_alike(one: Operation, other: Operation) -> bool:
    """Whether a changed operation keeps its index entries in an unchanged layout."""
    return (
        one.state is other.state
        and one.notice.not_before_ms == other.notice.not_before_ms
        and one.execution.placements == other.execution.placements
        and one.vms == other.vms
    )


def deletion_key(operation: Operation) -> tuple[int, int | None]:
    """Return the key that coupled deletions share. See A-8."""
    return operation.request, operation.notice.not_before_ms


def is_disturbing(operation: Operation) -> bool:
    """Whether an operation can make routine work wait. See G-1."""
    if operation.state is OperationState.RUNNING:
        return True
    return operation.routine and operation.state is OperationState.ANNOUNCED


def disturbed_groups(topology: Topology, operation: Operation) -> tuple[str, ...]:
    """Return the groups that an announced or running operation disturbs, sorted. See G-1.

    Uses the host's current VMs, because VMs named by the work may have left, and VMs of a lost host
    may have arrived. A user's work on a VM disturbs nobody else.
    """
    if not operation.of_vm:
        vms = topology.vms
        return tuple(sorted({vms[name].group for name in topology.vms_on(operation.host)}))
    vm = topology.vms.get(operation.vms[0])
    return (vm.group,) if vm and operation.routine else ()
