"""Retention of history: exports entries that are too old or too many, then deletes them.

A replay then begins at a checkpoint: the records that were live at the end of the deleted part.
Checkpoints are computed from history alone, outside the writer, without the live state.
"""

from __future__ import annotations

import gzip
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from forewarn.core.history import Rows
from forewarn.core.state import Entry, Image
from forewarn.errors import PeerError
from forewarn.store.cursors import OutboxCursors
from forewarn.store.engine import Engine
from forewarn.store.images import images_text
from forewarn.store.reading import HistoryPage, Recorded
from forewarn.values import value


class HistoryStore(Protocol):
    """The methods of the store that concern history."""

    def entries(self) -> Iterator[Recorded]:
        """Return all history, oldest first."""

    def history(self, page: HistoryPage) -> list[Recorded]:
        """Return one page of history."""

    def confirm(self) -> None:
        """Check that this process is still the writer."""


log = logging.getLogger("forewarn.store")

PAGE = 1000
"""Entries in a batch of a read, export or deletion; the writer waits for one batch at most."""

HELD_MS_MAX = 7 * 86_400_000
"""Time limit for history that a slow destination of the outbox still needs: a week."""

PORTION = 500
"""Number of records in one batch of a checkpoint."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC

_line = msgspec.json.Encoder().encode


class ExportFailed(PeerError):
    """An export of history failed, so that nothing was deleted."""

    code = "history-export-failed"
    status = 503
    message = "History cannot be exported to {directory}: {reason}."
    advice = "Nothing was removed. Check that [history] export_directory exists and has free space."


@value
class Retention:
    """Limits of history, and the directory for exports."""

    directory: Path
    #: Age from which entries are removed, in milliseconds; 0: no limit.
    max_age_ms: int = 0
    #: Largest size of history, in bytes without indexes; 0: no limit.
    max_bytes: int = 0


def trim(store: HistoryStore, engine: Engine, retention: Retention, *, now_ms: int) -> int:
    """Export entries that are too old or too many, write a checkpoint, and delete the entries.

    Safe to repeat after an interruption. Cost: reads the deleted entries; with `max_bytes`, also
    the length of all history.

    Returns:
        The number of removed entries.

    Raises:
        ExportFailed: the export could not be written; nothing was removed.
        ForewarnError: the store could not be read or written; the next call continues.
    """
    _remove(store, engine, _checkpoint_seq(engine))  # complete an interrupted earlier call
    last = _last_to_remove(engine, retention, now_ms)
    if not last:
        return 0
    [(first,)] = engine.rows("history_first")
    rows = Rows()
    at_ms = _export(store, retention, rows, range(int(first), last + 1))
    _write_checkpoint(store, engine, rows, seq=last, at_ms=at_ms)
    _remove(store, engine, last)
    count = last + 1 - int(first)
    text = "exported and removed %d entries of history, to %d"
    log.info(text, count, last, extra={"action": "history.trimmed"})
    return count


def _last_to_remove(engine: Engine, retention: Retention, now_ms: int) -> int:
    """Return the number of the last entry beyond the limits; 0 without such entries."""
    surplus = 0
    with engine.reading() as transaction:
        if retention.max_bytes:
            [(size,)] = transaction.rows("history_bytes")
            surplus = int(size) - retention.max_bytes
    oldest_ms = now_ms - retention.max_age_ms if retention.max_age_ms else 0
    held = OutboxCursors(engine).held()
    last = 0
    while True:
        page = engine.rows("history_sizes", after=last, limit=PAGE)
        for seq, at_ms, size in page:
            if surplus <= 0 and int(at_ms) >= oldest_ms:
                return last
            if held is not None and int(seq) > held and int(at_ms) >= now_ms - HELD_MS_MAX:
                return last
            last = int(seq)
            surplus -= int(size)
        if len(page) < PAGE:
            return last


def _export(store: HistoryStore, retention: Retention, rows: Rows, which: range) -> int:
    """Write entries as JSON lines with complete images; return the time of the last entry."""
    at_ms = 0

    def lines() -> Iterator[dict[str, object]]:
        nonlocal at_ms
        for recorded in _until(store.entries(), which[-1]):
            whole = rows.whole(recorded.entry)
            if recorded.seq >= which[0]:
                at_ms = whole.at_ms
                yield {"sequence": recorded.seq, **_export_form(whole)}

    write_export(retention.directory, f"history-{which[0]:012}-{which[-1]:012}", lines())
    return at_ms


def write_export(directory: Path, name: str, lines: Iterable[object]) -> None:
    """Write a file of compressed JSON lines, or leave no file.

    Raises:
        ExportFailed: the file could not be written.
    """
    target = directory / f"{name}.jsonl.gz"
    unfinished = target.with_name(f".{target.name}.part")
    try:
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
    store: HistoryStore, engine: Engine, rows: Rows, *, seq: int, at_ms: int
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
                images=images_text(images),
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


def _remove(store: HistoryStore, engine: Engine, last: int) -> None:
    """Delete entries up to a sequence number in pages, while this process is the writer."""
    while store.history(HistoryPage(before=last + 1, limit=1)) if last else ():
        store.confirm()
        with engine.writing() as transaction:
            transaction.run("history_trim", last=last, count=PAGE)


def _checkpoint_seq(engine: Engine) -> int:
    [(seq,)] = engine.rows("checkpoint_seq")
    return int(seq)
