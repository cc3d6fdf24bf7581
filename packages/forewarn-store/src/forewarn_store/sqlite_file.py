"""Locks the files of a SQLite store for one process, and checks that nobody replaces them.

This module does not read or write the database's content.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

Identity: TypeAlias = "tuple[int, int]"

log = logging.getLogger("forewarn.store")

#: File mode: only the service's user may read approvals, owners' names and drivers' tokens.
PRIVATE_MODE = 0o600

#: Network file systems, on which SQLite's locks and shared memory are unreliable.
#: Source: https://www.sqlite.org/wal.html
NETWORK_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "fuse.sshfs"}
)

#: First bytes of a write-ahead log after the first commit.
_LOG_HEADS = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")

_DATABASE_HEAD = b"SQLite format 3\x00"

#: Length of the lock file, which is overwritten in place, so that a full disk loses no line.
_LINES_BYTES = 32

#: Second line of the lock file after a store was opened; this file survives a lost database.
_HELD = "a store was here"


#: Size of a file that shows whether a disk has space, as much as SQLite's index of its log.
_PROBE_BYTES = 64 * 1024


def disk_problem(directory: Path) -> str:
    """Return why no file in a directory can grow; empty if one can. Cost: writes a small file."""
    try:
        with tempfile.TemporaryFile(prefix=".forewarn-", dir=directory) as probe:
            probe.write(bytes(_PROBE_BYTES))
            probe.flush()
    except OSError as error:
        problems = {
            errno.ENOSPC: "the disk is full",
            errno.EDQUOT: "the disk quota is exhausted",
            errno.EROFS: "the file system is read-only",
        }
        return problems.get(error.errno or 0, "")
    return ""


def file_system_of(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """Return the type of the file system of a path, such as `ext4`; empty: unknown."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    kinds = {Path(place): kind for _, place, kind, *_ in map(str.split, lines)}
    return next((kinds[each] for each in path.absolute().parents if each in kinds), "")


class FileInUse(Exception):
    """Files that another process has locked, under this or another name."""

    def __init__(self, pid: str) -> None:
        super().__init__(pid)
        self.pid = pid


class FileLost(Exception):
    """A missing or empty database, although the lock file records its existence."""


