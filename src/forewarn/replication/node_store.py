"""What a metadata node keeps on its disk: the feed as it came, so that a restart needs nobody.

One file: the whole, then the changes since, in the portions and with the checksums of the feed.
A line that is cut off at the end is one that was never shown; anything else that cannot be read
is damage, and everything is fetched again. Nothing may be served or decided in here. Source: M-2.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from forewarn.errors import OurError
from forewarn.replication import messages as feed
from forewarn.replication.feed_state import FeedState
from forewarn.replication.messages import FeedPortion, FeedStart, FeedUnreadable
from forewarn.replication.portions import ChangeAssembly, FeedBroken, cut
from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import BinaryIO

    from forewarn.replication.messages import DocumentChange

FILE = "feed"
"""Name of the file in the node's directory."""

GROWTH_BYTES_MIN = 1024 * 1024
"""Changes of this size, or as large as the whole, are folded into a whole."""

_LOG = logging.getLogger(__name__)


@value
class Position:
    """Up to where a node shows the feed."""

    epoch: str = ""
    """Whose; empty: it shows nothing yet, or cannot trust what it shows."""
    sequence: int = 0
    checksum: int = 0


class NodeStoreUnusable(OurError):
    """The directory of a metadata node cannot be used."""

    code = "node-store-unusable"
    message = "The directory {place} of the metadata node cannot be used: {reason}."
    advice = "Give a directory that the user of the node may write, used by no other node."


class NodeStore:
    """The file of one node, and what it says."""

    def __init__(self, directory: Path) -> None:
        """Take possession of a directory, which is made if it is not there.

        Raises:
            NodeStoreUnusable: it cannot be made or written, or another node has it.
        """
        self._path = directory / FILE
        self._file: BinaryIO | None = None
        self._whole_bytes = self._grown_bytes = 0
        self.position = Position()
        self.state = FeedState()
        self.directory = directory
        #: Why what is shown is not on the disk; empty if it is.
        self.trouble = ""
        try:
            directory.mkdir(mode=0o750, parents=True, exist_ok=True)
            self._held = _hold(directory)
        except OSError as error:
            raise NodeStoreUnusable(place=directory, reason=error.strerror) from error

    def load(self) -> DocumentChange | None:
        """Return all that was kept, as one whole; None if there is nothing that can be used."""
        try:
            with self._path.open("rb") as lines:
                self._whole_bytes = self._replay(lines)
        except FileNotFoundError:
            return None
        except (OSError, FeedUnreadable, FeedBroken) as error:
            text = "what the metadata node had kept in %s is damaged, and fetched again: %s"
            _LOG.error(text, self._path, error, extra={"action": "node-store.damaged"})
            self._forget()
            return None
        if not self.position.epoch:
            return None
        self._rewrite()  # without what was cut off
        return self.state.whole(self.position.sequence)

    def keep(self, change: DocumentChange, position: Position) -> None:
        """Make a change durable before it is shown; costs what it holds, and one sync.

        Where the disk refuses it, what is there is removed: a node that starts again must not
        show what is older than what it showed. It is tried again with each change.
        """
        before, self.position = self.position, position
        self.state.apply(change)
        grown = self._grown_bytes > max(GROWTH_BYTES_MIN, self._whole_bytes)
        if change.whole or grown or self._file is None:
            self._rewrite()
            return
        portions = tuple(cut(change, before.checksum))
        if portions[-1].checksum != position.checksum:  # it came in other portions
            self._rewrite()
            return
        try:
            self._grown_bytes += _written(self._file, (each.line for each in portions))
        except OSError as error:
            self._failed(error)

    def move(self, position: Position) -> None:
        """Keep another position for what is shown already."""
        self.position = position
        self._rewrite()

    def close(self) -> None:
        """Let go of the directory."""
        if self._file is not None:
            self._file.close()
            self._file = None
        os.close(self._held)

    def _replay(self, lines: BinaryIO) -> int:
        """Read the file up to its end, or to where it was cut off; return its size in bytes."""
        start: FeedStart | None = None
        assembly: ChangeAssembly | None = None
        size = 0
        for line in lines:
            if not line.endswith(b"\n"):
                break
            size += len(line)
            message = feed.read_told(line)
            if start is None and isinstance(message, FeedStart):
                start, assembly = message, ChangeAssembly(0, whole=True)
                continue
            if start is None or not isinstance(message, FeedPortion):
                raise FeedUnreadable(reason="it is not what a node keeps")
            if assembly is None:
                assembly = ChangeAssembly(self.position.checksum)
            change = assembly.add(message)
            if change is not None:
                checksum = start.checksum if change.whole else assembly.checksum
                self.position = Position(start.epoch, change.sequence, checksum)
                self.state.apply(change)
                assembly = None
        return size

    def _rewrite(self) -> None:
        """Write everything to a new file and put it in the place of the old one."""
        position = self.position
        new = self._path.with_suffix(".new")
        start = FeedStart(position.epoch, position.sequence, position.checksum, whole=True)
        try:
            if self._file is not None:
                self._file.close()
                self._file = None
            file = new.open("wb")
            try:
                portions = cut(self.state.whole(position.sequence), 0)
                size = _written(file, (feed.line_of(start), *(each.line for each in portions)))
                new.replace(self._path)
                os.fsync(self._held)
            except OSError:
                file.close()
                raise
        except OSError as error:
            self._failed(error)
            return
        if self.trouble:
            text = "the metadata node keeps what it shows in %s again"
            _LOG.warning(text, self._path, extra={"action": "node-store.kept"})
        self._file, self.trouble = file, ""
        self._whole_bytes, self._grown_bytes = size, 0

    def _failed(self, error: OSError) -> None:
        reason = error.strerror or str(error)
        if reason != self.trouble:
            self.trouble = reason
            text = "the metadata node cannot keep what it shows in %s: %s"
            _LOG.error(text, self._path, reason, extra={"action": "node-store.failed"})
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None
        self._forget()

    def _forget(self) -> None:
        self._whole_bytes = self._grown_bytes = 0
        for path in (self._path, self._path.with_suffix(".new")):
            with contextlib.suppress(OSError):
                path.unlink()
        with contextlib.suppress(OSError):
            os.fsync(self._held)
        if self._file is None and not self.trouble:
            self.position, self.state = Position(), FeedState()


def _written(file: BinaryIO, lines: Iterable[bytes]) -> int:
    """Append lines and make them durable; return their size."""
    size = sum(file.write(line) for line in lines)
    file.flush()
    os.fsync(file.fileno())
    return size


def _hold(directory: Path) -> int:
    """Open a directory and lock it for as long as it is open, where directories can be."""
    held = os.open(directory, os.O_RDONLY)
    try:
        import fcntl  # noqa: PLC0415 - not everywhere

        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        pass
    except OSError:
        os.close(held)
        raise
    return held
