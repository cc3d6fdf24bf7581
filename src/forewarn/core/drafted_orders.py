"""Orders as a draft sees them: what is, and what the draft has written over it.

Which change is right is decided in `ordering.py`, never here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forewarn.core.order import Order, OrderHosts
    from forewarn.core.state import Changes, State


class DraftedOrders:
    """Reads orders through a draft's changes to the state."""

    def __init__(self, state: State, changes: Changes) -> None:
        """Read these two; nothing is written by this."""
        self._state, self._changes = state, changes

    def get(self, number: int) -> Order | None:
        """Return an order as drafted, or as it is; None if it is not live."""
        return self._changes.orders.get(number) or self._state.orders.get(number)

    def hosts(self, number: int) -> OrderHosts:
        """Return the hosts of an order some of which have no turn yet."""
        found = self._state.order_hosts.get(number)
        assert found is not None, number
        return found

    def live(self) -> tuple[Order, ...]:
        """Return those that had not ended before this draft."""
        return tuple(self._state.orders.values())

    def operations(self, number: int) -> list[int]:
        """Return the numbers of an order's operations that had not ended, sorted; costs them."""
        return sorted(self._state.places.of(("request", number)))

    def works(self, number: int) -> bool:
        """Whether an order has operations that have not ended; costs what is drafted."""
        before = self._state.places.of(("request", number))
        drafted = self._changes.operations.values()
        ended = sum(not each.live and each.number in before for each in drafted)
        return len(before) > ended or any(each.live and each.request == number for each in drafted)
