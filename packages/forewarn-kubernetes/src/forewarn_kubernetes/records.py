"""The driver's task records, in ConfigMaps of the cluster.

Each operation has a ConfigMap, and the newest writer has another. A change is refused if the
ConfigMap's version has changed since the read.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from forewarn_base.clock import SystemClock
from forewarn_drivers import Task
from forewarn_drivers.task_records import (
    TaskAborted,
    TaskForgotten,
    TaskOfLaterWriter,
    TaskSuperseded,
)
from forewarn_kubernetes.client import CONFLICT, MISSING, Kubernetes, KubernetesRefused

#: Maximum number of attempts at a change, because of conflicts with other writers.
TRIES = 5
ABORTED, DONE = "aborted", "done"
#: Member with the time of the last note, ms since the epoch UTC.
CHANGED_MS = "changed_ms"
#: Age above which records of ended operations are removed, in milliseconds; and maximum number of
#: removals at a time.
KEPT_MS, PRUNED_MAX = 90 * 24 * 3600 * 1000, 1000
#: Labels of the driver's ConfigMaps.
LABEL, VALUE = "forewarn.dev/record", "task"


class KubernetesRecords:
    """The tasks of one driver."""

    def __init__(self, kubernetes: Kubernetes, namespace: str, driver: str) -> None:
        self._kubernetes = kubernetes
        self._place = f"/api/v1/namespaces/{namespace}/configmaps"
        self._prefix = f"forewarn-{driver.lower().replace('_', '-')}"
        self._clock = SystemClock()

    def prune(self, now_ms: int) -> None:
        """Remove records of operations that ended long ago.

        Sends a request for each 100 records, and for each removal.
        """
        query = f"&labelSelector={LABEL}%3D{VALUE}"
        old = [
            each["metadata"]
            for each in self._kubernetes.all(self._place, query)
            if each["metadata"]["name"].startswith(f"{self._prefix}-op-") and _is_old(each, now_ms)
        ]
        for meta in old[:PRUNED_MAX]:
            unchanged = {key: meta[key] for key in ("uid", "resourceVersion")}
            try:
                place = f"{self._place}/{meta['name']}"
                self._kubernetes.ask("DELETE", place, {"preconditions": unchanged})
            except KubernetesRefused as error:
                if error.number not in {MISSING, CONFLICT}:
                    raise

    def operation(self, task: Task) -> str:
        """Return a name of a task's operation that is unique among all stores."""
        return f"{self._prefix}-{task.operation.id}-{task.operation.created_ms}"

    def cordon(self, task: Task) -> str:
        """Return the name of the cordon's owner, shared by a move and its following work."""
        operation = task.operation
        if operation.maintenance and not operation.of_vm:
            return f"{self._prefix}-m-{operation.maintenance}"
        return self.operation(task)

    def check_writer(self, task: Task) -> None:
        """Record the task's writer as the newest.

        Raises:
            TaskOfLaterWriter: a newer writer of the same store has called the driver.
            TaskSuperseded: a newer writer of another or an unknown store has.
        """

        def newest(state: dict[str, Any]) -> None:
            if task.generation < state.get("generation", 0):
                same = task.epoch and task.epoch == state.get("epoch")
                kind = TaskOfLaterWriter if same else TaskSuperseded
                facts = {"task": task.id, "generation": task.generation}
                raise kind(**facts, newest=state["generation"])
            state["generation"], state["epoch"] = task.generation, task.epoch

        self._change(f"{self._prefix}-writer", newest)

    def begin(self, task: Task) -> None:
        """Record that an attempt has begun.

        Raises:
            TaskAborted: the operation of the task has ended.
        """

        def note(state: dict[str, Any]) -> None:
            _check_not_aborted(state, task)
            state.setdefault("attempts", {}).setdefault(str(task.attempt), {})

        self._change(self.operation(task), note)

    def facts(self, task: Task) -> dict[str, Any]:
        """Return the notes of a begun attempt.

        Raises:
            TaskForgotten: the attempt was not begun.
            TaskAborted: the operation of the task has ended.
        """
        state = self._read(self.operation(task))[1]
        _check_not_aborted(state, task)
        attempt: dict[str, Any] | None = state.get("attempts", {}).get(str(task.attempt))
        if attempt is None:
            raise TaskForgotten(task=task.id)
        return attempt

    def note(self, task: Task, key: str, fact: object) -> None:
        """Record a fact about an attempt, unless its operation was aborted."""

        def note(state: dict[str, Any]) -> None:
            _check_not_aborted(state, task)
            state["attempts"][str(task.attempt)][key] = fact

        self._change(self.operation(task), note)

    def abort(self, task: Task) -> None:
        """Record the abort, so that no further work of the operation begins."""

        def note(state: dict[str, Any]) -> None:
            state[ABORTED] = True

        self._change(self.operation(task), note)

    def _read(self, name: str) -> tuple[dict[str, Any] | None, dict[str, Any]]:
        """Return a ConfigMap, None if it does not exist, and the state in it."""
        config_map = self._kubernetes.find(f"{self._place}/{name}")
        return config_map, json.loads(config_map["data"]["state"]) if config_map else {}

    def _change(self, name: str, change: Callable[[dict[str, Any]], None]) -> None:
        for attempt in range(TRIES):
            config_map, state = self._read(name)
            before = json.dumps(state)
            change(state)
            after = json.dumps(state)
            if config_map and before == after:
                return
            form = config_map or {"metadata": {"name": name, "labels": {LABEL: VALUE}}}
            state[CHANGED_MS] = self._clock.now_ms()
            form["data"] = {"state": json.dumps(state)}
            try:
                if config_map:
                    self._kubernetes.ask("PUT", f"{self._place}/{name}", form)
                else:
                    self._kubernetes.ask("POST", self._place, form)
            except KubernetesRefused as error:
                if error.number != CONFLICT or attempt == TRIES - 1:
                    raise
            else:
                return


def _is_old(form: dict[str, Any], now_ms: int) -> bool:
    """Whether a record belongs to an operation that ended long ago."""
    state = json.loads(form["data"]["state"])
    attempts: dict[str, Any] = state.get("attempts", {})
    last = attempts.get(str(max(map(int, attempts), default=0)), {})
    if not state.get(ABORTED) and DONE not in last:
        return False
    created = datetime.fromisoformat(form["metadata"]["creationTimestamp"])
    changed_ms: int = state.get(CHANGED_MS, int(created.timestamp() * 1000))
    return changed_ms < now_ms - KEPT_MS


def _check_not_aborted(state: dict[str, Any], task: Task) -> None:
    if state.get(ABORTED):
        raise TaskAborted(task=task.id)
