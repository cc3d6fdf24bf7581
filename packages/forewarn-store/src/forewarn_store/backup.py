"""Backups of a store: copied while a service writes it, checked, and restored.

A backup is a SQLite file with the tables of the schema, for every engine. One copy procedure
therefore serves all engines, a check needs no server, and a restore can move a store to another
engine.

Theory of operation: a restore marks the place as unfinished (`RESTORING`). It copies the tables and
raises generation, history and numbers in one transaction. Then one step of the core raises the
incarnations of the documents and ends announced work (`fleet/recovery.py`); the same transaction
removes the mark. A service refuses to load a marked store.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from forewarn_base.errors import CallerError
from forewarn_base.ids import Ids
from forewarn_base.values import replace, value
from forewarn_core.access.confirmations import Confirmation
from forewarn_core.access.tokens import AccessToken
from forewarn_core.fleet.document import NUMBERS_PER_INCARNATION
from forewarn_core.fleet.draft import Terms
from forewarn_core.fleet.lifecycle import OperationState
from forewarn_core.fleet.maintenance import MaintenanceState
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.state import State
from forewarn_core.fleet.step import step
from forewarn_core.fleet.stimulus import Restored
from forewarn_store import RESTORING, Store, open_store
from forewarn_store.addresses import location_of
from forewarn_store.concurrent_records import ConcurrentRecords
from forewarn_store.engine import Engine, Transaction
from forewarn_store.errors import StoreContradiction, StoreDamaged, StoreMissing, StoreUnavailable
from forewarn_store.migrations import (
    SchemaMigration,
    check_steps,
    every_step,
    migrate,
    run_steps,
    tables_of,
)
from forewarn_store.sqlite import SqliteEngine
from forewarn_store.sqlite_file import sentence

#: 2026-01-01. After a restore, numbers start at the seconds since this time.
#:
#: So every restore is ahead of all earlier restores, provided that a document changes at most once
#: a second on average. Clients may read an incarnation into 31 bits, which last until 2094. The
#: other numbers are `NUMBERS_PER_INCARNATION` times as high, and have 63 bits.
NUMBERING_FROM_MS = 1_767_225_600_000


@value
class BackupFacts:
    """The content of a backup."""

    hosts: int
    vms: int
    #: Numbers of live operations and of live maintenances.
    operations: int
    maintenances: int
    generation: int
    history_seq: int
    bytes: int


@value
class RestoreFacts:
    """The effects of a restore that the operator must check."""

    #: Ids of withdrawn operations, such as `op-7`.
    withdrawn: tuple[str, ...]
    #: Ids of operations whose result the driver must report.
    unknown: tuple[str, ...]
    #: Maintenances that an operator must resume.
    paused: tuple[str, ...]
    #: Tokens that are refused until an administrator resumes them. Source: U-5.
    suspended: tuple[AccessToken, ...]
    #: Calls that waited for a second principal; they are never executed. Source: U-5.
    dropped: tuple[Confirmation, ...]
    #: Number of principals whose roles are those of the backup.
    principals: int


class BackupExists(CallerError):
    """The file for a new backup already exists."""

    code = "backup-exists"
    status = 409
    message = "The file {path} already exists."
    advice = "Use another name for the backup. Forewarn never overwrites backups."


class RestoreOccupied(CallerError):
    """The place for the restore already contains a store."""

    code = "restore-occupied"
    status = 409
    message = "A store already exists at {place}."
    advice = (
        "Move the store away, or restore into an empty database, which --store or --config names. "
        "A restore overwrites nothing."
    )


class RestoreClockBehind(CallerError):
    """The clock is behind the time of the backup to restore."""

    code = "restore-clock-behind"
    status = 409
    message = "The backup is ahead of this machine's clock."
    advice = "Set the clock, then restore again, to a new file or an empty database."


class BackupUnusable(CallerError):
    """The file is not a backup, or is damaged."""

    code = "backup-unusable"
    status = 422
    message = "The backup {path} cannot be used: {reason}."
    advice = "Use a file that `forewarn store backup` wrote, or an earlier backup."


def back_up(address: str, target: Path, copied: Callable[[int], object] = id) -> BackupFacts:
    """Copy a consistent state of a running service's store into a file, and check the copy.

    `copied` receives the number of rows copied so far.

    Raises:
        BackupExists: the file exists already.
        StoreUnavailable: the store cannot be read, or the file cannot be written.
        StoreDamaged: the copy is damaged.
    """
    if target.exists():
        raise BackupExists(path=target)
    try:
        with tempfile.TemporaryDirectory(prefix=".backup-", dir=target.parent) as folder:
            unfinished = Path(folder) / target.name
            source = location_of(address).open_for_reading()
            try:
                _copy_store(source, SqliteEngine(unfinished, must_exist=False), copied)
            finally:
                source.close()
            _make_single_file(unfinished)
            try:
                facts = verify(unfinished)
            except BackupUnusable as error:  # the store itself is damaged
                raise StoreDamaged(place=source.place, reason=error.facts["reason"]) from error
            unfinished.rename(target)
            _sync(target.parent)
    except OSError as error:
        raise StoreUnavailable(place=str(target), reason=sentence(error)) from error
    return facts


def note_backup(address: str, at_ms: int) -> None:
    """Record the start of a store's last backup, ms since the epoch UTC.

    Raises:
        ForewarnError: the store cannot be written, or its schema lacks the table.
    """
    records = ConcurrentRecords(address)
    try:
        with records.writing() as transaction:
            transaction.run("backup_noted", at_ms=at_ms)
    finally:
        records.close()


def verify(backup: Path) -> BackupFacts:
    """Check all pages, references and live records of a backup, and its newest history.

    Raises:
        BackupUnusable: the file is missing or damaged.
        StoreTooNew: a newer version wrote the backup.
    """
    with _open_backup(backup) as engine:
        engine.check()
        done = engine.rows("schema_steps")
        check_steps(engine.place, done, every_step())
        if len(done) < len(every_step()):
            return _verify_upgraded(backup)
        store = Store(engine)
        state = store.look()
        store.check()
        return BackupFacts(
            hosts=len(state.topology.hosts),
            vms=len(state.topology.vms),
            operations=sum(each.live for each in state.operations.values()),
            maintenances=len(state.maintenances),
            generation=store.generation,
            history_seq=store.history_seq,
            bytes=backup.stat().st_size,
        )


def _verify_upgraded(backup: Path) -> BackupFacts:
    """Check a copy of an earlier version's backup, in the schema of this version."""
    try:
        with tempfile.TemporaryDirectory(prefix="forewarn-") as folder:
            copy = shutil.copy(backup, folder)
            engine = SqliteEngine(Path(copy), must_exist=True)
            try:
                migrate(engine)
            finally:
                engine.close()
            _make_single_file(Path(copy))
            return replace(verify(Path(copy)), bytes=backup.stat().st_size)
    except OSError as error:
        raise BackupUnusable(path=backup, reason=sentence(error)) from error


