"""Reading orders of many hosts and how far their operations are, ended ones too.

Nothing is written in here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.lifecycle import OperationState
from forewarn.core.order import Order

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forewarn.store.engine import Engine
    from forewarn.store.reading import StoreReader

#: Orders on one page.
PAGE_MAX = 100
_NEWEST = (1 << 63) - 1


class OrderReader:
    """Reads beside the writer, on any thread."""

    def __init__(self, engine: Engine, reader: StoreReader) -> None:
        """Read from an engine whose schema is up to date."""
        self._engine, self._reader = engine, reader

    def get(self, number: int) -> Order | None:
        """Return an order by its number."""
        with self._engine.reading() as transaction:
            rows = transaction.rows("order", number=number)
        return next(iter(self._reader.decoded(Order, rows)), None)

    def page(self, before: int = 0, limit: int = PAGE_MAX) -> list[Order]:
        """Return orders with lower numbers, newest first; 0: from the newest."""
        with self._engine.reading() as transaction:
            rows = transaction.rows("orders", before=before or _NEWEST, limit=limit)
        return self._reader.decoded(Order, rows)

    def states(self, number: int) -> Mapping[OperationState, int]:
        """Return how many of an order's operations are in each state; costs them."""
        with self._engine.reading() as transaction:
            rows = transaction.rows("order_states", number=number)
        return {OperationState(str(state)): int(count) for state, count in rows}
