"""A SQLite store as files: who holds it, who may read it, and whether it is still the same one.

Nothing may be read from or written into the database here, and nothing of the store be known.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TypeAlias

    Identity: TypeAlias = "tuple[int, int]"

log = logging.getLogger("forewarn.store")

PRIVATE_MODE = 0o600
"""Nobody but the service's user reads approvals, owners' names and tokens of drivers' work."""

#: File systems of a network, where SQLite's locks and shared memory cannot be relied on.
#: Source: https://www.sqlite.org/wal.html
NETWORK_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "fuse.sshfs"}
)

_LOG_HEADS = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
"""What a write-ahead log begins with once something was committed to it."""

_DATABASE_HEAD = b"SQLite format 3\x00"

_HELD = "a store was here"
"""Second line of the lock file once a store was opened: the file outlives a lost database."""


def file_system_of(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """Return the kind of the file system that has a path, such as `ext4`; empty: unknown."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    kinds = {Path(place): kind for _, place, kind, *_ in map(str.split, lines)}
    return next((kinds[each] for each in path.absolute().parents if each in kinds), "")


class FileInUse(Exception):
    """Another process holds the files, under this name or another one."""

    def __init__(self, pid: str) -> None:
        """Name the process; `unknown` if it cannot be."""
        super().__init__(pid)
        self.pid = pid


class FileLost(Exception):
    """The lock file remembers a database that is gone, or empty."""


class DatabaseFile:
    """The files of one SQLite database, held by the one process that writes it."""

    def __init__(self, path: Path, *, replaces: bool = False) -> None:
        """Take the files, and make the database's own where there is none.

        `replaces`: whether it may take the place of a database that is gone.

        Raises:
            FileInUse: another process holds them.
            FileLost: there is none, and there was one.
            OSError: they cannot be made or opened.
        """
        self._path = path
        #: Where SQLite writes ahead.
        self.log_path = path.with_name(f"{path.name}-wal")
        self._size = 0
        self._identity: Identity = (0, 0)
        self._log_identity: Identity | None = None
        self._log = -1
        self._log_begun = False
        #: Whether there was no database, or an empty file.
        self.made = False
        self._held: list[int] = []
        self._file = -1
        try:
            self._hold(replaces=replaces)
        except BaseException:
            self.release()
            raise

    def opened(self) -> None:
        """Note the database and its log as they are now that SQLite has opened both."""
        self._sign(known=True)
        with suppress(OSError):
            self._log = os.open(self.log_path, os.O_RDONLY)
            self._held.append(self._log)
            self._log_identity = _identity(os.fstat(self._log))
            self._log_has_head()
        if self.made:
            text = "made a new store at %s"
            log.warning(text, self._path, extra={"action": "store.made"})

    def problem(self) -> str:
        """Return why these are not the files that were opened; empty if they are. Cost: 3 calls."""
        known = self._size  # before the look: a file that grows is seen so by another thread, too
        try:
            status = self._path.stat()
            if _identity(status) != self._identity:
                return "another file has its name"
            if status.st_size < known and not self._is_whole(status.st_size):
                return f"it was cut off at {status.st_size} bytes"
            self._size = status.st_size
            if self._log_identity is not None:
                log_found = self.log_path.stat()
                if _identity(log_found) != self._log_identity:
                    return "another file has the name of its log"
                if log_found.st_size and not self._log_has_head():
                    return "its log was cut off"
        except FileNotFoundError as error:
            return f"{error.filename} was removed"
        except OSError as error:
            return sentence(error)
        return ""

    def release(self) -> None:
        """Release the lock; the lock file stays, since removing it would race."""
        while self._held:
            os.close(self._held.pop())

    def _hold(self, *, replaces: bool) -> None:
        path = self._path
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, PRIVATE_MODE)
        self._held.append(lock)
        self._lock(lock, pid_in=lock)
        known = _HELD in os.read(lock, 64).decode(errors="replace")
        if known and not replaces and not (path.exists() and path.stat().st_size):
            raise FileLost
        self._sign(known=known)
        # Kept open as long as SQLite is at work: closing it would drop SQLite's own locks.
        file = self._file = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_MODE)
        self._held.append(file)
        if _INODE_LOCKS:  # a hard link is another name, with another lock file
            self._lock(file, pid_in=lock)
        status = os.fstat(file)
        self.made = status.st_size == 0
        self._identity = _identity(status)
        self._size = status.st_size

    def _sign(self, *, known: bool) -> None:
        text = f"{os.getpid()}\n{_HELD if known else ''}"
        os.ftruncate(self._held[0], 0)
        os.pwrite(self._held[0], text.encode(), 0)

    def _lock(self, file: int, *, pid_in: int) -> None:
        try:
            _lock(file)
        except OSError as error:
            text = "" if file != pid_in else os.read(pid_in, 64).decode(errors="replace")
            raise FileInUse(text.partition("\n")[0].strip() or "unknown") from error

    def _is_whole(self, size: int) -> bool:
        """Whether a database that has become shorter says so itself, as after VACUUM."""
        head = _head(self._file, 100)
        if not head.startswith(_DATABASE_HEAD):
            return False
        page = int.from_bytes(head[16:18], "big")
        pages = int.from_bytes(head[28:32], "big")
        return size == pages * (65536 if page == 1 else page)

    def _log_has_head(self) -> bool:
        """Whether the log's head is there: SQLite writes at the end even if it is gone."""
        begins = _head(self._log, 4) in _LOG_HEADS
        lost = self._log_begun and not begins
        self._log_begun = begins
        return not lost


def remembers_store(path: Path) -> bool:
    """Return whether the lock file of a database says that it was opened before."""
    try:
        return _HELD in Path(f"{path}.lock").read_text("utf-8", "replace")
    except OSError:
        return False


def sentence(error: OSError) -> str:
    """Return the text of a system error, for people."""
    if isinstance(error, FileNotFoundError) and error.filename:
        directory = Path(error.filename).parent
        if not directory.exists():
            return f"the directory {directory} does not exist"
    return f"{error.strerror}: {error.filename}" if error.filename else str(error)


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


def _head(file: int, size: int) -> bytes:
    with _reading:  # the file's place is one for all threads
        os.lseek(file, 0, os.SEEK_SET)
        return os.read(file, size)


_reading = threading.Lock()


#: Whether a lock on a file's content keeps another process away under whatever name, and lets
#: SQLite's own locks be: elsewhere the two kinds of locks are one.
_INODE_LOCKS = sys.platform == "linux"

if sys.platform == "win32":
    import msvcrt

    def _lock(file: int) -> None:
        """Lock a byte far behind the process id, so that the id can still be read."""
        os.lseek(file, 1 << 20, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        os.lseek(file, 0, os.SEEK_SET)
else:
    import fcntl

    def _lock(file: int) -> None:
        """Lock the file for this process alone, or raise OSError at once."""
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
