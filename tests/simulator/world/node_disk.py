"""The disk of a metadata node's machine: what outlives a process, and what a loss of power takes.

It stands where the product's `NodeDirectory` stands. A file's bytes are safe once it was synced,
its name once the directory was. What the lines say is not known here.
"""

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from tests.simulator.world.dice import Dice
from tests.simulator.world.virtual_loop import ProcessKilled

#: Between any two things that happen to a disk. Source: M-2, M-3.
NODE_POINTS = (
    "before a write",
    "in a write",
    "before a sync",
    "after a sync",
    "before a file is replaced",
    "after a file is replaced",
)


@dataclass(slots=True, eq=False)
class _File:
    """A file: what programs read of it, and what the disk has."""

    data: bytearray = field(default_factory=bytearray)
    synced: bytes = b""


class NodeDisk:
    """One disk; the processes of its node come and go."""

    def __init__(self, dice: Dice) -> None:
        """Begin empty."""
        self._dice = dice
        self._files: dict[str, _File] = {}
        #: What the directory has on the disk.
        self._safe: dict[str, _File] = {}
        #: Whether it takes nothing more.
        self.full = False
        #: Where its node's process ends next, one of `NODE_POINTS`; empty: nowhere.
        self.armed = ""
        #: Files that were refused a write since they were written as a whole.
        self.refused: set[str] = set()
        #: What happened at it -> how often.
        self.counts: Counter[str] = Counter()

    def safe_lines(self, name: str) -> list[bytes]:
        """Return the lines of a file that any end of its node leaves there."""
        file = self._safe.get(name)
        return file.synced.splitlines() if file is not None else []

    def lose_power(self) -> None:
        """Lose what was not synced, all of it or from somewhere on."""
        self.counts["write lost"] += self._files != self._safe
        self._files = dict(self._safe)
        for file in self._files.values():
            kept = len(file.synced)
            grown = file.data[:kept] == file.synced and len(file.data) > kept
            if grown:
                end = self._dice.between(kept, len(file.data))
                self.counts["torn write kept"] += kept < end < len(file.data)
                file.synced = bytes(file.data[:end])
            self.counts["write lost"] += file.data != file.synced
            file.data = bytearray(file.synced)

    def file(self, name: str) -> _File:
        """Return a file as programs see it.

        Raises:
            FileNotFoundError: there is none.
        """
        found = self._files.get(name)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return found

    def open_to_write(self, name: str) -> _File:
        """Return a file, which is made if there is none."""
        file = self._files.setdefault(name, _File())
        self.sync_names()
        return file

    def put(self, name: str, file: _File) -> None:
        """Put a file in the place of another one."""
        self._files[name] = file

    def take_away(self, name: str) -> None:
        """Remove a file."""
        self._files.pop(name, None)

    def sync_names(self) -> None:
        """Make the directory durable."""
        self._safe = dict(self._files)

    def below(self, limit: int) -> int:
        """Draw where something breaks."""
        return self._dice.below(limit)


class NodeDiskFiles:
    """The files as one process of the node has them."""

    place = "the node's disk"

    def __init__(self, disk: NodeDisk, kill: Callable[[], None]) -> None:
        """Open a disk; `kill` ends the process where the disk is armed."""
        self._disk = disk
        self._kill = kill
        self._over = False

    def end(self) -> None:
        """End with the process: nothing is written any more."""
        self._over = True

    def lines(self, name: str) -> Iterator[bytes]:
        """Yield a file's lines."""
        self._go_on()
        yield from bytes(self._disk.file(name).data).splitlines(keepends=True)

    def append(self, name: str, lines: Iterable[bytes]) -> int:
        """Add lines, and sync them."""
        self._go_on()
        file = self._disk.open_to_write(name)
        before = len(file.data)
        try:
            return self._write(name, file, lines)
        except OSError:
            del file.data[before:]
            raise

    def replace(self, name: str, lines: Iterable[bytes]) -> int:
        """Write a new file, sync it, and put it in the place of the old one."""
        self._go_on()
        file = _File()
        size = self._write(name, file, lines)
        self._pass("before a file is replaced")
        self._disk.put(name, file)
        self._pass("after a file is replaced")
        self._disk.sync_names()
        self._disk.refused.discard(name)
        return size

    def shorten(self, name: str, size: int) -> None:
        """Keep a file's first bytes."""
        self._go_on()
        file = self._disk.open_to_write(name)
        del file.data[size:]
        self._sync(file)

    def sync_names(self) -> None:
        """Make the directory durable."""
        self._go_on()
        self._disk.sync_names()

    def remove(self, name: str) -> None:
        """Remove a file, for good."""
        self._go_on()
        self._disk.take_away(name)
        self._disk.sync_names()

    def close(self) -> None:
        """Do nothing: the next process may open it."""

    def _write(self, name: str, file: _File, lines: Iterable[bytes]) -> int:
        octets = b"".join(lines)
        self._pass("before a write")
        if self._disk.full:
            self._disk.counts["not kept"] += 1
            self._disk.refused.add(name)
            file.data += octets[: self._disk.below(len(octets))]
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self._disk.armed == "in a write":
            file.data += octets[: self._disk.below(len(octets))]
            self._pass("in a write")
        file.data += octets
        self._sync(file)
        return len(octets)

    def _sync(self, file: _File) -> None:
        self._pass("before a sync")
        file.synced = bytes(file.data)
        self._pass("after a sync")

    def _go_on(self) -> None:
        """Let nothing be done by a process that is over.

        Raises:
            ProcessKilled: it is.
        """
        if self._over:
            raise ProcessKilled

    def _pass(self, point: str) -> None:
        if self._disk.armed == point:
            self._disk.armed = ""
            self._disk.counts[f"killed {point}"] += 1
            self._kill()
            raise ProcessKilled
