"""A driver's task records in the store, where any later process finds them.

Each record is a named text of one attempt, or (attempt 0) of a whole operation.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from forewarn.errors import PeerError
from forewarn.store.beside import RecordsBeside

if TYPE_CHECKING:
    from forewarn.drivers import TaskKey
    from forewarn.store.engine import Transaction, Value

    #: Attempt -> name -> text.
    Notes: TypeAlias = dict[int, dict[str, str]]

#: Number of newest operations whose records are kept after their end.
KEPT_MAX = 1000
#: Attempt number in records of the whole operation.
WHOLE = 0
BEGUN, ABORTED, DONE = "begun", "aborted", "done"
_TASK_NAME = re.compile(r"op-([0-9]{1,18})/([0-9]{1,9})", re.ASCII)


class TaskSuperseded(PeerError):
    """The calling writer has been superseded by another."""

    code = "driver-task-superseded"
    message = "{task} comes from writer generation {generation}, and {newest} was seen already."
    advice = "Another process is the writer now; nothing was done."


class TaskAborted(PeerError):
    """A driver should begin an aborted task."""

    code = "driver-task-aborted"
    message = "{task} was aborted before it was to begin."
    advice = "Nothing was done; request the work again."


class TaskForgotten(PeerError):
    """A driver is asked about an unknown task."""

    code = "driver-task-forgotten"
    message = "Nothing is known of {task}."
    advice = "Look at its host; then retry, complete or fail it."


class TaskRecords:
    """The records of one driver's tasks; safe between threads and processes.

    Every method may raise an error about an unavailable store; the call may then be repeated.
    """

    def __init__(self, store: str, driver: str) -> None:
        """Use the store at an address; empty: an in-memory store that ends with this object."""
        self._beside = RecordsBeside(store)
        self.driver = driver

    @property
    def store(self) -> str:
        """The store's address for other processes; may contain a password."""
        return self._beside.address

    def notes(self, operation: int) -> Notes:
        """Return all records of an operation."""
        notes: Notes = {WHOLE: {}}
        rows = self._beside.rows("task_notes", driver=self.driver, operation=operation)
        for attempt, name, body in rows:
            notes.setdefault(int(attempt), {})[str(name)] = str(body)
        return notes

    def note(self, operation: int, attempt: int, name: str) -> str | None:
        """Return one record; None if it does not exist."""
        key: dict[str, Value] = {"operation": operation, "attempt": attempt, "name": name}
        rows = self._beside.rows("task_note", driver=self.driver, **key)
        return str(rows[0][0]) if rows else None

    def begin(self, task: TaskKey, name: str = BEGUN) -> bool:
        """Record that an attempt, or a named part, begins; return False if it was recorded before.

        Raises:
            TaskSuperseded: a later writer has called.
            TaskAborted: the operation was aborted.
        """
        key: dict[str, Value] = {
            "driver": self.driver,
            "operation": task.operation,
            "attempt": task.attempt,
        }
        with self._beside.writing() as transaction:
            self._enter(transaction, task)
            self._check_not_aborted(transaction, task)
            fresh = transaction.rows("task_claim", **key, name=name)
            if fresh:
                before = task.operation - KEPT_MAX
                transaction.run("task_tidy", driver=self.driver, before=before)
        return bool(fresh)

    def check(self, task: TaskKey) -> None:
        """Refuse a task of a superseded writer or an aborted operation.

        Raises:
            TaskSuperseded, TaskAborted: as for `begin`.
        """
        with self._beside.writing() as transaction:
            self._enter(transaction, task)
            self._check_not_aborted(transaction, task)

    def abort(self, task: TaskKey) -> None:
        """Record that no further work of an operation may begin.

        Raises:
            TaskSuperseded: a later writer has called.
        """
        with self._beside.writing() as transaction:
            self._enter(transaction, task)
            self._put(transaction, task.operation, WHOLE, {ABORTED: ""})

    def put(self, operation: int, attempt: int, texts: dict[str, str]) -> None:
        """Write all records, or none."""
        with self._beside.writing() as transaction:
            self._put(transaction, operation, attempt, texts)

    def drop(self, operation: int, attempt: int, name: str) -> None:
        """Delete a record."""
        key: dict[str, Value] = {"operation": operation, "attempt": attempt, "name": name}
        with self._beside.writing() as transaction:
            transaction.run("task_drop", driver=self.driver, **key)

    def close(self) -> None:
        """Close the connections; the next use opens new ones."""
        self._beside.close()

    def _put(
        self, transaction: Transaction, operation: int, attempt: int, texts: dict[str, str]
    ) -> None:
        key: dict[str, Value] = {"driver": self.driver, "operation": operation, "attempt": attempt}
        for name, text in texts.items():
            transaction.run("task_put", **key, name=name, body=text.replace("\0", ""))

    def _enter(self, transaction: Transaction, task: TaskKey) -> None:
        """Lock out all other callers of the driver until the transaction ends."""
        [(newest,)] = transaction.rows(
            "task_writer", driver=self.driver, generation=task.generation
        )
        if int(newest) > task.generation:
            facts = {"generation": task.generation, "newest": newest}
            raise TaskSuperseded(task=task.id, **facts)

    def _check_not_aborted(self, transaction: Transaction, task: TaskKey) -> None:
        key: dict[str, Value] = {"operation": task.operation, "attempt": WHOLE, "name": ABORTED}
        if transaction.rows("task_note", driver=self.driver, **key):
            raise TaskAborted(task=task.id)


def task_numbers(name: str) -> tuple[int, int] | None:
    """Return operation and attempt of a task name such as `op-12/1`; None if it is invalid."""
    match = _TASK_NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None