@contextmanager
def _open_backup(backup: Path) -> Iterator[SqliteEngine]:
    """Open a backup for reading; errors of the file become `BackupUnusable`."""
    try:
        engine = SqliteEngine(backup, must_exist=True, read_only=True)
        try:
            yield engine
        finally:
            engine.close()
    except StoreMissing as error:
        raise BackupUnusable(path=backup, reason="the file does not exist") from error
    except (StoreDamaged, StoreContradiction) as error:
        raise BackupUnusable(path=backup, reason=error.facts["reason"]) from error


def restore(backup: Path | None, address: str, *, now_ms: int) -> RestoreFacts:
    """Restore a backup to a new file or an empty database, which a service can then open.

    Args:
        backup: the backup; None: the database's own tools have restored the store at `address`, and
            this function finishes the restore.
        address: the address of the store.
        now_ms: the current time, ms since the epoch UTC.

    Raises:
        RestoreOccupied: there is a store already.
        RestoreClockBehind: the clock is earlier than the backup.
        ForewarnError: the backup is damaged, or the store cannot be written; a service refuses the
            unfinished store, which may be deleted.
    """
    if backup is not None:
        verify(backup)
    incarnation = (now_ms - NUMBERING_FROM_MS) // 1000
    engine = location_of(address).open(must_exist=backup is None, replaces=backup is not None)
    try:
        if backup is not None:
            _reserve(backup, engine)
        with engine.writing() as transaction:
            engine.lock_schema(transaction)
            if backup is not None:
                _copy_backup(backup, engine, transaction)
            number = NUMBERS_PER_INCARNATION * incarnation
            if not transaction.rows("raise", number=number, epoch=RESTORING):
                raise RestoreClockBehind
            transaction.run("lease_freed")
            transaction.run("signed_out", digest="", at_ms=now_ms)
    finally:
        engine.close()
    store = open_store(address, must_exist=True)
    try:
        return _go_on(store, incarnation, now_ms)
    finally:
        store.close()


