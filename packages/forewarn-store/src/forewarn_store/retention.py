"""Retention of the past: history, ended work and the audit within limits of age and size.

History is exported before it is deleted. A replay then begins at a checkpoint: the records that
were live at the end of the deleted part. Checkpoints are computed from history alone, outside the
writer, without the live state.
"""

from __future__ import annotations

import gzip
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from forewarn_base.errors import PeerError
from forewarn_base.values import value
from forewarn_core.fleet.history import Rows
from forewarn_core.fleet.state import Entry, Image
from forewarn_store.cursors import OutboxCursors
from forewarn_store.engine import Engine, Transaction
from forewarn_store.images import image_columns
from forewarn_store.reading import HistoryPage, Recorded


class RetainedStore(Protocol):
    """The methods of the store that concern its past."""

    def entries(self) -> Iterator[Recorded]:
        """Return all history, oldest first."""

    def history(self, page: HistoryPage) -> list[Recorded]:
        """Return one page of history."""

    def confirm(self) -> None:
        """Check that this process is still the writer."""

    def work_kept_ms(self) -> int:
        """Return for how long ended work must stay, in ms."""


log = logging.getLogger("forewarn.store")

#: Entries in a batch of a read, export or deletion; the writer waits for one batch at most.
PAGE = 1000

#: Time limit for history that a slow destination of the outbox still needs: a week.
HELD_MS_MAX = 7 * 86_400_000

#: Ended operations in a batch of a deletion.
WORK_PAGE = 200

#: Number of newest and of oldest rows from which a size is estimated.
SAMPLED = 200

DAY_MS = 86_400_000

#: Tables of an ended maintenance, the referenced one last.
MAINTENANCE_TABLES = (
    "maintenance_target",
    "owner_choice",
    "owner_deferral",
    "maintenance_plan",
    "maintenance_hosts",
    "maintenance",
)

#: Number of records in one batch of a checkpoint.
PORTION = 500

_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC

_line = msgspec.json.Encoder().encode


class ExportFailed(PeerError):
    """An export of history failed, so that nothing was deleted."""

    code = "history-export-failed"
    status = 503
    message = "History cannot be exported to {directory}: {reason}."
    advice = "Nothing was removed. Check that [history] export_directory exists and has free space."


class RetentionLimited(PeerError):
    """The past of a store exceeds its limits, and nothing more may be deleted."""

    code = "retention-limited"
    message = "Ended work and history exceed the limits of [history]: {reason}."
    advice = (
        "Raise [history] max_bytes. If nothing can be exported, set [history] export_directory, or "
        "export to false."
    )


@value
class Retention:
    """Limits of the past, and the directory for exports."""

    #: Directory for exports; None: nothing is exported.
    directory: Path | None
    #: Whether a missing directory is created.
    creates: bool = False
    #: Age from which the past is removed, in milliseconds; 0: no limit.
    max_age_ms: int = 0
    #: Largest size of the past, in bytes without indexes; 0: no limit.
    max_bytes: int = 0
    #: Age beyond the limit from which history is removed, in milliseconds; and the share of
    #: `max_bytes` to which it is removed. So a deletion, which costs the live state, is rare.
    slack_ms: int = 0
    removed_to: float = 1.0

    @property
    def limits(self) -> bool:
        """Whether there is a limit."""
        return bool(self.max_age_ms or self.max_bytes)


@value
class PastSize:
    """Sizes in bytes, without indexes; of work and audit estimated."""

    history: int
    #: Ended operations with their events and VMs.
    work: int
    audit: int

    @property
    def total(self) -> int:
        """The size of the past."""
        return self.history + self.work + self.audit


@value
class Trimmed:
    """The result of a deletion."""

    #: Numbers of removed entries of history and of removed operations.
    entries: int = 0
    operations: int = 0
    #: Time before which records of the audit exceed the limits, ms since the epoch UTC.
    audit_before_ms: int = 0
    #: Why the past still exceeds its limits; empty if it does not.
    excess: str = ""


@value
class _Cut:
    """What to remove."""

    #: Last entry of history; 0: none.
    last: int
    #: Time before which ended work is removed, ms since the epoch UTC.
    work_before_ms: int
    audit_before_ms: int
    excess: str


