"""What is taken of each budget as a draft sees it: the state's counts, and what the draft changes.

Nothing is decided in here.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

from forewarn.core.usage import Disturbed, Share, add, share_of_host, share_of_vms

if TYPE_CHECKING:
    from forewarn.core.indexes import Place
    from forewarn.core.lifecycle import Operation
    from forewarn.core.state import Changes
    from forewarn.core.topology import Topology
    from forewarn.core.usage import Usage
    from forewarn.planning.policy import Subject


class Drafted(Protocol):
    """What of a draft is counted."""

    topology: Topology
    changes: Changes

    def operation(self, number: int) -> Operation | None:
        """Return an operation as drafted, or as it is."""

    def operations(self, *places: Place) -> list[Operation]:
        """Return the live operations at any of these places."""

    def look_at(self, number: int) -> None:
        """Have an operation looked at once more."""


class DraftedUsage:
    """Counts again what the draft has touched, when it is asked next; costs that alone."""

    def __init__(self, usage: Usage, draft: Drafted) -> None:
        """Begin with what the state has."""
        self._usage, self._draft = usage, draft
        self._touched: dict[Disturbed, None] = {}
        self._shares: dict[Disturbed, Share | None] = {}
        self._taken: Counter[Subject] = Counter()
        self._running: Counter[Subject] = Counter()

    def touch(self, disturbed: Disturbed) -> None:
        """Have a host or an operation counted again."""
        self._touched[disturbed] = None

    def taken(self, subject: Subject) -> int:
        """How many are announced, disturbed or failed."""
        self._count()
        return self._usage.taken[subject] + self._taken[subject]

    def running(self, subject: Subject) -> int:
        """How many are disturbed or have failed."""
        self._count()
        return self._usage.running[subject] + self._running[subject]

    def wait(self, number: int, subject: Subject | None) -> None:
        """Have an operation woken when there may be room for it; not any more if None."""
        drafted = self._draft.changes.short
        if subject is not None or number in drafted or self._usage.is_waiting(number):
            drafted[number] = subject

    def wake(self, disturbed: Disturbed) -> None:
        """Have those looked at again that wait for room where something takes it, or took it."""
        drafted = self._draft.changes.short
        waiting = [*self._usage.waiting(disturbed), *(n for n in drafted if drafted[n])]
        for number in waiting:
            if drafted.get(number, ("", "")) is not None:
                self._draft.look_at(number)

    def _count(self) -> None:
        for disturbed in self._touched:
            known = disturbed in self._shares
            before = self._shares[disturbed] if known else self._usage.share(disturbed)
            after = self._share(disturbed)
            if before is not None:
                add(self._taken, self._running, before, sign=-1)
            if after is not None:
                add(self._taken, self._running, after, sign=1)
            self._shares[disturbed] = after
        self._touched.clear()

    def _share(self, disturbed: Disturbed) -> Share | None:
        draft = self._draft
        if isinstance(disturbed, str):
            return share_of_host(draft.topology, disturbed, draft.operations(("host", disturbed)))
        operation = draft.operation(disturbed)
        return share_of_vms(draft.topology, operation) if operation else None
