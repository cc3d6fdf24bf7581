"""Reading orders of many hosts and how far their operations are, ended ones too.

Nothing is written in here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.lifecycle import OperationState
from forewarn.core.order import Order

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forewarn.store.reading import StoreReader

#: Orders on one page.
PAGE_MAX = 100
_NEWEST = (1 << 63) - 1


class OrderReader:
    """Reads beside the writer, on any thread."""

    def __init__(self, reader: StoreReader) -> None:
        """Read from a store."""
        self._reader = reader

    def get(self, number: int) -> Order | None:
        """Return an order by its number."""
        return next(iter(self._reader.records(Order, "order", number=number)), None)

    def page(self, before: int = 0, limit: int = PAGE_MAX) -> list[Order]:
        """Return orders with lower numbers, newest first; 0: from the newest."""
        return self._reader.records(Order, "orders", before=before or _NEWEST, limit=limit)

    def states(self, number: int) -> Mapping[OperationState, int]:
        """Return how many of an order's operations are in each state; costs them."""
        rows = self._reader.rows("order_states", number=number)
        return {OperationState(str(state)): int(count) for state, count in rows}
