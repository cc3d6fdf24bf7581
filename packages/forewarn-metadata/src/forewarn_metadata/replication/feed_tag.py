"""The entity tag of a node's part of the feed: its content, its age, and the newest commit.

`"EPOCH.SEQUENCE.DIGEST.COMMIT"`. A node sends back the tag of the part that it shows, which is its
confirmation.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, unquote

#: Maximum length of a tag, in characters.
TAG_LENGTH_MAX = 1024


class FeedTag(NamedTuple):
    """A version of a node's part."""

    #: Id of the store's sequence of changes; empty: no documents.
    epoch: str = ""
    #: Last change of the part.
    sequence: int = 0
    #: Digest of the encoded part. Source: M-1.
    digest: str = ""
    #: Signed id of the newest commit that the control plane knew; empty: unknown. Source: H-10.
    commit: str = ""

    def text(self) -> str:
        """Return the tag as an HTTP header has it."""
        return f'"{_quoted(self.epoch)}.{self.sequence}.{self.digest}.{_quoted(self.commit)}"'


def read_tag(text: str) -> FeedTag:
    """Return a tag; a text in another form is the tag of a node without documents."""
    plain = text.strip().removeprefix("W/")
    parts = plain[1:-1].split(".") if len(plain) <= TAG_LENGTH_MAX else []
    if len(parts) != 4 or plain[:1] + plain[-1:] != '""' or not parts[1].isdecimal():
        return FeedTag()
    return FeedTag(unquote(parts[0]), int(parts[1][:18]), parts[2], unquote(parts[3]))


def _quoted(text: str) -> str:
    return quote(text, safe="").replace(".", "%2E")
