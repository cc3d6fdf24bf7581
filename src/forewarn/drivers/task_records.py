"""What a driver keeps of its tasks, in the store: whichever process calls it next finds them again.

Each record is a text with a name, of one attempt or (attempt 0) of a whole operation.
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

#: Operations back from the newest whose records are kept after their end.
KEPT_MAX = 1000
#: Attempt in place of one, where a record is of the whole operation.
WHOLE = 0
BEGUN, ABORTED, DONE = "begun", "aborted", "done"
_TASK_NAME = re.compile(r"op-([0-9]{1,18})/([0-9]{1,9})", re.ASCII)


class TaskSuperseded(PeerError):
    """A driver is called in the name of a writer that another one has taken the place of."""

    code = "driver-task-superseded"
    message = "{task} comes from writer generation {generation}, and {newest} was seen already."
    advice = "Another process is the writer now; nothing was done."


class TaskAborted(PeerError):
    """A driver is asked to begin an aborted task."""

    code = "driver-task-aborted"
    message = "{task} was aborted before it was to begin."
    advice = "Nothing was done; request the work again."


class TaskForgotten(PeerError):
    """A driver is asked after a task it knows nothing of."""

    code = "driver-task-forgotten"
    message = "Nothing is known of {task}."
    advice = "Look at its host; then retry, complete or fail it."


class TaskRecords:
    """The records of one driver's tasks. Safe between threads and processes.

    Every method may raise what says that the store cannot be used now; the call may then be made
    again.
    """

    def __init__(self, store: str, driver: str) -> None:
        """Use the store at an address; empty: one that ends with this."""
        self._beside = RecordsBeside(store)
        self.driver = driver

    @property
    def store(self) -> str:
        """Where another process finds the same records; may hold a password."""
        return self._beside.address

    def notes(self, operation: int) -> Notes:
        """Return all records of an operation."""
        notes: Notes = {WHOLE: {}}
        rows = self._beside.rows("task_notes", driver=self.driver, operation=operation)
        for attempt, name, body in rows:
            notes.setdefault(int(attempt), {})[str(name)] = str(body)
        return notes

    def note(self, operation: int, attempt: int, name: str) -> str | None:
        """Return one record; None if there is none."""
        key: dict[str, Value] = {"operation": operation, "attempt": attempt, "name": name}
        rows = self._beside.rows("task_note", driver=self.driver, **key)
        return str(rows[0][0]) if rows else None

    def begin(self, task: TaskKey, name: str = BEGUN) -> bool:
        """Note that an attempt, or a named part of it, begins; return whether it had not before.

        Raises:
            TaskSuperseded: a later writer was here.
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
        """Refuse to go on with a task.

        Raises:
            TaskSuperseded, TaskAborted: as for `begin`.
        """
        with self._beside.writing() as transaction:
            self._enter(transaction, task)
            self._check_not_aborted(transaction, task)

    def abort(self, task: TaskKey) -> None:
        """Note that nothing more of an operation may begin.

        Raises:
            TaskSuperseded: a later writer was here.
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
        """Close the connections; the next use makes new ones."""
        self._beside.close()

    def _put(
        self, transaction: Transaction, operation: int, attempt: int, texts: dict[str, str]
    ) -> None:
        key: dict[str, Value] = {"driver": self.driver, "operation": operation, "attempt": attempt}
        for name, text in texts.items():
            transaction.run("task_put", **key, name=name, body=text.replace("\0", ""))

    def _enter(self, transaction: Transaction, task: TaskKey) -> None:
        """Keep every other caller of the driver out until the transaction ends."""
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
    """Return operation and attempt of a task called `op-12/1`; None if that is not a name."""
    match = _TASK_NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None
