"""What a step must look at again: one ordered set of keys, drained by `step.py`.

The code that changes a record adds the keys; the rule of each key decides what follows.
"""

from __future__ import annotations

from enum import IntEnum
from heapq import heappop, heappush
from typing import TypeAlias


class StepRule(IntEnum):
    """The rules of a step; the first rule that has a key runs next."""

    #: A maintenance stops, is done, or ends its wave.
    CONCLUDE = 1
    #: Announced work that waits for no other work is withdrawn, starts or waits.
    START_UNBOUND = 2
    #: Announced routine work and work on a VM is withdrawn, starts or waits.
    START = 3
    #: Planned work is announced or waits.
    ANNOUNCE = 4
    #: Hosts of a maintenance's wave that is due are announced.
    WAVE = 5
    #: A group's documents are brought up to date.
    DOCUMENTS = 6


#: A rule, what goes first under it, and the number or the group that is to be looked at.
Key: TypeAlias = "tuple[StepRule, int, int] | tuple[StepRule, int, str]"


class Agenda:
    """An ordered set of keys; to add or take one costs the logarithm of how many there are."""

    def __init__(self) -> None:
        """Begin with none."""
        self._heap: list[Key] = []
        self._keys: set[Key] = set()

    def add(self, rule: StepRule, subject: int | str, first: int = 0) -> None:
        """Add a number or a group; the smallest `first` under a rule goes first."""
        key: Key = (rule, first, subject)  # type: ignore[assignment]  # each rule has one type
        if key not in self._keys:
            self._keys.add(key)
            heappush(self._heap, key)

    def next_rule(self) -> StepRule | None:
        """Return the rule that runs next; None if the agenda is empty."""
        return self._heap[0][0] if self._heap else None

    def take(self) -> int | str:
        """Remove and return the next number or group."""
        key = heappop(self._heap)
        self._keys.discard(key)
        return key[2]
