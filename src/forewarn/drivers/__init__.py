"""The protocol of drivers, which carry operations out: begin, progress, abort, all safe to repeat.

This module defines what every driver promises; each driver has a module or package. Drivers never
decide when work starts. docs/reference/drivers.md is the reference, and `forewarn driver check`
tests a driver.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forewarn.core.lifecycle import Operation

#: Maximum VMs whose destinations one answer of a driver may name.
PLACEMENTS_MAX = 10_000
#: Maximum interruption that a driver may report, in milliseconds: 30 days.
INTERRUPTION_MS_MAX = 30 * 24 * 3600 * 1000


@value
class TaskKey:
    """What identifies a task, and the calling writer."""

    operation: int
    attempt: int
    #: Grows with each new writer of a store; 0: not counted.
    generation: int = 0

    @property
    def id(self) -> str:
        """Operation and attempt, the same under every writer: `op-12/1`."""
        return f"op-{self.operation}/{self.attempt}"


@value
class Task:
    """One attempt at an operation, in the name of one writer. Source: R-2."""

    operation: Operation
    #: Grows with each new writer of a store; 0: not counted.
    generation: int = 0

    @property
    def id(self) -> str:
        """Operation and attempt, the same under every writer: `op-12/1`."""
        return self.key.id

    @property
    def key(self) -> TaskKey:
        """The key of its records."""
        return TaskKey(self.operation.number, self.attempt, self.generation)

    @property
    def attempt(self) -> int:
        """The number of the attempt at the operation, from 1."""
        return self.operation.execution.attempt


@value
class Progress:
    """The progress of one task."""

    #: The attempt has succeeded.
    done: bool = False
    #: Why the attempt failed; empty if it has not.
    failed: str = ""
    #: When to ask again, ms since the epoch UTC; 0: never, because a report will arrive.
    again_ms: int = 0
    #: The person or thing the attempt waits for, as a clause for people; empty while the driver
    #: works.
    waits: str = ""
    #: The current activity, as a clause for people: "migrating web_0"; empty: not reported.
    text: str = ""
    #: The share of the work done, 0.0 to 1.0; None: not reported.
    share: float | None = None
    #: VM -> destination, if the driver chooses; the destination's node then answers the VM, too.
    #: Reported destinations stay in force. A driver should move a VM only after the next `progress`
    #: call, because the destination is known then. Source: M-1.
    placements: Mapping[str, str] = field(default_factory=dict)
    #: The longest interruption of any VM, in ms; -1: not measured. Source: X-1.
    interruption_ms: int = -1


class Driver(Protocol):
    """The calls that a driver must implement.

    Every call comes from a worker thread, several at a time for different operations and one at a
    time for each. Every call may be repeated, also after a crash, and must then continue from the
    state that the first call left. An exception fails the attempt, with its text as the reason.
    After `[drivers] call_timeout_s` a call counts as failed: the operation is stuck until people
    decide, or until the call returns after all. Long work runs in the background.

    A driver whose tasks several writers can reach must refuse calls of a lower generation than the
    highest it has seen, and must not begin aborted tasks. Source: R-2.

    A driver whose own scheduler chooses destinations has an attribute `schedules` that is true;
    plans of maintenances then name no destination. Every other driver takes each VM of a first
    attempt to `operation.destination_of`. Source: F-3.
    """

    name: str

    def begin(self, task: Task) -> None:
        """Begin an attempt; repeated calls have no further effect. Source: L-7.

        An operator's retry is the next attempt. It replaces the previous one, which is not aborted
        separately.
        """

    def progress(self, task: Task, now_ms: int) -> Progress:
        """Return the progress of the attempt; raise for an unknown task, which is never done."""

    def abort(self, task: Task) -> None:
        """End all work on an operation that ended without the driver, whether begun or not.

        The call is repeated until it returns, also after a crash, within limits. The task has the
        operation's last attempt. Source: L-7.
        """


@runtime_checkable
class Discovering(Protocol):
    """A driver that can list the machines of its platform. Source: R-4."""

    def discover(self) -> Mapping[str, object]:
        """Return hosts, groups and VMs, in the form of a topology file."""


@runtime_checkable
class Reported(Protocol):
    """A driver whose remote service reports without being asked. Source: R-4."""

    def take_report(self, headers: Mapping[str, str], body: bytes) -> None:
        """Check and store a report, which the next `progress` of its task returns.

        Runs on a worker thread. The report is durable on return.

        Args:
            headers: by lower-case name.
            body: as received.

        Raises:
            CallerError: the report is not from the remote service, too old, or malformed.
        """
