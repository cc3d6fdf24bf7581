"""The libvirt driver: each attempt runs on its own thread, in the background of the calls.

`work.py` does the work of an attempt. After a restart of the service, `progress` starts a new
thread; every step first checks what has been done.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from forewarn.clock import SystemClock
from forewarn.core.lifecycle import with_execution
from forewarn.drivers import Progress, Task
from forewarn.drivers.found import difference
from forewarn.drivers.libvirt.connection import Connections
from forewarn.drivers.libvirt.discovery import discover
from forewarn.drivers.libvirt.guests import Guests, GuestTaskSuperseded
from forewarn.drivers.libvirt.migration import Stopped
from forewarn.drivers.libvirt.records import DomainRecords
from forewarn.drivers.libvirt.work import GuestWork
from forewarn.errors import PeerError
from forewarn.values import replace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forewarn.drivers.libvirt.config import LibvirtConfig

#: Interval between questions about an attempt, in milliseconds.
ASK_EVERY_MS = 500
#: Time limit for an aborted attempt to stop, in seconds.
STOP_S = 30.0
#: How long guests wait until their destinations are known to the control plane, in milliseconds,
#: and the interval of checks, in seconds.
KNOWN_MS, LOOK_S = 10_000, 0.05
#: How long a process waits for another one that works on its operation, in ms; afterwards the marks
#: on the guests decide.
HELD_MS = 60_000
#: Ended attempts whose result is remembered; the oldest is dropped first.
REMEMBERED_MAX = 10_000


#: Notes of a task.
BEGUN, ENDED, CALLED_OFF = "begun", "ended", "called off"


class TaskUnknown(PeerError):
    """This driver never began the task."""

    code = "task-unknown"
    message = "The libvirt driver never began {task}."
    advice = "Retry the operation; or complete or fail it."


class TaskCalledOff(PeerError):
    """A task should begin after its operation ended."""

    code = "task-called-off"
    message = "{task} was aborted before it began."
    advice = "Request the work again."


class _Attempt:
    """One attempt, on its thread."""

    def __init__(self, task: Task, stopped: threading.Event, records: DomainRecords) -> None:
        self.task = task
        self.stopped = stopped
        self._records = records
        self._clock = SystemClock()
        self._failed = ""
        self._text, self._share = "", 0.0
        self._interruption_ms = -1
        #: VM -> destination; `progress` reports it once, and it counts as known at the next call.
        self._placements: dict[str, str] = {}
        self._told, self._known = False, threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, work: GuestWork) -> None:
        """Carry the attempt out."""
        self._thread = threading.Thread(
            target=self._run, args=(work,), name=f"libvirt {self.task.id}", daemon=True
        )
        self._thread.start()

    def say(self, text: str, share: float) -> None:
        """Record the current activity, and its share done, 0 to 1."""
        self._text, self._share = text, share

    def take(self, vm: str, host: str) -> None:
        """Record the destination of a VM."""
        self._placements[vm] = host

    def until_known(self) -> None:
        """Wait, for a limited time, until the control plane knows the destinations.

        Raises:
            Stopped: the task was aborted meanwhile.
        """
        ends_ms = self._clock.now_ms() + KNOWN_MS
        while self._placements and not self._known.is_set() and self._clock.now_ms() < ends_ms:
            if self.stopped.wait(LOOK_S):
                raise Stopped

    def _run(self, work: GuestWork) -> None:
        try:
            self._when_free(work)
        except Stopped:
            self._failed = "it was aborted"
        except Exception as error:  # noqa: BLE001 - whatever it is, people must look
            self._failed = str(error).removesuffix(".") or type(error).__name__

    def _when_free(self, work: GuestWork) -> None:
        """Carry the attempt out once an earlier process, which may hang for long, has let go."""
        ends_ms = self._clock.now_ms() + HELD_MS
        while True:
            with self._records.lock(_key(self.task, operation=True)) as free:
                if free or self._clock.now_ms() > ends_ms:
                    if self._records.task(_key(self.task)) != ENDED:
                        work.carry_out()
                        self._interruption_ms = work.interruption_ms
                        self._records.note_task(_key(self.task), ENDED)
                    return
            self.say("waiting for another process that works on it", 0)
            if self.stopped.wait(LOOK_S):
                raise Stopped

    def progress(self, now_ms: int) -> Progress:
        assert self._thread is not None, self.task
        alive, placements = self._thread.is_alive(), dict(self._placements)
        if self._told:
            self._known.set()
        self._told = bool(placements)
        if alive:
            report = Progress(again_ms=now_ms + ASK_EVERY_MS, text=self._text, share=self._share)
        else:
            done = Progress(done=True, interruption_ms=self._interruption_ms)
            report = Progress(failed=self._failed) if self._failed else done
        return replace(report, placements=placements)

    def stop(self) -> bool:
        """Stop the attempt; return whether it has stopped."""
        assert self._thread is not None, self.task
        self.stopped.set()
        self._thread.join(STOP_S)
        return not self._thread.is_alive()


class LibvirtDriver:
    """Carries operations out on hosts that run libvirt. Source: R-5."""

    def __init__(self, config: LibvirtConfig, name: str = "libvirt") -> None:
        """Start unconnected; the first use connects."""
        self.name = name
        self._config = config
        self._connections = Connections(config)
        self._records = DomainRecords(config)
        self._records.prune(SystemClock().now_ms())
        self._lock = threading.Lock()
        #: Operation -> its newest attempt.
        self._attempts: dict[int, _Attempt] = {}
        #: The highest generation of a writer that has called.
        self._generation = 0

    def begin(self, task: Task) -> None:
        """Begin an attempt, unless it is in progress.

        Raises:
            TaskCalledOff: its operation has ended.
            TaskSuperseded: a later writer has called.
        """
        number = task.operation.number
        with self._lock:
            self._check_writer(task)
            before = self._attempts.get(number)
        if before is not None and before.task.attempt < task.attempt:
            before.stop()
        if self._records.task(_key(task, operation=True)) == CALLED_OFF:
            raise TaskCalledOff(task=task.id)
        if self._records.task(_key(task)) == ENDED:
            return
        self._records.note_task(_key(task), BEGUN)
        with self._lock:
            self._attempt(task)

    def progress(self, task: Task, now_ms: int) -> Progress:
        """Return the progress of the attempt; resume one that was begun before a restart.

        Raises:
            TaskUnknown: the attempt was never begun.
            TaskSuperseded: a later writer has called.
        """
        with self._lock:
            self._check_writer(task)
            known = self._attempts.get(task.operation.number)
            if known is None or known.task.attempt != task.attempt:
                noted = self._records.task(_key(task))
                if noted not in {BEGUN, ENDED}:
                    raise TaskUnknown(task=task.id)
                if self._records.task(_key(task, operation=True)) == CALLED_OFF:
                    raise TaskCalledOff(task=task.id)
                if noted == ENDED:
                    return Progress(done=True)
            return self._attempt(task).progress(now_ms)

    def abort(self, task: Task) -> None:
        """Abort an operation: a migration returns to its source, suspended guests resume.

        Raises:
            TaskSuperseded: a later writer has called.
        """
        with self._lock:
            self._check_writer(task)
            self._records.note_task(_key(task, operation=True), CALLED_OFF)
            attempt = self._attempts.pop(task.operation.number, None)
        if attempt is not None and not attempt.stop():
            raise TimeoutError(f"{task.id} has not stopped after {STOP_S:g} s")
        self._work(_Attempt(task, threading.Event(), self._records)).called_off()

    def discover(self) -> Mapping[str, object]:
        """Return the current hosts, groups and VMs. Source: R-4."""
        fleet = discover(self._config, self._connections, self._records)
        return difference(fleet, {})

    def _check_writer(self, task: Task) -> None:
        if task.generation < self._generation:
            raise GuestTaskSuperseded(generation=self._generation, vm=task.operation.target)
        self._generation = task.generation

    def _attempt(self, task: Task) -> _Attempt:
        """Return the attempt, started if it is unknown; call with the lock held."""
        number = task.operation.number
        attempt = self._attempts.pop(number, None)
        if attempt is None or attempt.task.attempt != task.attempt:
            attempt = _Attempt(task, threading.Event(), self._records)
            attempt.start(self._work(attempt))
        self._attempts[number] = attempt
        while len(self._attempts) > REMEMBERED_MAX:
            del self._attempts[next(iter(self._attempts))]
        return attempt

    def _work(self, attempt: _Attempt) -> GuestWork:
        task, stopped = attempt.task, attempt.stopped
        parts = (self._connections, self._config)
        guests = Guests(task, *parts, stopped=stopped, say=attempt.say, take=attempt.take)
        guests.ended = self._ended_before(task)
        return GuestWork(
            task, guests, self._records, stopped=stopped, until_known=attempt.until_known
        )

    def _ended_before(self, task: Task) -> int:
        """Return the last earlier attempt that succeeded; 0 if none did."""
        operation = task.operation
        for attempt in range(operation.execution.attempt - 1, 0, -1):
            earlier = Task(with_execution(operation, attempt=attempt))
            if self._records.task(_key(earlier)) == ENDED:
                return attempt
        return 0


def _key(task: Task, *, operation: bool = False) -> str:
    """Return a name for a task, or its operation, that is unique across stores."""
    name = task.operation.id if operation else task.id
    return f"{name}@{task.operation.created_ms}"
