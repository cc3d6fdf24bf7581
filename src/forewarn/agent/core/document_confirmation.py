"""Sighting: whether a document is believed at once or must be read a second time; pure."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` is too heavy for the agent
if TYPE_CHECKING:
    from collections.abc import Iterable

    from forewarn.protocol.documents import Document


def doubtful(document: Document, incarnation: int, *, followed: Iterable[str]) -> bool:
    """Return whether a document must be read twice before it is believed.

    Undoing a preparation because of one odd answer would leave the VM bare when the event comes.
    An incarnation that went back, or an event that left without the incarnation growing, is
    legitimate after B-2 but also what a stale or confused answer looks like.

    Args:
        document: The document just read.
        incarnation: The incarnation of the document believed last.
        followed: Upper-case ids of the events of that document.

    Source: D-1, B-2, C-7.
    """
    if document.incarnation > incarnation:
        return False
    shown = {event.event_id.upper() for event in document.events}
    return document.incarnation < incarnation or not shown.issuperset(followed)
