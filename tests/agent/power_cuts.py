"""A disk whose power is cut: what was not synchronised is lost, torn by sectors, or there.

The journal's own calls of the system reach it; reading is done from real files.
"""

import os
import random
from collections import defaultdict
from pathlib import Path

#: Bytes that are written as one, or not at all.
SECTOR = 512


class PowerCutError(Exception):
    """The power is gone in the middle of a call."""


class CutDisk:
    """Stands where a module has `os`; everything but writing and synchronising is the system's."""

    def __init__(self, chance: random.Random, *, calls: int, honest: bool = True) -> None:
        """Lose power at this call of those that write or synchronise.

        Args:
            chance: which sectors arrive.
            calls: how many calls succeed before that.
            honest: whether what is synchronised is on the disk when the call returns.
        """
        self._chance, self._left, self._honest = chance, calls, honest
        self._paths: dict[int, str] = {}
        self._offsets: dict[int, int] = {}
        #: Path -> content that survives; a name that is not in `_named` may be lost whole.
        self._durable: dict[str, bytes] = {}
        self._named: set[str] = set()
        self._pending: dict[str, list[tuple[int, bytes]]] = defaultdict(list)

    def __getattr__(self, name: str) -> object:
        """Let the system do everything else."""
        return getattr(os, name)

    def holds(self, directory: Path) -> None:
        """Begin with what a directory has: all of it is durable."""
        for path in directory.glob("journal.*"):
            self._durable[str(path)] = path.read_bytes()
            self._named.add(str(path))

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        """Open a file or a directory."""
        file = os.open(path, flags, mode)
        self._paths[file], self._offsets[file] = path, 0
        return file

    def close(self, file: int) -> None:
        """Close it; nothing is synchronised by that."""
        os.close(file)

    def write(self, file: int, data: bytes) -> int:
        """Write into the cache, from where sectors get to the disk in any order."""
        path, offset = self._paths[file], self._offsets[file]
        self._durable.setdefault(path, b"")
        for at in range(0, len(data), SECTOR):
            self._pending[path].append((offset + at, data[at : at + SECTOR]))
        self._pass()
        self._offsets[file] += len(data)
        return os.write(file, data)

    def fsync(self, file: int) -> None:
        """Have a file, or the names in a directory, on the disk."""
        self._pass()
        path = self._paths[file]
        if not self._honest:
            return
        if os.path.isdir(path):  # noqa: PTH112 - as the journal, without pathlib
            self._named |= self._durable.keys()
        else:
            self._arrive(path, self._pending.pop(path, []))

    fdatasync = fsync

    def after_the_cut(self, directory: Path) -> None:
        """Write what the disk has when the power is back."""
        for path, pending in self._pending.items():
            self._arrive(path, [each for each in pending if self._chance.random() < 0.5])
        for path, content in self._durable.items():
            if path in self._named or self._chance.random() < 0.5:
                (directory / os.path.basename(path)).write_bytes(content)  # noqa: PTH119

    def _arrive(self, path: str, sectors: list[tuple[int, bytes]]) -> None:
        content = bytearray(self._durable[path])
        for at, data in sectors:
            content.extend(bytes(max(at + len(data) - len(content), 0)))
            content[at : at + len(data)] = data
        self._durable[path] = bytes(content)

    def _pass(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise PowerCutError
