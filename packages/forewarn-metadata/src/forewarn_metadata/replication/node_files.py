"""The files of one metadata node. Written lines are durable when a call returns.

`node_store.py` and `spool.py` define the lines.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from forewarn_base.errors import OurError

_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_MODE = 0o640


class NodeStoreUnusable(OurError):
    """The directory of a metadata node cannot be used."""

    code = "node-store-unusable"
    message = "The directory {place} of the metadata node cannot be used: {reason}."
    advice = "Use a directory that only this node uses, and that the node's user can write."


class NodeFiles(Protocol):
    """The disk operations of a node; each raises `OSError` if the operation fails."""

    @property
    def place(self) -> str:
        """Path of the files, for messages."""

    def lines(self, name: str) -> Iterator[bytes]:
        """Yield a file's lines; the last line may be incomplete."""

    def append(self, name: str, lines: Iterable[bytes]) -> int:
        """Append lines to a file and return their bytes; a failure leaves the file unchanged."""

    def replace(self, name: str, lines: Iterable[bytes]) -> int:
        """Replace a file's content by these lines atomically; return their bytes."""

    def shorten(self, name: str, size: int) -> None:
        """Truncate a file to its first bytes."""

    def sync_names(self) -> None:
        """Make the names of files durable, before what they contain is shown."""

    def remove(self, name: str) -> None:
        """Remove a file; ignore a missing file and errors."""

    def close(self) -> None:
        """Close the files."""


class NodeDirectory:
    """The files in a directory that belongs to one node."""

    def __init__(self, directory: Path) -> None:
        """Create a directory if necessary, and lock it.

        Raises:
            NodeStoreUnusable: the directory cannot be created or written, or another node uses it.
        """
        self._directory = directory
        self._open: dict[str, int] = {}
        try:
            directory.mkdir(mode=0o750, parents=True, exist_ok=True)
            self._held = _hold(directory)
        except OSError as error:
            raise NodeStoreUnusable(place=directory, reason=error.strerror) from error

    @property
    def place(self) -> str:
        """Path of the directory, for people."""
        return str(self._directory)

    def lines(self, name: str) -> Iterator[bytes]:
        """Yield a file's lines."""
        with (self._directory / name).open("rb") as lines:
            yield from lines

    def append(self, name: str, lines: Iterable[bytes]) -> int:
        """Append lines; undo a failed append, because half a line would damage the next line."""
        file = self._file(name)
        end = os.fstat(file).st_size
        try:
            return _written(file, lines)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(file, end)
            raise

    def replace(self, name: str, lines: Iterable[bytes]) -> int:
        """Write a new file that replaces the old file."""
        self._close(name)
        path = self._directory / name
        new = path.with_suffix(".new")
        file = os.open(new, _NEW, _MODE)
        try:
            size = _written(file, lines)
        finally:
            os.close(file)
        new.replace(path)
        os.fsync(self._held)
        return size

    def shorten(self, name: str, size: int) -> None:
        """Truncate a file."""
        file = self._file(name)
        os.ftruncate(file, size)
        os.fsync(file)

    def sync_names(self) -> None:
        """Sync the directory."""
        os.fsync(self._held)

    def remove(self, name: str) -> None:
        """Remove a file, and its unfinished replacement."""
        self._close(name)
        path = self._directory / name
        for each in (path, path.with_suffix(".new")):
            with contextlib.suppress(OSError):
                each.unlink()
        with contextlib.suppress(OSError):
            os.fsync(self._held)

    def close(self) -> None:
        """Close the directory."""
        for name in tuple(self._open):
            self._close(name)
        os.close(self._held)

    def _file(self, name: str) -> int:
        file = self._open.get(name)
        if file is None:
            file = self._open[name] = os.open(self._directory / name, _APPEND, _MODE)
            os.fsync(self._held)  # without this sync, a crash may remove a new file
        return file

    def _close(self, name: str) -> None:
        file = self._open.pop(name, None)
        if file is not None:
            with contextlib.suppress(OSError):
                os.close(file)


def _written(file: int, lines: Iterable[bytes]) -> int:
    """Write lines and make them durable; return their size."""
    size = 0
    for line in lines:
        left = memoryview(line)
        while left:
            left = left[os.write(file, left) :]
        size += len(line)
    os.fsync(file)
    return size


def _hold(directory: Path) -> int:
    """Open a directory and lock it while open, if the system can open directories."""
    held = os.open(directory, os.O_RDONLY)
    try:
        import fcntl  # noqa: PLC0415 - not everywhere

        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        pass
    except BlockingIOError as error:
        os.close(held)
        raise OSError(error.errno, "another metadata node uses it") from error
    except OSError:
        os.close(held)
        raise
    return held
