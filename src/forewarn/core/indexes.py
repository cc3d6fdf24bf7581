"""Which operations a host, VM, group, owner or request has: how a step finds what it touches.

Indexes are derived from the records and the layout, and never durable.
No rule about change may live here.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from forewarn.core.impact import Impact, Source
from forewarn.core.lifecycle import Operation, OperationState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from forewarn.core.topology import Topology

K = TypeVar("K")
#: What an operation is found by: the name of an index, and a key in it.
Place: TypeAlias = "tuple[str, str | int | tuple[int, int | None]]"


class Members(Generic[K]):
    """Numbers by key; most keys have one."""

    def __init__(self) -> None:
        """Begin with none."""
        self._of: dict[K, int | set[int]] = {}

    def add(self, key: K, number: int) -> None:
        """Put a number in."""
        known = self._of.setdefault(key, number)
        if isinstance(known, set):
            known.add(number)
        elif known != number:
            self._of[key] = {known, number}

    def discard(self, key: K, number: int) -> None:
        """Take a number out, if it is there."""
        known = self._of.get(key)
        if isinstance(known, set):
            known.discard(number)
            if len(known) == 1:
                self._of[key] = known.pop()
        elif known == number:
            del self._of[key]

    def of(self, key: K) -> Collection[int]:
        """The numbers of a key, in no order."""
        known = self._of.get(key)
        if known is None:
            return ()
        return known if isinstance(known, set) else (known,)

    def at(self, keys: Iterable[K]) -> set[K]:
        """Return those of some keys that have any number; costs the keys."""
        known = self._of
        return {key for key in keys if key in known} if known else set()

    def all(self) -> dict[K, set[int]]:
        """Everything, for a comparison; costs what there is."""
        return {key: set(self.of(key)) for key in self._of}


class Places:
    """The index entries of each live operation; a change costs its own places."""

    def __init__(self) -> None:
        """Begin with none."""
        self._members: Members[Place] = Members()
        self._places: dict[int, tuple[Place, ...]] = {}
        #: Where coupled deletions are found -> those of them not seen to be decided; none: all.
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
                self._members.add(place, number)
                self.undecided.pop(place, None)
        self._places[number] = after

    def drop(self, number: int) -> None:
        """Forget an operation, if it is known."""
        for place in self._places.pop(number, ()):
            self._leave(place, number)

    def undecided_at(self, place: Place) -> list[int]:
        """Return the coupled deletions at a place not seen to be decided, to be taken from."""
        known = self.undecided.get(place)
        if known is None:
            known = [*self._members.of(place)]
            if known:
                self.undecided[place] = known
        return known

    def _leave(self, place: Place, number: int) -> None:
        self._members.discard(place, number)
        if place in self.undecided and not self._members.of(place):
            del self.undecided[place]

    def of(self, place: Place) -> Collection[int]:
        """Numbers of the operations at a place, in no order."""
        return self._members.of(place)

    def at(self, places: Iterable[Place]) -> set[Place]:
        """Return those of some places where there is any operation; costs the places."""
        return self._members.at(places)

    def all(self) -> dict[Place, set[int]]:
        """Everything, for a comparison; costs what there is."""
        return self._members.all()


def places_of(operation: Operation, topology: Topology) -> Iterator[Place]:
    """Yield where a live operation is found; costs the VMs it is about."""
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
    """Whether a change of an operation leaves its index entries, if the layout is the same."""
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
    """Whether routine work must keep clear of an operation somewhere. See G-1."""
    if operation.state is OperationState.RUNNING:
        return True
    return operation.routine and operation.state is OperationState.ANNOUNCED


def disturbed_groups(topology: Topology, operation: Operation) -> tuple[str, ...]:
    """The groups that an operation disturbs, sorted, if it is under way. See G-1.

    Those who are there now: some that work on a host names may have left, others may have been
    moved there from a host that was lost. A user's work on a VM is the user's own business.
    """
    if not operation.of_vm:
        vms = topology.vms
        return tuple(sorted({vms[name].group for name in topology.vms_on(operation.host)}))
    vm = topology.vms.get(operation.vms[0])
    return (vm.group,) if vm and operation.routine else ()
