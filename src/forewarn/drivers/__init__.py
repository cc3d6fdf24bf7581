"""Drivers carry an operation out on the real fleet: begin, progress, abort, all safe to repeat.

What every driver promises stands here; each driver has a module. No driver decides when.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from forewarn.core.lifecycle import Operation


@dataclass(frozen=True, slots=True)
class Task:
    """One attempt at an operation, in the name of one writer. Source: R-2."""

    operation: Operation
    #: Grows from writer to writer of a store; 0 where nobody counts.
    generation: int = 0

    @property
    def id(self) -> str:
        """Operation and attempt, the same under every writer: `op-12/1`."""
        return f"{self.operation.id}/{self.operation.attempt}"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a driver is with one task."""

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

    Every call comes from a worker thread, several at a time for different operations and one at
    a time for each. Every call may come twice, also after a crash, and must then find the task as
    the first call left it. An exception is a failure of the attempt, with its text as the reason.
    A call that takes longer than `[drivers] call_timeout_s` is given up: the operation is stuck
    until people decide, or until the call returns after all. Long work goes on behind the calls.

    A driver that keeps tasks where several writers reach them refuses calls of a generation
    lower than the highest it has seen, and does not begin what it was told to abort. Source: R-2.
    """

    name: str

    def begin(self, task: Task) -> None:
        """Begin an attempt, once to effect however often it is called. Source: L-7.

        An operator's retry is the next attempt: it takes the place of the one before, which is
        not aborted separately.
        """

    def progress(self, task: Task, now_ms: int) -> Progress:
        """Say how far the attempt is."""

    def abort(self, task: Task) -> None:
        """Stop caring for an operation that ended without the driver, begun by it or not.

        Said until it returns, also after a crash, but not for ever. Source: L-7.
        """
