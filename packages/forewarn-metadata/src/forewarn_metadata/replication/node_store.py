"""A metadata node's copy of its part of the feed, which survives a restart without the feed.

The file has two lines, the part's tag and the part. Its digest in the tag proves that it is
undamaged. After damage, the node fetches the part again. Source: M-2.
"""

from __future__ import annotations

import logging

from forewarn_metadata.replication import earlier_part
from forewarn_metadata.replication.feed_tag import FeedTag, read_tag
from forewarn_metadata.replication.messages import FeedUnreadable, NodePart, read_part
from forewarn_metadata.replication.node_files import NodeFiles
from forewarn_metadata.replication.scopes import digest_of

#: Name of the file in the node's directory.
FILE = "part"

_LOG = logging.getLogger("forewarn.replication.node_store")


class NodeStore:
    """The file of one node."""

    def __init__(self, files: NodeFiles) -> None:
        self.files = files
        #: Reason for which the disk does not contain the shown documents; empty if it does.
        self.trouble = ""

    def load(self) -> tuple[FeedTag, NodePart] | None:
        """Return the stored part and its tag; None for a missing or unusable file.

        The process before may have ended between the file's replacement and the sync of its name.
        Without that sync, a loss of power after the part is shown would bring the older part back.
        """
        try:
            tag_line, body_line = self.files.lines(FILE)
            tag, body = read_tag(tag_line.decode("latin-1")), body_line.removesuffix(b"\n")
            part = read_part(_checked(tag, body))
            self.files.sync_names()
        except FileNotFoundError:
            return self._load_earlier()
        except (OSError, ValueError, FeedUnreadable) as error:
            text = "the metadata node fetches its documents again, because %s in %s is damaged: %s"
            _LOG.error(text, FILE, self.files.place, error, extra={"action": "node-store.damaged"})
            self.files.remove(FILE)
            return None
        return tag, part

    def keep(self, tag: FeedTag, body: bytes) -> None:
        """Make a part durable before the node shows it; costs O(part) and one sync.

        After a failure the file is removed, because a restarted node must not show older documents.
        """
        try:
            self.files.replace(FILE, (tag.text().encode() + b"\n", body + b"\n"))
        except OSError as error:
            self._failed(error)
            return
        self.files.remove(earlier_part.FILE)
        if self.trouble:
            text = "the metadata node stores its documents in %s again"
            _LOG.warning(text, self.files.place, extra={"action": "node-store.kept"})
        self.trouble = ""

    def close(self) -> None:
        """Close the files."""
        self.files.close()

    def _load_earlier(self) -> tuple[FeedTag, NodePart] | None:
        try:
            return earlier_part.read_earlier_part(self.files.lines(earlier_part.FILE))
        except (OSError, ValueError, TypeError, FeedUnreadable):
            return None

    def _failed(self, error: OSError) -> None:
        reason = error.strerror or str(error)
        if reason != self.trouble:
            self.trouble = reason
            text = "the metadata node cannot store its documents in %s: %s"
            _LOG.error(text, self.files.place, reason, extra={"action": "node-store.failed"})
        for name in (FILE, earlier_part.FILE):
            self.files.remove(name)


def _checked(tag: FeedTag, body: bytes) -> bytes:
    if not tag.epoch or digest_of(body) != tag.digest:
        raise ValueError("the digest differs")
    return body
