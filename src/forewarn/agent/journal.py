"""The journal: what was begun, on disk before it begins and whole at any moment.

Nothing about what the journal says may go in here. Source: C-9.
"""

from __future__ import annotations

import json
import os
import sys
import zlib

from forewarn.errors import CallerError, OurError

TYPE_CHECKING = False  # `typing` is too heavy for the agent
if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "journal.json"
BYTES_MAX = 16 * 1024 * 1024  # 256 events with long plans are a few hundred KiB
BOOT_ID = "/proc/sys/kernel/random/boot_id"


class JournalLocked(CallerError):
    """Another agent uses the same directory."""

    code = "journal-locked"
    message = "Another agent already uses {directory}."
    advice = "Stop the other agent, or give this one a state directory of its own."


class JournalLost(OurError):
    """What was begun cannot be written down, so nothing may be begun."""

    code = "journal-lost"
    message = "The journal {path} cannot be written: {reason}."
    advice = "Make room on the file system, or make it writable; the agent goes on by itself."


class Journal:
    """A file that always holds the last state given, and the boot it was written in."""

    def __init__(self, directory: str) -> None:
        """Use a directory, made if it is missing, readable by its owner alone.

        Raises:
            JournalLocked: another agent uses it.
        """
        self.directory = directory
        self.path = os.path.join(directory, NAME)  # noqa: PTH118  `pathlib` is too heavy
        os.makedirs(directory, mode=0o700, exist_ok=True)  # noqa: PTH103  the same
        self._lock = self._locked()
        self.corrupt = ""
        """Where an unreadable journal was put aside by `read`, if it was."""
        self.boot_id = ""
        """The boot in which the journal that was read had been written."""

    def read(self) -> dict[str, object] | None:
        """Return the state written last, or None where there is none."""
        try:
            with open(self.path, "rb") as file:  # noqa: PTH123  the same
                text = file.read(BYTES_MAX)
        except FileNotFoundError:
            return None
        form = _checked(text)
        if form is None:
            self.corrupt = f"{self.path}.corrupt"
            os.replace(self.path, self.corrupt)  # noqa: PTH105  the same
            return None
        self.boot_id = str(form.pop("boot_id", ""))
        return form

    def write(self, form: Mapping[str, object]) -> None:
        """Write a state; when this returns it survives a power cut.

        Raises:
            JournalLost: it is not on disk; the state before still is.
        """
        body = json.dumps({**form, "boot_id": boot_id()}, separators=(",", ":")).encode()
        fresh = f"{self.path}.new"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)
            file = os.open(fresh, flags, 0o600)
            try:
                _write_all(file, b"%08x\n" % zlib.crc32(body) + body)
                os.fsync(file)
            finally:
                os.close(file)
            os.replace(fresh, self.path)  # noqa: PTH105  the same
            sync_directory(self.directory)
        except OSError as error:
            raise JournalLost(path=self.path, reason=error) from error

    def close(self) -> None:
        """Let another agent have the directory."""
        os.close(self._lock)

    def _locked(self) -> int:
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
    """Return what tells this boot from others, or nothing where the system does not say."""
    try:
        with open(BOOT_ID, encoding="ascii") as file:  # noqa: PTH123  the same
            return file.read(64).strip()
    except OSError:
        return ""


def sync_directory(directory: str) -> None:
    """Make the names in a directory survive a power cut, where the system can."""
    if sys.platform == "win32":
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _checked(text: bytes) -> dict[str, object] | None:
    head, _, body = text.partition(b"\n")
    try:
        form = json.loads(body)
        whole = int(head, 16) == zlib.crc32(body)
    except ValueError:
        return None
    return form if whole and isinstance(form, dict) else None


def _write_all(file: int, data: bytes) -> None:
    while data:  # ends: each write takes at least a byte, or raises
        data = data[os.write(file, data) :]
