"""A driver's task records in the store, shared by all processes.

Each record is a named text of an attempt, or with attempt 0, of the operation.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from forewarn_base.errors import PeerError
from forewarn_drivers import TaskKey
from forewarn_store.concurrent_records import ConcurrentRecords
from forewarn_store.engine import Transaction, Value

#: Records of an operation: attempt -> name -> text.
Notes: TypeAlias = dict[int, dict[str, str]]

#: Number of newest operations whose records remain after their end.
KEPT_MAX = 1000
#: Attempt number in records of an operation instead of an attempt.
WHOLE = 0
BEGUN, ABORTED, DONE = "begun", "aborted", "done"
_TASK_NAME = re.compile(r"op-([0-9]{1,18})/([0-9]{1,9})", re.ASCII)


class TaskSuperseded(PeerError):
    """A newer writer has superseded the calling writer."""

    code = "driver-task-superseded"
    message = "{task} belongs to writer generation {generation}; generation {newest} is newer."
    advice = "Another process is the writer now; the task was refused."


class TaskOfLaterWriter(TaskSuperseded):
    """Records outside the store name a later writer of the same store.

    If the calling writer is still the writer, the store has lost commits. Source: H-10.
    """

    code = "driver-task-of-later-writer"


class TaskAborted(PeerError):
    """The task to begin was already aborted."""

    code = "driver-task-aborted"
    message = "{task} was aborted before its begin."
    advice = "No work was done; request the work again."


class TaskForgotten(PeerError):
    """The driver does not know the task."""

    code = "driver-task-forgotten"
    message = "The driver has no records of {task}."
    advice = "Check the task's host; then retry, complete or fail the operation."


class TaskRecords:
    """The records of one driver's tasks; safe between threads and processes.

    Every method may raise an error about an unavailable store, after which the caller may repeat
    the call.
    """

    def __init__(self, store: str, driver: str) -> None:
        """Use the store at an address; empty: a temporary in-memory store."""
        self._beside = ConcurrentRecords(store or "sqlite::memory:")
        self.driver = driver

    @property
    def store(self) -> str:
        """The store's address for other processes; may contain a password."""
        return self._beside.shared_address()

    def notes(self, operation: int) -> Notes:
        """Return all records of an operation."""
        notes: Notes = {WHOLE: {}}
        rows = self._beside.rows("task_notes", driver=self.driver, operation=operation)
        for attempt, name, body in rows:
            notes.setdefault(int(attempt), {})[str(name)] = str(body)
        return notes

    def note(self, operation: int, attempt: int, name: str) -> str | None:
        """Return a record, or None."""
        key: dict[str, Value] = {"operation": operation, "attempt": attempt, "name": name}
        rows = self._beside.rows("task_note", driver=self.driver, **key)
        return str(rows[0][0]) if rows else None

    def begin(self, task: TaskKey, name: str = BEGUN) -> bool:
        """Record that an attempt, or a named part, begins; return False for a repeated call.

        Raises:
            TaskSuperseded: a newer writer has called the driver.
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
        """Record an abort, so that no further work of an operation begins.

        Raises:
            TaskSuperseded: a newer writer has called the driver.
        """
        with self._beside.writing() as transaction:
            self._enter(transaction, task)
            self._put(transaction, task.operation, WHOLE, {ABORTED: ""})

    def put(self, operation: int, attempt: int, texts: dict[str, str]) -> None:
        """Write records atomically."""
        with self._beside.writing() as transaction:
            self._put(transaction, operation, attempt, texts)

    def drop(self, operation: int, attempt: int, name: str) -> None:
        """Delete a record."""
        key: dict[str, Value] = {"operation": operation, "attempt": attempt, "name": name}
        with self._beside.writing() as transaction:
            transaction.run("task_drop", driver=self.driver, **key)

    def close(self) -> None:
        """Close the connections; the next use opens new connections."""
        self._beside.close()

    def _put(
        self, transaction: Transaction, operation: int, attempt: int, texts: dict[str, str]
    ) -> None:
        key: dict[str, Value] = {"driver": self.driver, "operation": operation, "attempt": attempt}
        for name, text in texts.items():
            transaction.run("task_put", **key, name=name, body=text.replace("\0", ""))

    def _enter(self, transaction: Transaction, task: TaskKey) -> None:
        """Block all other callers of the driver until the transaction ends."""
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
    """Parse a task name such as `op-12/1` into operation and attempt; None for an invalid name."""
    match = _TASK_NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None
