"""The journal: records each action on disk before the action begins.

Source: C-9.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import zlib

from forewarn_base.errors import CallerError, OurError, reason_of

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from collections.abc import Mapping

SLOT_BYTES = 65536
BYTES_MAX = 16 * 1024 * 1024  # limit of a state; 256 events with long plans need a few hundred KiB
HEAD_BYTES_MAX = 64  # header of a state: checksum, turn and length
BOOT_ID = "/proc/sys/kernel/random/boot_id"


class JournalLocked(CallerError):
    """Another agent uses the state directory."""

    code = "journal-locked"
    message = "Another agent already uses {directory}."
    advice = "Stop the other agent, or give this agent its own state directory."


class JournalOpen(CallerError):
    """Other users can write the state directory, which contains commands for the agent."""

    code = "journal-open"
    message = "Other users can write to {directory}."
    advice = "The directory contains commands: make the agent's user its owner and run chmod go-w."


class JournalLost(OurError):
    """The journal is unusable, so the agent must not begin actions."""

    code = "journal-lost"
    message = "The journal {path} cannot be used: {reason}."
    advice = (
        "Free space on the file system, or make the file system writable; the agent then continues."
    )


class Journal:
    """Two files written alternately; the newest complete file contains the state.

    The agent overwrites the older file with a state and synchronises the file once. A new file with
    a rename would take more than twice as long, and delay every hook.
    """

    def __init__(self, directory: str) -> None:
        """Open a state directory; create a missing directory, readable only by its owner.

        Raises:
            JournalLocked: another agent uses the directory.
            JournalOpen: other users can write to the directory.
            JournalLost: the directory is unusable.
        """
        self.directory = directory
        try:
            os.makedirs(directory, mode=0o700, exist_ok=True)  # noqa: PTH103  `pathlib` is too heavy
            _refuse_open(directory)
            self._lock = self._lock_directory()
        except OSError as error:
            raise JournalLost(path=directory, reason=reason_of(error)) from error
        self._turn = 0
        self._boot_id = boot_id()
        #: New path of an unreadable file that `read` renamed; otherwise empty.
        self.corrupt = ""
        #: Boot ID of the system at the time when the read state was written.
        self.boot_id = ""

    def read(self) -> dict[str, object] | None:
        """Return the last written state, or None without a state.

        Raises:
            JournalLost: the journal exists, but cannot be read.
        """
        self.corrupt = ""
        try:
            turn, form = newest(self.directory)
            if form is None:
                self._put_aside([slot for slot in (0, 1) if not _is_whole(self.directory, slot)])
                return None
        except OSError as error:
            raise JournalLost(path=self.directory, reason=reason_of(error)) from error
        self._turn = turn
        self.boot_id = str(form.pop("boot_id", ""))
        return form

    def put_aside(self) -> None:
        """Rename the files of the journal, and start with an empty state.

        Raises:
            JournalLost: the file cannot be renamed.
        """
        try:
            self._put_aside([0, 1])
        except OSError as error:
            raise JournalLost(path=self.directory, reason=reason_of(error)) from error
        self._turn = 0

    def _put_aside(self, slots: list[int]) -> None:
        for slot in slots:
            path = slot_path(self.directory, slot)
            if os.path.exists(path):  # noqa: PTH110  the same
                self.corrupt = f"{path}.corrupt"
                os.replace(path, self.corrupt)  # noqa: PTH105  the same

    def make_room(self) -> None:
        """Create missing files of the journal in their usual size.

        This saves time at the first event. After a failure, `write` tries again, or reports the
        reason.
        """
        for slot in (0, 1):
            path = slot_path(self.directory, slot)
            if not os.path.exists(path):  # noqa: PTH110  the same
                try:
                    self._write_slot(path, _with_header(b"{}", 0))
                except OSError:
                    return

    def write(self, form: Mapping[str, object]) -> None:
        """Write a state that, after the return, survives a power cut.

        Raises:
            JournalLost: the state was not written; the previous state remains on disk.
        """
        body = json.dumps({**form, "boot_id": self._boot_id}, separators=(",", ":")).encode()
        turn = self._turn + 1
        path = slot_path(self.directory, turn % 2)
        if len(body) > BYTES_MAX - HEAD_BYTES_MAX:  # `read` would refuse a longer state
            raise JournalLost(path=path, reason=f"the state has {len(body)} bytes")
        try:
            self._write_slot(path, _with_header(body, turn))
        except OSError as error:
            raise JournalLost(path=path, reason=reason_of(error)) from error
        self._turn = turn

    def _write_slot(self, path: str, content: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0)
        file = os.open(path, flags, 0o600)
        try:
            grows = os.fstat(file).st_size < len(content)
            if grows:  # pad to a round size, so that later states fit without a change of size
                content += b"\0" * (-len(content) % SLOT_BYTES)
            _write_all(file, content)
            if grows or not hasattr(os, "fdatasync"):
                os.fsync(file)
                sync_directory(self.directory)
            else:
                os.fdatasync(file)
        finally:
            os.close(file)

    def close(self) -> None:
        """Release the directory for another agent."""
        os.close(self._lock)

    def _lock_directory(self) -> int:
        path = os.path.join(self.directory, "lock")  # noqa: PTH118  the same
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if sys.platform == "win32":
                import msvcrt  # noqa: PLC0415  only there

                msvcrt.locking(lock, msvcrt.LK_NBLCK, 1)
            else:
                import fcntl  # noqa: PLC0415  not everywhere

                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise JournalLocked(directory=self.directory) from error
        return lock


def boot_id() -> str:
    """Return the boot ID of the system; empty if unavailable."""
    try:
        with open(BOOT_ID, "rb") as file:  # noqa: PTH123  the same
            return file.read(64).decode().strip()
    except OSError:
        return ""


def sync_directory(directory: str) -> None:
    """Synchronise the names in a directory with the disk, if the system supports this."""
    if sys.platform == "win32":
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def slot_path(directory: str, slot: int) -> str:
    """Return the path of a journal file."""
    return os.path.join(directory, f"journal.{slot}")  # noqa: PTH118  the same


def newest(directory: str) -> tuple[int, dict[str, object] | None]:
    """Return the turn and the content of the newest complete state, or 0 and None."""
    record: tuple[int, dict[str, object] | None] = (0, None)
    for slot in (0, 1):
        try:
            with open(slot_path(directory, slot), "rb") as file:  # noqa: PTH123  the same
                turn, form = _read_state(file.read(BYTES_MAX))
        except FileNotFoundError:
            continue
        if form is not None and turn > record[0]:
            record = (turn, form)
    return record


def _with_header(body: bytes, turn: int) -> bytes:
    """Return a state with its header; the checksum covers all other bytes."""
    checked = b"%d %d\n" % (turn, len(body)) + body
    return b"%08x " % zlib.crc32(checked) + checked


def _refuse_open(directory: str) -> None:
    """Refuse a directory that other users can write, because the journal contains commands."""
    if not hasattr(os, "geteuid"):
        return
    status = os.stat(directory)  # noqa: PTH116  the same
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or status.st_uid not in (0, os.geteuid()):
        raise JournalOpen(directory=directory)


def _is_whole(directory: str, slot: int) -> bool:
    """Return whether a file contains a state, is empty, or is missing."""
    try:
        with open(slot_path(directory, slot), "rb") as file:  # noqa: PTH123  the same
            return _read_state(file.read(BYTES_MAX))[1] is not None
    except FileNotFoundError:
        return True


def _read_state(text: bytes) -> tuple[int, dict[str, object] | None]:
    head, _, rest = text.partition(b"\n")
    try:
        checksum, turn, length = head.split(b" ")
        body = rest[: int(length)]
        whole = int(checksum, 16) == zlib.crc32(b"%b %b\n" % (turn, length) + body)
        form = json.loads(body) if whole else None
        return int(turn), form if isinstance(form, dict) else None
    except ValueError:
        return 0, None


def _write_all(file: int, data: bytes) -> None:
    while data:  # bounded: each write writes at least a byte, or raises
        data = data[os.write(file, data) :]
