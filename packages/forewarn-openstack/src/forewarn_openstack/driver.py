"""The nova driver, which needs no threads, because Nova does the work.

`begin` records the task. Each `progress` reads Nova's state and requests the next step. `work.py`
chooses the steps of a task.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from forewarn_base.errors import ForewarnError
from forewarn_drivers import Progress, Task
from forewarn_drivers.command.runner import ProgramRuns
from forewarn_drivers.found import difference
from forewarn_drivers.task_records import DONE, WHOLE, TaskForgotten, TaskRecords, TaskSuperseded
from forewarn_openstack.client import Nova, NovaBusy, NovaUnreachable
from forewarn_openstack.config import NovaConfig, read_options
from forewarn_openstack.discovery import discover
from forewarn_openstack.mark import ServerMarks
from forewarn_openstack.servers import Memory, Servers
from forewarn_openstack.work import ServerWork

#: Interval between `progress` calls for a task, in milliseconds.
ASK_EVERY_MS = 1000
#: Maximum number of attempts with cached facts; the oldest is dropped first.
CACHED_ATTEMPTS_MAX = 10_000
#: Key of the time at which Nova became unavailable.
SILENCE = "Nova"


def create(name: str, options: Mapping[str, object], records: TaskRecords) -> NovaDriver:
    """Create a driver from its options, with task records in the store.

    Raises:
        ValidationFailed: an option is unknown, missing or invalid.
        OpenstackMissing: openstacksdk is not installed.
        CloudUnconfigured: the cloud is not configured, or its login has no secret.
    """
    driver = NovaDriver(read_options(name, options), records)
    driver.check_secret()
    return driver


class NovaDriver:
    """Executes operations on the compute hosts of an OpenStack cloud."""

    schedules = True

    def __init__(self, config: NovaConfig, records: TaskRecords) -> None:
        self.name = records.driver
        self._config = config
        self._nova = Nova(config)
        self._records = records
        self._marks = ServerMarks(self._nova, records)
        self._lock = threading.Lock()
        self._memories: dict[str, Memory] = {}

    def check_secret(self) -> None:
        """Refuse a cloud without a secret to sign marks; send no request.

        Raises:
            ForewarnError: the cloud is not configured, or its login has no secret.
        """
        assert self._nova.secret

    def begin(self, task: Task) -> None:
        """Record an attempt; the first `progress` begins the work.

        Raises:
            TaskAborted: the operation of the task has ended.
            TaskSuperseded: a newer writer has called the driver.
        """
        self._records.begin(task.key)

    def progress(self, task: Task, now_ms: int) -> Progress:
        """Advance the attempt by a step, and return its progress.

        Raises:
            TaskForgotten: the attempt was never begun.
            TaskAborted: the operation of the task has ended.
            TaskSuperseded: a newer writer has called the driver.
        """
        self._records.check(task.key)
        notes = self._records.notes(task.operation.number).get(task.attempt)
        if notes is None:
            raise TaskForgotten(task=task.id)
        if DONE in notes:
            return Progress(done=True)
        memory = self._memory(task)
        again_ms = now_ms + ASK_EVERY_MS
        try:
            step = self._work(task, now_ms, memory).advance()
        except (NovaUnreachable, NovaBusy) as error:
            since_ms = memory.since_ms.setdefault(SILENCE, now_ms)
            if now_ms - since_ms > self._config.unreachable_timeout_s * 1000:
                return Progress(failed=error.clause)
            return Progress(again_ms=again_ms, text=error.clause)
        except TaskSuperseded:
            raise
        except ForewarnError as error:
            return Progress(failed=error.clause)
        memory.since_ms.pop(SILENCE, None)
        if step.done:
            self._records.put(task.operation.number, task.attempt, {DONE: ""})
        return step.progress(again_ms, dict(memory.placements))

    def abort(self, task: Task) -> None:
        """Abort an operation: cancel live migrations, and resume paused servers.

        Raises:
            TaskSuperseded: a newer writer has called the driver.
            NovaStillWorking: Nova has not ended the work yet.
            NovaUnreachable: Nova does not answer.
        """
        self._records.abort(task.key)
        self._work(task, task.operation.ended_ms or 0, self._memory(task)).call_off()

    def discover(self) -> Mapping[str, object]:
        """Return the current hosts, groups and VMs. Source: R-4."""
        return difference(discover(self._nova, self._config, self.name), {})

    def _work(self, task: Task, now_ms: int, memory: Memory) -> ServerWork:
        servers = Servers(task, self._nova, self._marks, config=self._config)
        servers.memory, servers.now_ms = memory, now_ms
        current, notes = task.attempt, self._records.notes(task.operation.number)
        others = notes.keys() - {WHOLE, current}
        well = [each for each in others if DONE in notes[each]]
        servers.ended = max((each for each in well if each < current), default=0)
        earlier = sorted((each for each in others if each > servers.ended), reverse=True)
        return ServerWork(servers, [current, *earlier], ProgramRuns(self._records))

    def _memory(self, task: Task) -> Memory:
        name = f"{task.id}@{task.operation.created_ms}"
        with self._lock:
            memory = self._memories.pop(name, None) or Memory()
            self._memories[name] = memory
            while len(self._memories) > CACHED_ATTEMPTS_MAX:
                del self._memories[next(iter(self._memories))]
        return memory