def trim(store: RetainedStore, engine: Engine, retention: Retention, *, now_ms: int) -> Trimmed:
    """Export and delete the past beyond its limits, oldest first.

    History goes first, after a checkpoint was written. Ended operations follow, with their events
    and their maintenances, once history no longer mentions them. Safe to repeat after an
    interruption. Cost: reads the deleted part and the live state; with `max_bytes`, also the
    length of all history.

    Raises:
        ExportFailed: the export could not be written; nothing was removed.
        ForewarnError: the store could not be read or written; the next call continues.
    """
    _remove(store, engine, _checkpoint_seq(engine))  # complete an interrupted earlier call
    cut = _cut(engine, retention, now_ms, floor_ms=now_ms - store.work_kept_ms())
    count = 0
    if cut.last:
        [(first,)] = engine.rows("history_first")
        rows = Rows()
        at_ms = _export(store, retention, rows, range(int(first), cut.last + 1))
        _write_checkpoint(store, engine, rows, seq=cut.last, at_ms=at_ms)
        _remove(store, engine, cut.last)
        count = cut.last + 1 - int(first)
    operations = _remove_work(store, engine, cut.work_before_ms)
    if count or operations:
        text = "removed %d entries of history, to %d, and %d ended operations"
        log.info(text, count, cut.last, operations, extra={"action": "history.trimmed"})
    return Trimmed(count, operations, cut.audit_before_ms, cut.excess)


def size_of(engine: Engine) -> PastSize:
    """Estimate the size of the past. Cost: reads all history, and some operations and records."""
    with engine.reading() as transaction:
        [(history,)] = transaction.rows("history_bytes")
        return PastSize(
            int(history),
            _estimate_bytes(transaction, "work"),
            _estimate_bytes(transaction, "audit"),
        )


def _estimate_bytes(transaction: Transaction, what: str) -> int:
    """Return the count of rows times the mean size of the newest and the oldest."""
    [(count,)] = transaction.rows(f"{what}_count")
    samples = [
        int(size)
        for direction in ("ASC", "DESC")
        for (size,) in transaction.rows_filled(
            f"{what}_sizes", {"direction": direction}, limit=SAMPLED
        )
    ]
    return int(count) * sum(samples) // max(len(samples), 1)


