"""An order: work on many hosts that was asked for at once, as a value. Source: ADR 0040.

What becomes of an order is decided in `ordering.py`, never here.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forewarn.core.impact import Cause, Impact, Source

#: Hosts that one order may name: as many as a maintenance.
ORDER_TARGETS_MAX = 100_000


@value
class Order:
    """Work on many hosts, and how many of them have had their turn.

    Times are ms since the epoch UTC; 0: none.
    """

    #: Of the same sequence as the numbers of operations, and the `request` of its operations.
    number: int
    cause: Cause
    impact: Impact
    source: Source
    #: How many hosts it names.
    hosts: int
    #: SHA-256 of their names, sorted, in hexadecimal: shows whether another order is the same.
    digest: str
    description: str
    #: Expected interruption in seconds; -1 unknown, 0 none.
    duration_s: int
    #: Earliest start that was asked for; 0: as early as the notice allows.
    asked_ms: int
    #: Host the VMs are on afterwards; empty: where they are.
    destination: str
    created_ms: int
    #: Who asked for it.
    actor: str
    #: How many of its hosts have had their turn.
    planned: int = 0
    #: How many of those have no operation, since by then there could be none.
    left_out: int = 0
    cancelled_ms: int = 0
    #: When nothing was left of it: no host to plan, no operation that had not ended.
    ended_ms: int = 0
    #: Why it was cancelled.
    reason: str = ""

    @property
    def id(self) -> str:
        """The order's name for people and commands: `order-12`."""
        return f"order-{self.number}"

    @property
    def live(self) -> bool:
        """Whether something is left of it."""
        return not self.ended_ms

    @property
    def unplanned(self) -> int:
        """How many of its hosts are still to have their turn."""
        return 0 if self.cancelled_ms else self.hosts - self.planned


@value
class OrderHosts:
    """The hosts of an order, until all have had their turn; never changed.

    Apart from the order, which is written with each portion: a row of 20,000 names is not.
    """

    #: The order's number.
    number: int
    #: In the order in which their turns come.
    names: tuple[str, ...]


def digest_of(names: Iterable[str]) -> str:
    """Return what distinguishes the hosts of two orders; costs the names."""
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()