def _go_on(store: Store, incarnation: int, now_ms: int) -> RestoreFacts:
    """Raise the incarnations of documents and withdraw announced work; see `fleet/recovery.py`."""
    store.restoring = True
    state = store.load()
    dropped = tuple(state.access.confirmations.values())
    read = [view.document.incarnation for view in state.views.values()]
    if max(read, default=0) >= incarnation:
        raise RestoreClockBehind
    terms = Terms(NoticePolicy(), "operator", partial(Ids().guid, "event"))
    changes = step(state, Restored(incarnation), now_ms=now_ms, terms=terms).changes
    store.commit(changes)
    state.keep()
    store.end_restore()
    ended = [each for each in changes.operations.values() if not each.live]
    return RestoreFacts(
        withdrawn=tuple(each.id for each in ended),
        unknown=_unknown(state),
        paused=tuple(
            each.id
            for each in changes.maintenances.values()
            if each.state is MaintenanceState.PAUSED
        ),
        suspended=tuple(state.access.tokens.values()),
        dropped=dropped,
        principals=len(state.access.principals),
    )


def _unknown(state: State) -> tuple[str, ...]:
    running = OperationState.RUNNING
    return tuple(each.id for each in state.operations.values() if each.state is running)


def _copy_store(source: Engine, target: Engine, copied: Callable[[int], object]) -> None:
    try:
        with source.reading() as read, target.writing() as write:
            steps = _steps_of(source, read)
            run_steps(target, write, steps)
            count = 0
            for rows in _copy(source, read, write, steps):
                count += rows
                copied(count)
    finally:
        target.close()


def _reserve(backup: Path, target: Engine) -> None:
    """Mark an empty place as an unfinished restore, so that no service uses it as a new store.

    Raises:
        RestoreOccupied: there is a store already, other than a restore that copied nothing.
    """
    with _open_backup(backup) as source, source.reading() as read:
        steps = _steps_of(source, read)
    with target.writing() as write:
        target.lock_schema(write)
        if run_steps(target, write, steps) == len(steps):
            write.run("restore_begun", epoch=RESTORING)
        _check_reserved(target, write, steps)


def _check_reserved(target: Engine, write: Transaction, steps: tuple[SchemaMigration, ...]) -> None:
    unchanged = len(write.rows("schema_steps")) == len(steps)
    if not unchanged or write.rows("restore_empty", epoch=RESTORING) != [(1,)]:
        raise RestoreOccupied(place=target.place)


def _copy_backup(backup: Path, target: Engine, write: Transaction) -> None:
    """Copy a backup, and upgrade the copy of an earlier version's backup."""
    with _open_backup(backup) as source, source.reading() as read:
        steps = _steps_of(source, read)
        _check_reserved(target, write, steps)
        for _ in _copy(source, read, write, steps):
            pass
    run_steps(target, write, every_step())


def _steps_of(source: Engine, read: Transaction) -> tuple[SchemaMigration, ...]:
    """Return the schema steps that have created a store."""
    done = read.rows("schema_steps")
    check_steps(source.place, done, every_step())
    return every_step()[: len(done)]


def _copy(
    source: Engine, read: Transaction, write: Transaction, steps: tuple[SchemaMigration, ...]
) -> Iterator[int]:
    """Copy every table in batches, in the order of references; yield the rows of each batch.

    Cost: O(rows).
    """
    for table in tables_of(steps):
        write.run_filled("copy_emptied", table=table)  # the schema fills some tables
        for rows in source.portions(read, table):
            write.insert(table, rows)
            yield len(rows)


def _make_single_file(path: Path) -> None:
    """Merge the log into the database file, so that a read-only disk can contain the file."""
    with sqlite3.connect(path) as connection:
        [(mode,)] = connection.execute("PRAGMA journal_mode = DELETE").fetchall()
    connection.close()
    if mode != "delete":
        raise StoreDamaged(place=str(path), reason=f"its journal mode stays {mode}")
    _sync(path)


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
