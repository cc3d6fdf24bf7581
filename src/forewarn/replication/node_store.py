"""The feed on a metadata node's disk, so that the node can restart without the control plane.

One file has the whole feed, then the changes since, in the portions and with the checksums of the
feed. An incomplete last line was never shown. Any other malformed line means damage, and everything
is fetched again. Source: M-2.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from forewarn.replication import messages as feed
from forewarn.replication.feed_state import FeedState
from forewarn.replication.messages import FeedPortion, FeedStart, FeedUnreadable
from forewarn.replication.portions import ChangeAssembly, FeedBroken, cut
from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forewarn.replication.messages import DocumentChange
    from forewarn.replication.node_files import NodeFiles

FILE = "feed"
"""Name of the file in the node's directory."""

GROWTH_BYTES_MIN = 1024 * 1024
"""Changes of this size, or as large as the whole, are merged into a new whole."""

_LOG = logging.getLogger(__name__)


@value
class Position:
    """Last change of the feed that a node shows."""

    epoch: str = ""
    """Id of its sequence; empty: the node shows nothing, or cannot trust its documents."""
    sequence: int = 0
    checksum: int = 0


class NodeStore:
    """The file of one node, and its content."""

    def __init__(self, files: NodeFiles) -> None:
        """Start without reading."""
        self.files = files
        self._on_disk = False
        self._whole_bytes = self._grown_bytes = 0
        self.position = Position()
        self.state = FeedState()
        #: Why the shown documents are not on the disk; empty if they are.
        self.trouble = ""

    def load(self) -> DocumentChange | None:
        """Return the stored feed as one whole; None if it is missing or unusable."""
        try:
            self._whole_bytes = self._replay(self.files.lines(FILE))
        except FileNotFoundError:
            return None
        except (OSError, FeedUnreadable, FeedBroken) as error:
            text = "the metadata node's data in %s is damaged and is fetched again: %s"
            _LOG.error(text, self.files.place, error, extra={"action": "node-store.damaged"})
            self._forget()
            return None
        if not self.position.epoch:
            return None
        self._rewrite()  # without the incomplete line
        return self.state.whole(self.position.sequence)

    def keep(self, change: DocumentChange, position: Position) -> None:
        """Make a change durable before it is shown; costs its content, and one sync.

        If the disk refuses, the file is removed, because a restarted node must not show older
        documents than before. Each change tries again.
        """
        before, self.position = self.position, position
        self.state.apply(change)
        grown = self._grown_bytes > max(GROWTH_BYTES_MIN, self._whole_bytes)
        if change.whole or grown or not self._on_disk:
            self._rewrite()
            return
        portions = tuple(cut(change, before.checksum))
        if portions[-1].checksum != position.checksum:  # its original portions were different
            self._rewrite()
            return
        try:
            self._grown_bytes += self.files.append(FILE, (each.line for each in portions))
        except OSError as error:
            self._failed(error)

    def move(self, position: Position) -> None:
        """Store a new position for documents that are shown already."""
        self.position = position
        self._rewrite()

    def close(self) -> None:
        """Close the files."""
        self.files.close()

    def _replay(self, lines: Iterable[bytes]) -> int:
        """Read the file to its end, or to an incomplete line; return the size read in bytes."""
        start: FeedStart | None = None
        assembly: ChangeAssembly | None = None
        size = 0
        for line in lines:
            if not line.endswith(b"\n"):
                break
            size += len(line)
            message = feed.read_server_message(line)
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
        """Write everything to a new file, which replaces the old one."""
        position = self.position
        start = FeedStart(position.epoch, position.sequence, position.checksum, whole=True)
        portions = cut(self.state.whole(position.sequence), 0)
        self._on_disk = False
        try:
            size = self.files.replace(
                FILE, (feed.line_of(start), *(each.line for each in portions))
            )
        except OSError as error:
            self._failed(error)
            return
        if self.trouble:
            text = "the metadata node stores its documents in %s again"
            _LOG.warning(text, self.files.place, extra={"action": "node-store.kept"})
        self._on_disk, self.trouble = True, ""
        self._whole_bytes, self._grown_bytes = size, 0

    def _failed(self, error: OSError) -> None:
        reason = error.strerror or str(error)
        if reason != self.trouble:
            self.trouble = reason
            text = "the metadata node cannot store its documents in %s: %s"
            _LOG.error(text, self.files.place, reason, extra={"action": "node-store.failed"})
        self._on_disk = False
        self._forget()

    def _forget(self) -> None:
        self._whole_bytes = self._grown_bytes = 0
        self.files.remove(FILE)
        if not self.trouble:
            self.position, self.state = Position(), FeedState()
