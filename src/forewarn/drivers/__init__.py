"""Drivers carry an operation out on the real fleet: begin, progress, abort, all safe to repeat.

What every driver promises stands here; each driver has a module. No driver decides when.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from forewarn.core.lifecycle import Operation


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a driver is with one attempt of an operation."""

    #: The attempt has ended well.
    done: bool = False
    #: Why the attempt failed; empty if it has not.
    failed: str = ""
    #: When to ask again, ms since the epoch UTC; 0: never, somebody else will say.
    again_ms: int = 0
    #: Whom or what the attempt waits for, as a clause for people; empty while the driver works.
    waits: str = ""


class Driver(Protocol):
    """What the control plane asks of a driver.

    An operation's number and attempt name a task. Every call may come twice, also after a
    crash, and must then find the task as the first call left it. An exception is a failure
    of the attempt, with its text as the reason. Calls must return quickly; long work goes on
    behind them.
    """

    name: str

    def begin(self, operation: Operation) -> None:
        """Begin an attempt, once to effect however often it is called. Source: L-7.

        An operator's retry is the next attempt: it takes the place of the one before, which is
        not aborted separately.
        """

    def progress(self, operation: Operation, now_ms: int) -> Progress:
        """Say how far the attempt is."""

    def abort(self, operation: Operation) -> None:
        """Stop caring for an operation that ended without the driver, begun by it or not.

        Said until it returns, also after a crash, but not for ever. Source: L-7.
        """
