"""What the driver keeps of its tasks, in ConfigMaps: it finds them again on any machine.

One for each operation, and one for the newest writer. A change is made to what was read, or not.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from forewarn.clock import SystemClock
from forewarn.drivers.kubernetes.client import CONFLICT, MISSING, KubernetesRefused
from forewarn.drivers.task_records import TaskAborted, TaskForgotten, TaskSuperseded

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn.drivers import Task
    from forewarn.drivers.kubernetes.client import Kubernetes

#: How often to retry a change after conflicts with other writers.
TRIES = 5
ABORTED, DONE = "aborted", "done"
#: When something was noted last, ms since the epoch UTC.
CHANGED_MS = "changed_ms"
#: How old the record of an ended operation must be before it is removed, in milliseconds; and
#: how many are removed at a time.
KEPT_MS, PRUNED_MAX = 90 * 24 * 3600 * 1000, 1000
#: What the driver's ConfigMaps are found by.
LABEL, VALUE = "forewarn.dev/record", "task"


class KubernetesRecords:
    """The tasks of one driver."""

    def __init__(self, kubernetes: Kubernetes, namespace: str, driver: str) -> None:
        """Read nothing yet."""
        self._kubernetes = kubernetes
        self._place = f"/api/v1/namespaces/{namespace}/configmaps"
        self._prefix = f"forewarn-{driver.lower().replace('_', '-')}"
        self._clock = SystemClock()

    def prune(self, now_ms: int) -> None:
        """Remove records of operations that ended long ago.

        Costs a request for each 100 that are kept, and one for each that is removed.
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
        """Return the name of a task's operation, that no two stores share."""
        return f"{self._prefix}-{task.operation.id}-{task.operation.created_ms}"

    def cordon(self, task: Task) -> str:
        """Return who cordons a task's node: the work that follows a move gives the node back."""
        operation = task.operation
        if operation.maintenance and not operation.of_vm:
            return f"{self._prefix}-m-{operation.maintenance}"
        return self.operation(task)

    def check_writer(self, task: Task) -> None:
        """Record the task's writer as the newest.

        Raises:
            TaskSuperseded: a later one was here.
        """

        def newest(state: dict[str, Any]) -> None:
            if task.generation < state.get("generation", 0):
                facts = {"task": task.id, "generation": task.generation}
                raise TaskSuperseded(**facts, newest=state["generation"])
            state["generation"] = task.generation

        self._change(f"{self._prefix}-writer", newest)

    def begin(self, task: Task) -> None:
        """Note that an attempt was begun.

        Raises:
            TaskAborted: its operation has ended.
        """

        def note(state: dict[str, Any]) -> None:
            _check_not_aborted(state, task)
            state.setdefault("attempts", {}).setdefault(str(task.attempt), {})

        self._change(self.operation(task), note)

    def facts(self, task: Task) -> dict[str, Any]:
        """Return the notes on an attempt that was begun.

        Raises:
            TaskForgotten: it was not.
            TaskAborted: its operation has ended.
        """
        state = self._read(self.operation(task))[1]
        _check_not_aborted(state, task)
        attempt: dict[str, Any] | None = state.get("attempts", {}).get(str(task.attempt))
        if attempt is None:
            raise TaskForgotten(task=task.id)
        return attempt

    def note(self, task: Task, key: str, fact: object) -> None:
        """Note a fact of an attempt, unless its operation was called off meanwhile."""

        def note(state: dict[str, Any]) -> None:
            _check_not_aborted(state, task)
            state["attempts"][str(task.attempt)][key] = fact

        self._change(self.operation(task), note)

    def abort(self, task: Task) -> None:
        """Note that nothing more of the operation may begin."""

        def note(state: dict[str, Any]) -> None:
            state[ABORTED] = True

        self._change(self.operation(task), note)

    def _read(self, name: str) -> tuple[dict[str, Any] | None, dict[str, Any]]:
        form = self._kubernetes.find(f"{self._place}/{name}")
        return form, json.loads(form["data"]["state"]) if form else {}

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
    """Whether a record is of an operation that ended long ago."""
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
