"""Draws from a seed: whole numbers only, the same on every machine and Python version.

No clock and no decision about what is drawn for may live here.
"""

from collections.abc import Sequence
from typing import TypeVar

from forewarn_base.ids import Ids

T = TypeVar("T")

#: Bits of one draw: the bias for limits below a million is then under 1 in 10**8.
DRAW_BITS = 48


class Dice:
    """One stream of draws; each purpose has its own, so that none disturbs another."""

    def __init__(self, seed: int, purpose: str) -> None:
        """Begin the stream of a purpose."""
        self._bits = Ids(seed).stream(purpose).getrandbits

    def below(self, limit: int) -> int:
        """Draw from 0 up to but without `limit`."""
        assert limit > 0
        return self._bits(DRAW_BITS) * limit >> DRAW_BITS

    def between(self, low: int, high: int) -> int:
        """Draw from `low` to `high`, both included."""
        return low + self.below(high - low + 1)

    def chance(self, permille: int) -> bool:
        """Say yes this many times in a thousand; what cannot happen is not drawn."""
        return permille > 0 and self.below(1000) < permille

    def pick(self, among: Sequence[T]) -> T:
        """Draw one of some things."""
        return among[self.below(len(among))]

    def some(self, among: Sequence[T], count: int) -> list[T]:
        """Draw `count` different things, or all if there are fewer, in the order drawn."""
        left = list(among)
        return [left.pop(self.below(len(left))) for _ in range(min(count, len(left)))]
