"""How much of each budget is taken, counted when it is asked; derived, never durable.

Of the state, and as a draft sees it. Which limits there are, and what follows where one is
reached, is decided in `maintenance/`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol, TypeAlias

from forewarn.core.indexes import Members, is_disturbing
from forewarn.core.labels import words_of
from forewarn.core.lifecycle import OperationState
from forewarn.core.naming import RACK
from forewarn.core.topology import Health
from forewarn.planning.policy import Scope, Subject

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from forewarn.core.indexes import Place, Places
    from forewarn.core.lifecycle import Operation
    from forewarn.core.topology import Topology

#: What is disturbed, see `Operation.budget_key`: a host by its name, or the VMs of an operation.
Disturbed: TypeAlias = "str | int"
#: Subjects that something takes, one for each host or VM, and whether it is disturbed already.
Share: TypeAlias = "tuple[tuple[Subject, ...], bool]"

FLEET: Subject = (Scope.FLEET, "")
#: Most hosts and operations that a change leaves to be counted: what the next question may cost.
UNCOUNTED_MAX = 100


class Usage:
    """What announced and running work and failed hosts take of each subject of a budget.

    As of when that was counted last; `State.counted` does so first.
    """

    def __init__(self) -> None:
        """Begin with nothing taken."""
        #: By everything that is announced, runs or has failed; and without what is announced.
        self.taken: Counter[Subject] = Counter()
        self.running: Counter[Subject] = Counter()
        self._shares: dict[Disturbed, Share] = {}
        #: What may take something else by now.
        self.uncounted: set[Disturbed] = set()
        #: Announced operation -> the subject in which it waits for room, and back.
        self.short: dict[int, Subject] = {}
        self._waiting: Members[Subject] = Members()

    def count(
        self, topology: Topology, operations: Mapping[int, Operation], places: Places
    ) -> None:
        """Count what is left to be; costs the VMs of that."""
        for disturbed in self.uncounted:
            if isinstance(disturbed, str):
                on = [operations[number] for number in places.of(("host", disturbed))]
                self.put(disturbed, share_of_host(topology, disturbed, on))
            else:
                known = operations.get(disturbed)
                self.put(disturbed, share_of_vms(topology, known) if known else None)
        self.uncounted.clear()

    def share(self, disturbed: Disturbed) -> Share | None:
        """Return what a host or an operation takes; None if nothing."""
        return self._shares.get(disturbed)

    def put(self, disturbed: Disturbed, share: Share | None) -> None:
        """Count what a host or an operation takes now in place of what it took; costs its VMs."""
        before = self._shares.pop(disturbed, None)
        if before is not None:
            add(self.taken, self.running, before, sign=-1)
            for subject in before[0]:
                for counts in (self.taken, self.running):
                    if not counts[subject]:
                        del counts[subject]
        if share is not None:
            add(self.taken, self.running, share, sign=1)
            self._shares[disturbed] = share

    def wait(self, number: int, subject: Subject | None) -> None:
        """Have an operation found by the subject in which it waits for room; by none if None."""
        before = self.short.pop(number, None)
        if before is not None:
            self._waiting.discard(before, number)
        if subject is not None:
            self.short[number] = subject
            self._waiting.add(subject, number)

    def waiting(self, disturbed: Disturbed) -> Iterator[int]:
        """Yield the operations that wait for room where something takes it."""
        share = self._shares.get(disturbed)
        for subject in dict.fromkeys(share[0]) if share else ():
            yield from self._waiting.of(subject)


class Counting(Protocol):
    """What of a state is asked."""

    usage: Usage

    def counted(self) -> Usage:
        """What is taken of each budget."""


class Drafted(Protocol):
    """What of a draft is counted."""

    topology: Topology
    #: What it has touched, until that is counted.
    uncounted: set[Disturbed]

    def operation(self, number: int) -> Operation | None:
        """Return an operation as drafted, or as it is."""

    def operations(self, *places: Place) -> list[Operation]:
        """Return the live operations at any of these places."""

    def look_at(self, number: int) -> None:
        """Have an operation looked at once more."""


class DraftedUsage:
    """Counts again what the draft has touched, when it is asked next; costs that alone."""

    def __init__(
        self, state: Counting, draft: Drafted, short: Mapping[int, Subject | None]
    ) -> None:
        """Begin with what the state has; `short` is what the draft has wait for room."""
        self._state, self._draft, self._short = state, draft, short
        self._shares: dict[Disturbed, Share | None] = {}
        self._taken: Counter[Subject] = Counter()
        self._running: Counter[Subject] = Counter()

    def taken(self, subject: Subject) -> int:
        """How many are announced, disturbed or failed."""
        return self._count().taken[subject] + self._taken[subject]

    def running(self, subject: Subject) -> int:
        """How many are disturbed or have failed."""
        return self._count().running[subject] + self._running[subject]

    def wake(self, disturbed: Disturbed) -> None:
        """Have those looked at again that wait for room where something takes it, or took it."""
        drafted = self._short
        known = self._state.counted().waiting(disturbed) if self._state.usage.short else ()
        for number in (*known, *(n for n in drafted if drafted[n])):
            self._draft.look_at(number)

    def _count(self) -> Usage:
        """Count what was touched; return what the state has."""
        usage = self._state.counted()
        for disturbed in self._draft.uncounted:
            known = disturbed in self._shares
            before = self._shares[disturbed] if known else usage.share(disturbed)
            after = self._share(disturbed)
            if before is not None:
                add(self._taken, self._running, before, sign=-1)
            if after is not None:
                add(self._taken, self._running, after, sign=1)
            self._shares[disturbed] = after
        self._draft.uncounted.clear()
        return usage

    def _share(self, disturbed: Disturbed) -> Share | None:
        draft = self._draft
        if isinstance(disturbed, str):
            return share_of_host(draft.topology, disturbed, draft.operations(("host", disturbed)))
        operation = draft.operation(disturbed)
        return share_of_vms(draft.topology, operation) if operation else None


def add(taken: Counter[Subject], running: Counter[Subject], share: Share, *, sign: int) -> None:
    """Add a share to counts, or take it from them."""
    subjects, is_running = share
    for subject in subjects:
        taken[subject] += sign
        if is_running:
            running[subject] += sign


def share_of_host(topology: Topology, name: str, operations: Iterable[Operation]) -> Share | None:
    """Return what a host takes with the live operations on it; work twice disturbs it once."""
    known = topology.hosts.get(name)
    found = [each for each in operations if not each.of_vm and is_disturbing(each)]
    failed = known is not None and known.health is Health.FAILED
    if not found and not failed:
        return None
    running = failed or any(each.state is OperationState.RUNNING for each in found)
    return subjects_of_host(topology, name), running


def share_of_vms(topology: Topology, operation: Operation) -> Share | None:
    """Return what work on a VM takes of the limits for its group and owner."""
    if not is_disturbing(operation):
        return None
    running = operation.state is OperationState.RUNNING
    return tuple(_subjects_of_vms(topology, operation.vms)), running


def subjects_of_host(topology: Topology, name: str) -> tuple[Subject, ...]:
    """Return what work on a host takes: one of its places each, one of group and owner a VM."""
    known = topology.hosts.get(name)
    if known is None:
        return ()
    words = words_of(known)
    rack = dict(known.labels).get(RACK, "")
    places = [FLEET, (Scope.ZONE, known.zone), (Scope.RACK, rack)]
    places += [(Scope.LABEL, word) for word in sorted(words)]
    return (*places, *_subjects_of_vms(topology, topology.vms_on(name)))


def _subjects_of_vms(topology: Topology, names: Iterable[str]) -> Iterator[Subject]:
    for name in names:
        vm = topology.vms.get(name)
        if vm is not None:
            yield Scope.GROUP, vm.group
            yield Scope.OWNER, topology.groups[vm.group].owner
