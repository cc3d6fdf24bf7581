"""The feed on a metadata node's disk, so that the node can restart without the control plane.

One file contains the whole feed and the later changes, in the portions and with the checksums of
the feed. The node has never shown the change of an incomplete last line. After any other malformed
line, the node fetches the whole feed again. Source: M-2.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from forewarn.replication import messages as feed
from forewarn.replication.feed_state import FeedState
from forewarn.replication.messages import DocumentChange, FeedPortion, FeedStart, FeedUnreadable
from forewarn.replication.node_files import NodeFiles
from forewarn.replication.portions import ChangeAssembly, FeedBroken, cut
from forewarn.values import value

FILE = "feed"
"""Name of the file in the node's directory."""

GROWTH_BYTES_MIN = 1024 * 1024
"""Minimum size in bytes of changes that are merged into a new whole.

Changes are merged once they also have the size of the old whole.
"""

_LOG = logging.getLogger(__name__)


@value
class Position:
    """Last change of the feed that a node shows."""

    epoch: str = ""
    """Id of the sequence of changes; empty: there are no trusted documents."""
    sequence: int = 0
    checksum: int = 0


class NodeStore:
    """The file of one node, and its content."""

    def __init__(self, files: NodeFiles) -> None:
        self.files = files
        self._on_disk = False
        self._whole_bytes = self._grown_bytes = 0
        self.position = Position()
        #: The newest commit that the node has received; empty: unknown.
        self.commit = ""
        self.state = FeedState()
        #: Reason for which the disk does not contain the shown documents; empty if it does.
        self.trouble = ""

    def load(self) -> DocumentChange | None:
        """Return the stored feed as one whole; None for a missing or unusable file."""
        try:
            self._whole_bytes = self._replay(self.files.lines(FILE))
        except FileNotFoundError:
            return None
        except (OSError, FeedUnreadable, FeedBroken) as error:
            text = (
                "the metadata node fetches the whole feed again, because its file %s is damaged: %s"
            )
            _LOG.error(text, self.files.place, error, extra={"action": "node-store.damaged"})
            self._forget()
            return None
        if not self.position.epoch:
            return None
        self._rewrite()  # exclude the incomplete line
        return self.state.whole(self.position.sequence)

    def keep(self, change: DocumentChange, position: Position) -> None:
        """Make a change durable before the node shows it; costs O(content) and one sync.

        After a failure the file is removed, because a restarted node must not show older documents.
        The next change writes the file again.
        """
        before, self.position = self.position, position
        self.commit = change.commit or self.commit
        self.state.apply(change)
        grown = self._grown_bytes > max(GROWTH_BYTES_MIN, self._whole_bytes)
        if change.whole or grown or not self._on_disk:
            self._rewrite()
            return
        portions = tuple(cut(change, before.checksum))
        if portions[-1].checksum != position.checksum:  # the original portions were different
            self._rewrite()
            return
        try:
            self._grown_bytes += self.files.append(FILE, (each.line for each in portions))
        except OSError as error:
            self._failed(error)

    def move(self, position: Position) -> None:
        """Store a new position of documents that the node already shows."""
        self.position = position
        self._rewrite()

    def close(self) -> None:
        """Close the files."""
        self.files.close()

    def _replay(self, lines: Iterable[bytes]) -> int:
        """Read the file up to its end or an incomplete line; return the number of read bytes."""
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
                self.commit = start.commit
                continue
            if start is None or not isinstance(message, FeedPortion):
                raise FeedUnreadable(reason="the file is not a metadata node's feed")
            if assembly is None:
                assembly = ChangeAssembly(self.position.checksum)
            change = assembly.add(message)
            if change is not None:
                checksum = start.checksum if change.whole else assembly.checksum
                self.position = Position(start.epoch, change.sequence, checksum)
                self.commit = change.commit or self.commit
                self.state.apply(change)
                assembly = None
        return size

    def _rewrite(self) -> None:
        """Write the whole feed to a new file, which replaces the old file."""
        position = self.position
        facts = position.epoch, position.sequence, position.checksum
        start = FeedStart(*facts, whole=True, commit=self.commit)
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
