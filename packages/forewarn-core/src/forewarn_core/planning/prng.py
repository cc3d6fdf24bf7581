"""A small generator of integers: a seed gives the same plan on every version of Python.

The planner uses no other randomness; its caller chooses the seed.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import TypeVar

_T = TypeVar("_T")
_MASK = (1 << 64) - 1
#: An odd constant that spreads small seeds: 2**64 over the golden ratio.
_SPREAD = 0x9E3779B97F4A7C15


class Prng:
    """Marsaglia's xorshift64: three shifts per number, a period of 2**64 - 1."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        """Start the sequence of a seed; any integer is valid."""
        self._state = ((seed + 1) * _SPREAD) & _MASK or _SPREAD

    def below(self, limit: int) -> int:
        """Return the next number from 0 to `limit` - 1."""
        assert limit > 0, limit
        state = self._state
        state ^= (state << 13) & _MASK
        state ^= state >> 7
        state ^= (state << 17) & _MASK
        self._state = state
        return (state >> 11) % limit

    def shuffle(self, items: MutableSequence[_T]) -> None:
        """Put items into a random order, in place."""
        for last in range(len(items) - 1, 0, -1):
            other = self.below(last + 1)
            items[last], items[other] = items[other], items[last]
