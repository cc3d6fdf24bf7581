"""The libvirt driver, which runs each attempt on a background thread.

`work.py` does the work of an attempt. After a restart of the service, `progress` starts a new
thread, in which every step first checks the state of the hypervisors.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from forewarn_base.clock import SystemClock
from forewarn_base.errors import PeerError
from forewarn_base.values import replace
from forewarn_core.fleet.lifecycle import with_execution
from forewarn_drivers import Progress, Task
from forewarn_drivers.found import difference
from forewarn_drivers.task_records import TaskRecords, TaskSuperseded
from forewarn_libvirt.config import LibvirtConfig, read_options
from forewarn_libvirt.connection import Connections
from forewarn_libvirt.discovery import discover
from forewarn_libvirt.guests import Guests
from forewarn_libvirt.migration import Stopped
from forewarn_libvirt.records import BEGUN, CALLED_OFF, ENDED, DomainRecords
from forewarn_libvirt.work import GuestWork

#: Interval between `progress` calls for an attempt, in milliseconds.
ASK_EVERY_MS = 500
#: Time limit for an aborted attempt to stop, in seconds.
STOP_S = 30.0
#: Longest wait until the control plane knows the destinations of guests, in milliseconds, and
#: interval of checks, in seconds.
KNOWN_MS, LOOK_S = 10_000, 0.05
#: Longest wait for another process that works on the same operation, in ms; afterwards the marks on
#: the guests decide.
HELD_MS = 60_000
#: Maximum number of results of ended attempts in memory; the oldest is dropped first.
REMEMBERED_MAX = 10_000


class TaskUnknown(PeerError):
    """This driver never began the task."""

    code = "task-unknown"
    message = "The libvirt driver never began {task}."
    advice = "Retry, complete or fail the operation."


class TaskCalledOff(PeerError):
    """The task to begin belongs to an aborted operation."""

    code = "task-called-off"
    message = "{task} was aborted before it began."
    advice = "Request the work again."


def create(name: str, options: Mapping[str, object], _: TaskRecords | None = None) -> LibvirtDriver:
    """Create a driver from its options, whose file lists the hosts.

    Raises:
        LibvirtConfigUnreadable: the file cannot be read.
        ValidationFailed: an option or a setting of the file is unknown or invalid.
    """
    return LibvirtDriver(read_options(options), name)


class _Attempt:
    """One attempt, with its thread."""

    def __init__(self, task: Task, stopped: threading.Event, records: DomainRecords) -> None:
        self.task = task
        self.stopped = stopped
        self._records = records
        self._clock = SystemClock()
        self._failed = ""
        self._superseded: TaskSuperseded | None = None
        self._text, self._share = "", 0.0
        self._interruption_ms = -1
        #: Destinations of VMs; the control plane knows a destination after the next `progress`
        #: call.
        self._placements: dict[str, str] = {}
        self._told, self._known = False, threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, work: GuestWork) -> None:
        """Execute the attempt."""
        self._thread = threading.Thread(
            target=self._run, args=(work,), name=f"libvirt {self.task.id}", daemon=True
        )
        self._thread.start()

    def say(self, text: str, share: float) -> None:
        """Record the current activity, and its completed share, 0 to 1."""
        self._text, self._share = text, share

    def take(self, vm: str, host: str) -> None:
        """Record the destination of a VM."""
        self._placements[vm] = host

    def until_known(self) -> None:
        """Wait, up to a time limit, until the control plane knows the destinations.

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
            self._failed = "the task was aborted"
        except TaskSuperseded as error:
            self._superseded = error
        except Exception as error:  # noqa: BLE001 - whatever it is, people must look
            self._failed = str(error).removesuffix(".") or type(error).__name__

    def _when_free(self, work: GuestWork) -> None:
        """Execute the attempt once an earlier process has released the operation."""
        ends_ms = self._clock.now_ms() + HELD_MS
        while True:
            with self._records.lock(_key(self.task, operation=True)) as free:
                if free or self._clock.now_ms() > ends_ms:
                    if self._records.task(_key(self.task)) != ENDED:
                        work.carry_out()
                        self._interruption_ms = work.interruption_ms
                        self._records.note_task(_key(self.task), ENDED)
                    return
            self.say("waiting for another process that works on the operation", 0)
            if self.stopped.wait(LOOK_S):
                raise Stopped

    def progress(self, now_ms: int) -> Progress:
        assert self._thread is not None, self.task
        if self._superseded is not None:
            raise type(self._superseded)(**self._superseded.facts)
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
        """Stop the attempt; return whether the attempt has stopped."""
        assert self._thread is not None, self.task
        self.stopped.set()
        self._thread.join(STOP_S)
        return not self._thread.is_alive()


class LibvirtDriver:
    """Executes operations on libvirt hosts. Source: R-5."""

    def __init__(self, config: LibvirtConfig, name: str = "libvirt") -> None:
        self.name = name
        self._config = config
        self._connections = Connections(config)
        self._records = DomainRecords(config)
        self._records.prune(SystemClock().now_ms())
        self._lock = threading.Lock()
        #: Newest attempt of each operation.
        self._attempts: dict[int, _Attempt] = {}
        #: The highest generation of all calling writers.
        self._generation = 0

    def begin(self, task: Task) -> None:
        """Begin an attempt, unless the attempt is in progress.

        Raises:
            TaskCalledOff: the operation of the task has ended.
            TaskSuperseded: a newer writer has called the driver.
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
        """Return the progress of the attempt; after a restart, resume the attempt.

        Raises:
            TaskUnknown: the attempt was never begun.
            TaskSuperseded: a newer writer has called the driver.
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
        """Abort an operation: cancel migrations, and resume suspended guests.

        Raises:
            TaskSuperseded: a newer writer has called the driver.
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
            facts = {"generation": task.generation, "newest": self._generation}
            raise TaskSuperseded(task=task.id, **facts)
        self._generation = task.generation

    def _attempt(self, task: Task) -> _Attempt:
        """Return the attempt; start an unknown attempt. The caller must hold the lock."""
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
        """Return the number of the last successful earlier attempt, or 0."""
        operation = task.operation
        for attempt in range(operation.execution.attempt - 1, 0, -1):
            earlier = Task(with_execution(operation, attempt=attempt))
            if self._records.task(_key(earlier)) == ENDED:
                return attempt
        return 0


def _key(task: Task, *, operation: bool = False) -> str:
    """Return a name of a task, or its operation, that is unique among stores."""
    name = task.operation.id if operation else task.id
    return f"{name}@{task.operation.created_ms}"
