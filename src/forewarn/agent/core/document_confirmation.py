"""Confirmation: whether a document must be read a second time before the agent acts on it; pure."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` is too heavy for the agent
if TYPE_CHECKING:
    from collections.abc import Iterable

    from forewarn.protocol.documents import Document


def doubtful(document: Document, incarnation: int, *, followed: Iterable[str]) -> bool:
    """Return whether a document must be read twice before the agent acts on it.

    If one wrong answer undid a preparation, the VM would be unprepared when the event starts. A
    lower incarnation, or an event that disappears without a new incarnation, is legitimate after
    B-2, but is also typical of a stale or confused answer.

    Args:
        document: The document just read.
        incarnation: The incarnation of the last document that was acted on.
        followed: Upper-case ids of the events of that document.

    Source: D-1, B-2, C-7.
    """
    if document.incarnation > incarnation:
        return False
    shown = {event.event_id.upper() for event in document.events}
    return document.incarnation < incarnation or not shown.issuperset(followed)
