"""The protocol of drivers, which carry operations out: begin, progress, abort, all safe to repeat.

What every driver promises stands here; each driver has a module. No driver decides when.
docs/reference/drivers.md says the same for readers, `forewarn driver check` tests it.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forewarn.core.lifecycle import Operation

#: VMs of which one answer of a driver may say where they go.
PLACEMENTS_MAX = 10_000
#: Longest interruption that a driver may report, in milliseconds: 30 days.
INTERRUPTION_MS_MAX = 30 * 24 * 3600 * 1000


@value
class TaskKey:
    """What a task is found by, and the writer that asks."""

    operation: int
    attempt: int
    #: Grows from writer to writer of a store; 0: not counted.
    generation: int = 0

    @property
    def id(self) -> str:
        """Operation and attempt, the same under every writer: `op-12/1`."""
        return f"op-{self.operation}/{self.attempt}"


@value
class Task:
    """One attempt at an operation, in the name of one writer. Source: R-2."""

    operation: Operation
    #: Grows from writer to writer of a store; 0: not counted.
    generation: int = 0

    @property
    def id(self) -> str:
        """Operation and attempt, the same under every writer: `op-12/1`."""
        return self.key.id

    @property
    def key(self) -> TaskKey:
        """What its records are found by."""
        return TaskKey(self.operation.number, self.attempt, self.generation)

    @property
    def attempt(self) -> int:
        """The number of the attempt at the operation, from 1."""
        return self.operation.execution.attempt


@value
class Progress:
    """How far a driver is with one task."""

    #: The attempt has ended well.
    done: bool = False
    #: Why the attempt failed; empty if it has not.
    failed: str = ""
    #: When to ask again, ms since the epoch UTC; 0: never, a report will come.
    again_ms: int = 0
    #: Who or what the attempt waits for, as a clause for people; empty while the driver works.
    waits: str = ""
    #: What is being done, as a clause for people: "migrating web_0"; empty: it does not say.
    text: str = ""
    #: How much is done, 0.0 to 1.0; None: it does not say.
    share: float | None = None
    #: VM -> host it is taken to, where the driver chooses: the node there answers it from then
    #: on, too. What is reported once stays; a VM should be moved only when this has been asked for
    #: again, since then it is known. Source: M-1.
    placements: Mapping[str, str] = field(default_factory=dict)
    #: How long VMs were interrupted, the longest of them, in ms; -1: not measured. Source: X-1.
    interruption_ms: int = -1


class Driver(Protocol):
    """What the control plane asks of a driver.

    Every call comes from a worker thread, several at a time for different operations and one at
    a time for each. Every call may come twice, also after a crash, and must then find the task as
    the first call left it. An exception is a failure of the attempt, with its text as the reason.
    A call that takes longer than `[drivers] call_timeout_s` is given up: the operation is stuck
    until people decide, or until the call returns after all. Long work goes on behind the calls.

    A driver that keeps tasks where several writers reach them refuses calls of a generation
    lower than the highest it has seen, and does not begin what was aborted. Source: R-2.

    A driver whose own scheduler chooses where VMs go has an attribute `schedules` that is true:
    plans of maintenances then name no destination. Every other one takes each VM of a first attempt
    where `operation.destination_of` says. Source: F-3.
    """

    name: str

    def begin(self, task: Task) -> None:
        """Begin an attempt, once to effect however often it is called. Source: L-7.

        An operator's retry is the next attempt: it takes the place of the one before, which is
        not aborted separately.
        """

    def progress(self, task: Task, now_ms: int) -> Progress:
        """Return how far the attempt is; an unknown task raises, it is never "done"."""

    def abort(self, task: Task) -> None:
        """Stop caring for an operation that ended without the driver, begun by it or not.

        Said until it returns, also after a crash, but not for ever. The task's attempt is the
        operation's last. Source: L-7.
        """


@runtime_checkable
class Discovering(Protocol):
    """A driver that knows which machines there are. Source: R-4."""

    def discover(self) -> Mapping[str, object]:
        """Return hosts, groups and VMs, in the form of a topology file."""


@runtime_checkable
class Reported(Protocol):
    """A driver whose far side reports without being asked. Source: R-4."""

    def take_report(self, headers: Mapping[str, str], body: bytes) -> None:
        """Check and keep a report, which the next `progress` of its task returns.

        On a worker thread. The report is durable when this returns.

        Args:
            headers: by their lower-case names.
            body: as it came.

        Raises:
            CallerError: it is not from the far side, too old, or cannot be read.
        """
