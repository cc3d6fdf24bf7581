"""What the driver keeps of its tasks, in ConfigMaps: it finds them again on any machine.

One for each operation, and one for the newest writer. A change is made to what was read, or not.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from forewarn.drivers.kubernetes.client import CONFLICT, KubernetesRefused
from forewarn.drivers.task_files import TaskAborted, TaskForgotten, TaskSuperseded

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn.drivers import Task
    from forewarn.drivers.kubernetes.client import Kubernetes

#: How often a change is tried that somebody else is faster with.
TRIES = 5
ABORTED, DONE = "aborted", "done"


class Records:
    """The tasks of one driver."""

    def __init__(self, kubernetes: Kubernetes, namespace: str, driver: str) -> None:
        """Read nothing yet."""
        self._kubernetes = kubernetes
        self._place = f"/api/v1/namespaces/{namespace}/configmaps"
        self._driver = driver.lower().replace("_", "-")

    def operation(self, task: Task) -> str:
        """Return the name of a task's operation, that no two stores share."""
        return f"forewarn-{self._driver}-{task.operation.id}-{task.operation.created_ms}"

    def check_writer(self, task: Task) -> None:
        """Take the task's writer for the newest.

        Raises:
            TaskSuperseded: a later one was here.
        """

        def newest(said: dict[str, Any]) -> None:
            if task.generation < said.get("generation", 0):
                facts = {"task": task.id, "generation": task.generation}
                raise TaskSuperseded(**facts, newest=said["generation"])
            said["generation"] = task.generation

        self._change(f"forewarn-{self._driver}-writer", newest)

    def begin(self, task: Task) -> None:
        """Note that an attempt was begun.

        Raises:
            TaskAborted: its operation has ended.
        """

        def note(said: dict[str, Any]) -> None:
            _check_not_aborted(said, task)
            said.setdefault("attempts", {}).setdefault(str(task.operation.attempt), {})

        self._change(self.operation(task), note)

    def facts(self, task: Task) -> dict[str, Any]:
        """Return what is noted of an attempt that was begun.

        Raises:
            TaskForgotten: it was not.
            TaskAborted: its operation has ended.
        """
        said = self._read(self.operation(task))[1]
        _check_not_aborted(said, task)
        found: dict[str, Any] | None = said.get("attempts", {}).get(str(task.operation.attempt))
        if found is None:
            raise TaskForgotten(task=task.id)
        return found

    def note(self, task: Task, key: str, fact: object) -> None:
        """Note a fact of an attempt, unless its operation was called off meanwhile."""

        def note(said: dict[str, Any]) -> None:
            _check_not_aborted(said, task)
            said["attempts"][str(task.operation.attempt)][key] = fact

        self._change(self.operation(task), note)

    def abort(self, task: Task) -> None:
        """Have nothing of the operation begun any more."""

        def note(said: dict[str, Any]) -> None:
            said[ABORTED] = True

        self._change(self.operation(task), note)

    def _read(self, name: str) -> tuple[dict[str, Any] | None, dict[str, Any]]:
        found = self._kubernetes.find(f"{self._place}/{name}")
        return found, json.loads(found["data"]["state"]) if found else {}

    def _change(self, name: str, change: Callable[[dict[str, Any]], None]) -> None:
        for attempt in range(TRIES):
            found, said = self._read(name)
            before = json.dumps(said)
            change(said)
            after = json.dumps(said)
            if found and before == after:
                return
            form = found or {"metadata": {"name": name, "labels": {"forewarn.dev/record": "task"}}}
            form["data"] = {"state": after}
            try:
                if found:
                    self._kubernetes.ask("PUT", f"{self._place}/{name}", form)
                else:
                    self._kubernetes.ask("POST", self._place, form)
            except KubernetesRefused as error:
                if error.number != CONFLICT or attempt == TRIES - 1:
                    raise
            else:
                return


def _check_not_aborted(said: dict[str, Any], task: Task) -> None:
    if said.get(ABORTED):
        raise TaskAborted(task=task.id)
