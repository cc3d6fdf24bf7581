"""Cuts changes into portions of bounded size for the feed, and joins portions to changes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from forewarn.errors import PeerError
from forewarn.replication import messages as feed
from forewarn.replication.messages import Caller, DocumentChange, FeedPortion, Publication

PORTION_BYTES = 256 * 1024
"""Maximum size of a portion with several items, in bytes; about a millisecond of work."""


class FeedBroken(PeerError):
    """A part of the feed was damaged in transit."""

    code = "feed-broken"
    message = "The feed is broken at change {sequence}: {reason}."
    advice = "No action is needed. The node requests the whole feed again."


class Portion(NamedTuple):
    """An encoded portion."""

    line: bytes
    checksum: int


def cut(change: DocumentChange, checksum: int, portion_bytes: int = 0) -> Iterator[Portion]:
    """Cut a change into portions, each created on demand; O(records of the change).

    `checksum` is the checksum of the line before the change.
    """
    largest = portion_bytes or PORTION_BYTES
    batch: tuple[list[bytes], list[bytes], list[bytes]] = ([], [], [])
    size = 0
    kinds: tuple[Sequence[Caller | Publication | str], ...] = (
        change.callers,
        change.gone,
        change.publications,
    )
    for texts, items in zip(batch, kinds, strict=True):
        for item in items:
            text = feed.encoded(item)
            if size and size + len(text) > largest:
                portion = _portion(change.sequence, batch, checksum, last=False)
                checksum = portion.checksum
                yield portion
                for each in batch:
                    each.clear()
                size = 0
            texts.append(text)
            size += len(text)
    yield _portion(change.sequence, batch, checksum, last=True, commit=change.commit)


def _portion(
    sequence: int, batch: tuple[list[bytes], ...], checksum: int, *, last: bool, commit: str = ""
) -> Portion:
    content = b"[[" + b"],[".join(b",".join(texts) for texts in batch) + b"]]"
    checksum = zlib.crc32(content, checksum)
    line = feed.portion_line(sequence, content, checksum=checksum, last=last, commit=commit)
    return Portion(line, checksum)


class ChangeAssembly:
    """A change that a node is assembling."""

    def __init__(self, checksum: int, *, whole: bool = False) -> None:
        """Start without portions; `checksum` is the feed's checksum before the first portion."""
        self.checksum = checksum
        self._whole = whole
        self._callers: list[Caller] = []
        self._gone: list[str] = []
        self._publications: list[Publication] = []

    def add(self, portion: FeedPortion) -> DocumentChange | None:
        """Add the next portion; return the change once it is complete.

        Raises:
            FeedBroken: the portion is not the next one.
            FeedUnreadable: the portion's content is malformed.
        """
        self.checksum = zlib.crc32(portion.content, self.checksum)
        if self.checksum != portion.checksum:
            raise FeedBroken(sequence=portion.sequence, reason="the checksum differs")
        content = feed.read_content(portion.content)
        self._callers += content.callers
        self._gone += content.gone
        self._publications += content.publications
        if not portion.last:
            return None
        return DocumentChange(
            portion.sequence,
            whole=self._whole,
            callers=tuple(self._callers),
            gone=tuple(self._gone),
            publications=tuple(self._publications),
            commit=portion.commit,
        )