class DatabaseFile:
    """The files of one SQLite database, locked by its writing process."""

    def __init__(self, path: Path, *, replaces: bool = False) -> None:
        """Lock the files, and create the database file if it is missing.

        `replaces`: whether a new database may replace a missing database.

        Raises:
            FileInUse: another process has locked the files.
            FileLost: the database is missing, but existed before.
            OSError: the files cannot be created or opened.
        """
        self._path = path
        #: Path of the write-ahead log.
        self.log_path = path.with_name(f"{path.name}-wal")
        self._size = 0
        self._identity: Identity = (0, 0)
        self._log_identity: Identity | None = None
        self._log = -1
        self._log_begun = False
        #: Whether the database was missing or empty.
        self.made = False
        #: Whether the lock file records a store.
        self.known = False
        self._held: list[int] = []
        self._file = -1
        try:
            self._hold(replaces=replaces)
        except BaseException:
            self.release()
            raise

    def opened(self) -> None:
        """Record the identity of database and log after SQLite has opened both."""
        with suppress(OSError):
            self._log = os.open(self.log_path, os.O_RDONLY)
            self._held.append(self._log)
            self._log_identity = _identity(os.fstat(self._log))
            self._log_has_head()
        if self.made:
            text = "created a new store at %s"
            log.warning(text, self._path, extra={"action": "store.made"})

    def reopened(self) -> None:
        """Accept another log, because SQLite opens the database again."""
        self._log_identity, self._log_begun, self.made = None, False, False
        if self._log >= 0:
            self._held.remove(self._log)
            os.close(self._log)
            self._log = -1

    def problem(self) -> str:
        """Return the reason if the files are not the opened files, else an empty text.

        Cost: 3 calls.
        """
        size = self._size  # read the size first, because another thread may extend the file
        try:
            status = self._path.stat()
            if _identity(status) != self._identity:
                return "another file has its name"
            if status.st_size < size and not self._is_whole(status.st_size):
                return f"it was truncated to {status.st_size} bytes"
            self._size = status.st_size
            if self._log_identity is not None:
                log_found = self.log_path.stat()
                if _identity(log_found) != self._log_identity:
                    return "another file has the name of the store's log"
                if log_found.st_size and not self._log_has_head():
                    return "the log of the store was truncated"
        except FileNotFoundError as error:
            return f"{error.filename} was removed"
        except OSError as error:
            return sentence(error)
        return ""

    def removed(self) -> Path | None:
        """Return the path of a removed file; None if both files exist."""
        named = (self._path, *([self.log_path] if self._log_identity is not None else ()))
        return next((path for path in named if not path.exists()), None)

    def release(self) -> None:
        """Release the lock; the lock file stays, because deleting it would cause a race."""
        while self._held:
            os.close(self._held.pop())

    def _hold(self, *, replaces: bool) -> None:
        path = self._path
        lock = _open_file(f"{path}.lock")
        self._held.append(lock)
        self._lock(lock, pid_in=lock)
        held = _HELD in os.read(lock, 64).decode(errors="replace")
        if held and not replaces and not (path.exists() and path.stat().st_size):
            raise FileLost
        self.known = held or replaces  # an unfinished restore is not a new store
        self._sign()
        # The file stays open while SQLite uses it, because a close would release SQLite's own
        # locks.
        file = self._file = _open_file(str(path))
        self._held.append(file)
        if _INODE_LOCKS:  # a hard link to the file has another lock file
            self._lock(file, pid_in=lock)
        status = os.fstat(file)
        self.made = status.st_size == 0
        self._identity = _identity(status)
        self._size = status.st_size

    def note_store(self) -> None:
        """Record that the database contains a store."""
        if not self.known:
            self.known = True
            self._sign()

    def _sign(self) -> None:
        text = f"{os.getpid()}\n{_HELD if self.known else ''}"
        with suppress(OSError):  # a full or read-only disk contains the last process's line
            os.pwrite(self._held[0], text.ljust(_LINES_BYTES).encode(), 0)

    def _lock(self, file: int, *, pid_in: int) -> None:
        try:
            _lock(file)
        except OSError as error:
            text = "" if file != pid_in else os.read(pid_in, 64).decode(errors="replace")
            raise FileInUse(text.partition("\n")[0].strip() or "unknown") from error

    def _is_whole(self, size: int) -> bool:
        """Return whether a shorter database has the size in its header, as after VACUUM."""
        head = _head(self._file, 100)
        if not head.startswith(_DATABASE_HEAD):
            return False
        page = int.from_bytes(head[16:18], "big")
        pages = int.from_bytes(head[28:32], "big")
        return size == pages * (65536 if page == 1 else page)

    def _log_has_head(self) -> bool:
        """Return whether the log has its header, without which SQLite still appends."""
        begins = _head(self._log, 4) in _LOG_HEADS
        lost = self._log_begun and not begins
        self._log_begun = begins
        return not lost


def remembers_store(path: Path) -> bool:
    """Return whether the lock file records an earlier opening of the database."""
    try:
        return _HELD in Path(f"{path}.lock").read_text("utf-8", "replace")
    except OSError:
        return False


def sentence(error: OSError) -> str:
    """Return the text of a system error."""
    if isinstance(error, FileNotFoundError) and error.filename:
        directory = Path(error.filename).parent
        if not directory.exists():
            return f"the directory {directory} does not exist"
    return f"{error.strerror}: {error.filename}" if error.filename else str(error)


def _open_file(path: str) -> int:
    """Open a file for reading and writing, or for reading on a read-only file system."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_MODE)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        return os.open(path, os.O_RDONLY)


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


def _head(file: int, size: int) -> bytes:
    with _reading:  # all threads share the file's position
        os.lseek(file, 0, os.SEEK_SET)
        return os.read(file, size)


_reading = threading.Lock()


#: Whether a lock on a file's content excludes other processes under all names of the file,
#: separately from SQLite's locks. On other systems the two kinds of locks are the same.
_INODE_LOCKS = sys.platform == "linux"

if sys.platform == "win32":
    import msvcrt

    def _lock(file: int) -> None:
        """Lock a byte far after the process id, so that the id stays readable."""
        os.lseek(file, 1 << 20, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        os.lseek(file, 0, os.SEEK_SET)
else:
    import fcntl

    def _lock(file: int) -> None:
        """Lock the file for this process, or immediately raise OSError."""
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