def _cut(engine: Engine, retention: Retention, now_ms: int, *, floor_ms: int) -> _Cut:
    """Return what to remove; work that ended after `floor_ms` stays."""
    oldest_ms = now_ms - retention.max_age_ms if retention.max_age_ms else 0
    surplus = left = work_ms = 0
    if retention.max_bytes:
        size, wanted = size_of(engine), int(retention.removed_to * retention.max_bytes)
        left = max(size.total - wanted, 0) if size.total > retention.max_bytes else 0
        # History has at least half of the limit, however much ended work and the audit have.
        surplus = min(left, max(size.history - wanted // 2, 0))
        left -= surplus
    if left:
        work_ms, removed = _work_cut(engine, left, floor_ms)
        left -= removed
    before_ms = max(oldest_ms, work_ms)
    since = engine.rows("history_next", seq=0)
    is_old = bool(since) and int(since[0][0]) < max(oldest_ms - retention.slack_ms, work_ms)
    last = _last_to_remove(engine, surplus, before_ms, now_ms) if surplus or is_old else 0
    rows = engine.rows("history_next", seq=last)
    history_ms = int(rows[0][0]) if rows else now_ms
    excess = ""
    if left > 0:
        excess = (
            f"work of the last {(now_ms - floor_ms) // DAY_MS} days and the audit exceed the limit"
            f" by about {left} bytes"
        )
    return _Cut(last, min(before_ms, floor_ms, history_ms), before_ms, excess)


def _work_cut(engine: Engine, surplus: int, floor_ms: int) -> tuple[int, int]:
    """Return the time before which ended work has about `surplus` bytes, and these bytes.

    Only work that ended before `floor_ms` counts.
    """
    with engine.reading() as transaction:
        [(count,)] = transaction.rows("work_count")
        size = _estimate_bytes(transaction, "work")
        mean = max(size // max(int(count), 1), 1)
        [(old,)] = transaction.rows("work_old_count", before_ms=floor_ms)
        wanted = min(-(-surplus // mean), int(old))
        if not wanted:
            return 0, 0
        [(ended_ms,)] = transaction.rows("work_at", place=wanted - 1)
    return int(ended_ms) + 1, wanted * mean


def _last_to_remove(engine: Engine, surplus: int, before_ms: int, now_ms: int) -> int:
    """Return the number of the last entry beyond the limits; 0 without such entries."""
    held = OutboxCursors(engine).held()
    last = 0
    while True:
        page = engine.rows("history_sizes", after=last, limit=PAGE)
        for seq, at_ms, size in page:
            if surplus <= 0 and int(at_ms) >= before_ms:
                return last
            if held is not None and int(seq) > held and int(at_ms) >= now_ms - HELD_MS_MAX:
                return last
            last = int(seq)
            surplus -= int(size)
        if len(page) < PAGE:
            return last


def _remove_work(store: RetainedStore, engine: Engine, before_ms: int) -> int:
    """Delete work that ended before a time, in pages, while this process is the writer."""
    count, after = 0, (0, 0)
    while before_ms:
        page = engine.rows(
            "work_ended", before_ms=before_ms, after_ms=after[0], after=after[1], limit=WORK_PAGE
        )
        if not page:
            break
        after = int(page[-1][0]), int(page[-1][1])
        numbers = [(int(number),) for _, number, keep in page if not keep]
        count += len(numbers)
        if numbers:
            store.confirm()
            with engine.writing() as transaction:
                for statement in ("work_vms_forget", "work_events_forget", "work_forget"):
                    transaction.run_many(statement, numbers)
    while before_ms:
        ended = engine.rows("maintenances_ended", before_ms=before_ms, limit=PAGE)
        if not ended:
            break
        store.confirm()
        with engine.writing() as transaction:
            for table in MAINTENANCE_TABLES:
                statement = "maintenance_forget" if table == "maintenance" else f"{table}_forget"
                transaction.run_many(statement, ended)
    return count


def _export(store: RetainedStore, retention: Retention, rows: Rows, which: range) -> int:
    """Write entries as JSON lines with complete images; return the time of the last entry."""
    at_ms = 0

    def lines() -> Iterator[dict[str, object]]:
        nonlocal at_ms
        for recorded in _until(store.entries(), which[-1]):
            whole = rows.whole(recorded.entry)
            if recorded.seq >= which[0]:
                at_ms = whole.at_ms
                yield {"sequence": recorded.seq, **_export_form(whole)}

    if retention.directory is None:
        for _ in lines():
            pass
    else:
        name = f"history-{which[0]:012}-{which[-1]:012}"
        write_export(retention.directory, name, lines(), creates=retention.creates)
    return at_ms


def write_export(
    directory: Path, name: str, lines: Iterable[object], *, creates: bool = False
) -> None:
    """Write a file of compressed JSON lines, or leave no file.

    `creates`: whether a missing directory is created.

    Raises:
        ExportFailed: the file could not be written.
    """
    target = directory / f"{name}.jsonl.gz"
    unfinished = target.with_name(f".{target.name}.part")
    try:
        if creates:
            directory.mkdir(mode=0o700, exist_ok=True)
        with os.fdopen(os.open(unfinished, _NEW, 0o600), "wb") as file:
            with gzip.open(file, "wb") as packed:
                packed.writelines(_line(each) + b"\n" for each in lines)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(target)
    except OSError as error:
        raise ExportFailed(directory=directory, reason=error.strerror) from error


def _export_form(entry: Entry) -> dict[str, object]:
    images = [{"kind": each.kind, "key": each.key, "row": each.row} for each in entry.images]
    form: dict[str, object] = {name: getattr(entry, name) for name in Entry.__match_args__}
    form["images"] = images
    return form


def _until(entries: Iterator[Recorded], last: int) -> Iterator[Recorded]:
    for recorded in entries:
        if recorded.seq > last:
            return
        yield recorded


def _write_checkpoint(
    store: RetainedStore, engine: Engine, rows: Rows, *, seq: int, at_ms: int
) -> None:
    """Write the live rows, which readers see after the last row."""
    store.confirm()
    checkpoint_seq = _checkpoint_seq(engine)
    with engine.writing() as transaction:
        transaction.run("checkpoint_forget", seq=checkpoint_seq)
    for number, images in enumerate(_portions(rows), start=1):
        with engine.writing() as transaction:
            transaction.run(
                "checkpoint_portion",
                seq=seq,
                portion=number,
                at_ms=at_ms,
                **dict(zip(("images", "later_images"), image_columns(images), strict=True)),
            )
    store.confirm()
    with engine.writing() as transaction:
        transaction.run("checkpoint_made", seq=seq)
        transaction.run("checkpoint_forget", seq=seq)


def _portions(rows: Rows) -> Iterator[list[Image]]:
    portion: list[Image] = []
    for image in rows.live():
        portion.append(image)
        if len(portion) == PORTION:
            yield portion
            portion = []
    if portion:
        yield portion


def _remove(store: RetainedStore, engine: Engine, last: int) -> None:
    """Delete entries up to a sequence number in pages, while this process is the writer."""
    while store.history(HistoryPage(before=last + 1, limit=1)) if last else ():
        store.confirm()
        with engine.writing() as transaction:
            transaction.run("history_trim", last=last, count=PAGE)


def _checkpoint_seq(engine: Engine) -> int:
    [(seq,)] = engine.rows("checkpoint_seq")
    return int(seq)
