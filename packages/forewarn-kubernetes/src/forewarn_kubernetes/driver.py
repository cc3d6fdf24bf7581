"""The kubernetes driver, whose work the cluster's controllers and configured commands do.

`begin` records the task. Each `progress` reads the state of the cluster and requests the next step.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from forewarn_base.clock import SystemClock
from forewarn_base.errors import ForewarnError
from forewarn_drivers import TEXT_MAX, Progress, Task
from forewarn_drivers.found import difference
from forewarn_drivers.task_records import TaskAborted, TaskForgotten, TaskRecords, TaskSuperseded
from forewarn_kubernetes.client import (
    CONFLICT,
    Kubernetes,
    KubernetesRefused,
    KubernetesUnreachable,
)
from forewarn_kubernetes.config import KubernetesConfig, read_options
from forewarn_kubernetes.discovery import discover
from forewarn_kubernetes.records import DONE, KubernetesRecords
from forewarn_kubernetes.work import LastCommands, NodeWork

log = logging.getLogger("forewarn.drivers")
#: Interval between searches for old records, in milliseconds: one day.
PRUNE_EVERY_MS = 24 * 3600 * 1000


def create(
    name: str, options: Mapping[str, object], _: TaskRecords | None = None
) -> KubernetesDriver:
    """Create a driver from its options.

    Raises:
        ValidationFailed: an option is unknown or invalid.
        ValueError: options contradict each other, or the token would be sent unencrypted.
    """
    return KubernetesDriver(read_options(name, options), name)


class KubernetesDriver:
    """Executes operations on nodes of a cluster, and on KubeVirt's VMs."""

    schedules = True

    def __init__(self, config: KubernetesConfig, name: str = "kubernetes") -> None:
        self.name = name
        self._config = config
        self._kubernetes = Kubernetes(config)
        self._records = KubernetesRecords(self._kubernetes, config.namespace, name)
        self._commands = LastCommands()
        self._lock = threading.Lock()
        #: Time at which the API server became unavailable, by task, ms since the epoch UTC.
        self._away_ms: dict[str, int] = {}
        self._clock = SystemClock()
        #: Last search for old records, ms since the epoch UTC.
        self._pruned_ms = 0

    def begin(self, task: Task) -> None:
        """Record an attempt; the first `progress` begins the work.

        Raises:
            TaskAborted: the operation of the task has ended.
            TaskSuperseded: a newer writer has called the driver.
            KubernetesUnreachable: the API server does not answer.
        """
        self._records.check_writer(task)
        self._records.begin(task)
        now_ms = self._clock.now_ms()
        with self._lock:
            due = now_ms - self._pruned_ms > PRUNE_EVERY_MS
            self._pruned_ms = now_ms if due else self._pruned_ms
        if due:  # on a thread, because pruning may exceed the call's time limit
            threading.Thread(target=self._prune, args=(now_ms,), daemon=True).start()

    def progress(self, task: Task, now_ms: int) -> Progress:
        """Advance the attempt by a step, and return its progress.

        Raises:
            TaskForgotten: the attempt was never begun.
            TaskAborted: the operation of the task has ended.
            TaskSuperseded: a newer writer has called the driver.
        """
        again_ms = self._again_ms(now_ms)
        try:
            self._records.check_writer(task)
            facts = self._records.facts(task)
            if DONE in facts:
                return Progress(done=True, placements=facts[DONE])
            work = self._work(task)
            step = work.advance(now_ms)
            if step.done:
                self._records.note(task, DONE, work.placements)
        except (TaskAborted, TaskForgotten, TaskSuperseded):
            raise
        except KubernetesUnreachable as error:
            return self._away(task, now_ms, error)
        except KubernetesRefused as error:
            if error.number != CONFLICT:
                return Progress(failed=error.clause)
            return Progress(
                again_ms=again_ms, text="another client has changed an object in the meantime"
            )
        except ForewarnError as error:
            return Progress(failed=error.clause)
        self._forget_absence(task)
        return step.progress(again_ms, work.placements)

    def abort(self, task: Task) -> None:
        """Abort an operation: cancel its migrations, and uncordon its node.

        Raises:
            TaskSuperseded: a newer writer has called the driver.
            KubernetesUnreachable: the API server does not answer; Forewarn repeats the call.
        """
        self._records.check_writer(task)
        self._records.abort(task)
        self._forget_absence(task)
        self._work(task).call_off()

    def discover(self) -> Mapping[str, object]:
        """Return the current hosts, groups and VMs. Source: R-4."""
        return difference(discover(self._kubernetes, self.name), {})

    def _work(self, task: Task) -> NodeWork:
        parts = (self._kubernetes, self._records)
        return NodeWork(task, *parts, config=self._config, commands=self._commands)

    def _prune(self, now_ms: int) -> None:
        try:
            self._records.prune(now_ms)
        except ForewarnError as error:
            extra = {"action": "driver.not-pruned"}
            log.warning("Old records of %s were not removed: %s", self.name, error, extra=extra)

    def _away(self, task: Task, now_ms: int, error: KubernetesUnreachable) -> Progress:
        with self._lock:
            since_ms = self._away_ms.setdefault(task.id, now_ms)
        if now_ms - since_ms > self._config.unreachable_timeout_s * 1000:
            self._forget_absence(task)
            return Progress(failed=error.clause)
        return Progress(again_ms=self._again_ms(now_ms), text=error.clause[:TEXT_MAX])

    def _again_ms(self, now_ms: int) -> int:
        return now_ms + int(self._config.poll_s * 1000)

    def _forget_absence(self, task: Task) -> None:
        with self._lock:
            self._away_ms.pop(task.id, None)
