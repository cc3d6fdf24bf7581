"""The interface of drivers, which execute operations: begin, progress and abort, all repeatable.

Each driver has its own module or package. Forewarn decides when work starts, and calls the driver.
docs/reference/drivers.md is the reference, and `forewarn driver check` tests a driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Protocol, runtime_checkable

from forewarn_base.errors import PeerError
from forewarn_base.values import value
from forewarn_core.fleet.lifecycle import Operation

#: Maximum number of VM destinations in one answer of a driver.
PLACEMENTS_MAX = 10_000
#: Maximum length of the text of a step, in characters.
TEXT_MAX = 500
#: Maximum interruption that a driver may report, in milliseconds: 30 days.
INTERRUPTION_MS_MAX = 30 * 24 * 3600 * 1000


class PlatformUnanswered(PeerError):
    """The platform behind a driver did not answer, so the state of a task is unknown.

    Forewarn makes the driver's call again, for up to `[drivers] unanswered_timeout_s`.
    """

    code = "driver-unanswered"
    message = "{platform} does not answer: {reason}."
    advice = "Check the platform; Forewarn asks again."


@value
class TaskKey:
    """The identity of a task, and the generation of the calling writer."""

    operation: int
    attempt: int
    #: Generation of the writer: grows with each new writer of a store; 0: unknown.
    generation: int = 0

    @property
    def id(self) -> str:
        """Operation and attempt, such as `op-12/1`, independent of the writer."""
        return f"op-{self.operation}/{self.attempt}"


@value
class Task:
    """One attempt at an operation, requested by one writer. Source: R-2."""

    operation: Operation
    #: Generation of the writer: grows with each new writer of a store; 0: unknown.
    generation: int = 0
    #: Name of the store's sequence of generations; empty: unknown.
    epoch: str = ""

    @property
    def id(self) -> str:
        """Operation and attempt, such as `op-12/1`, independent of the writer."""
        return self.key.id

    @property
    def key(self) -> TaskKey:
        """The key of the task's records."""
        return TaskKey(self.operation.number, self.attempt, self.generation)

    @property
    def attempt(self) -> int:
        """Number of the attempt at the operation, from 1."""
        return self.operation.execution.attempt


@value
class Progress:
    """The progress of one task."""

    #: Whether the attempt has succeeded.
    done: bool = False
    #: Reason why the attempt failed; empty without a failure.
    failed: str = ""
    #: Time of the next `progress` call, ms since the epoch UTC; 0: none, because the driver
    #: reports.
    again_ms: int = 0
    #: The person or thing that delays the attempt, as a phrase for people; empty while the driver
    #: works.
    waits: str = ""
    #: The current activity, as a phrase for people, such as "migrating web_0"; empty: not reported.
    text: str = ""
    #: The share of the work done, 0.0 to 1.0; None: not reported.
    share: float | None = None
    #: VM -> destination host, if the driver chooses; the metadata node of the destination then
    #: answers the VM, too. Reported destinations remain valid. A driver should move a VM only after
    #: the next `progress` call, when Forewarn knows the destination. Source: M-1.
    placements: Mapping[str, str] = field(default_factory=dict)
    #: The longest interruption of any VM, in ms; -1: not measured. Source: X-1.
    interruption_ms: int = -1


@value
class WorkStep:
    """The progress of a step, for drivers that do their work in steps."""

    done: bool = False
    #: The current activity, as a phrase for people.
    text: str = ""
    #: Completed share, 0 to 1.
    share: float = 0.0
    #: The person or thing that delays the step, as a phrase for people.
    waits: str = ""

    def progress(self, again_ms: int, placements: Mapping[str, str]) -> Progress:
        """Return the progress of an attempt whose last step this is."""
        if self.done:
            return Progress(done=True, placements=placements)
        return Progress(
            again_ms=again_ms,
            text=self.text[:TEXT_MAX],
            waits=self.waits[:TEXT_MAX],
            share=min(self.share, 1.0),
            placements=placements,
        )


#: The progress of a finished step.
FINISHED = WorkStep(done=True, share=1.0)


class Driver(Protocol):
    """The calls that a driver must implement.

    Forewarn calls from worker threads: in parallel for different operations, and one call at a time
    for each operation. Every call may be repeated, also after a crash, and must then continue from
    the state after the first call. An exception fails the attempt, with its text as the reason,
    except `PlatformUnanswered`, after which Forewarn makes the call again.
    After `[drivers] call_timeout_s`, a call counts as failed, and the operation is stuck until an
    operator decides or the call returns. Long work must run in the background.

    If several writers can call a driver, the driver must refuse calls with a lower generation than
    the highest so far, and must not begin aborted tasks. A driver whose own records show a later
    writer of the same store raises `TaskOfLaterWriter`, because the store may have lost commits.
    Source: R-2, H-10.

    If the driver's platform chooses destinations, the driver sets the attribute `schedules` to
    true, and plans of maintenances contain no destinations. Other drivers move each VM of a first
    attempt to `operation.destination_of`. Every driver moves a returning VM (`operation.is_return`)
    to `operation.destination`, or fails. Source: F-1, F-3.
    """

    name: str

    def begin(self, task: Task) -> None:
        """Begin an attempt; repeated calls have no further effect. Source: L-7.

        An operator's retry is the next attempt, and replaces the previous attempt without an
        `abort` call.
        """

    def progress(self, task: Task, now_ms: int) -> Progress:
        """Return the progress of the attempt; raise an error for an unknown task."""

    def abort(self, task: Task) -> None:
        """End all work on an operation that was ended by an operator or the service.

        Forewarn repeats the call until the call returns, also after a crash, within limits. The
        task contains the operation's last attempt. Source: L-7.
        """


@runtime_checkable
class Discovering(Protocol):
    """A driver that can list the machines of its platform. Source: R-4."""

    def discover(self) -> Mapping[str, object]:
        """Return hosts, groups and VMs in the format of a topology file."""


@runtime_checkable
class Reported(Protocol):
    """A driver whose remote service sends reports. Source: R-4."""

    def take_report(self, headers: Mapping[str, str], body: bytes) -> None:
        """Check and store a report, which the next `progress` call of the task returns.

        Forewarn calls this on a worker thread. The report is durable on return.

        Args:
            headers: HTTP headers by lower-case name.
            body: the received bytes.

        Raises:
            CallerError: the report is malformed, too old, or from another sender.
        """
