"""What each client saw: every poll and approval, as it was asked and answered, by true time.

Nothing is checked in here (`client_checker.py`).
"""

from typing import NamedTuple


class Exchange(NamedTuple):
    """One request of a VM and its answer. Times are true time, in ms."""

    vm: str
    node: str
    asked_ms: int
    #: When the client had the answer; 0 where it never did.
    answered_ms: int
    status: int
    #: What it approved; empty for a poll.
    event_ids: tuple[str, ...] = ()
    view: str = ""
    version: str = ""
    incarnation: int = -1
    body: bytes = b""


class ClientHistory:
    """The exchanges of one world, in the order of asking."""

    def __init__(self) -> None:
        """Begin empty."""
        self.exchanges: list[Exchange] = []

    def add(self, exchange: Exchange) -> None:
        """Note one more."""
        self.exchanges.append(exchange)

    def of(self, vm: str) -> list[Exchange]:
        """What one VM asked and was answered."""
        return [exchange for exchange in self.exchanges if exchange.vm == vm]
