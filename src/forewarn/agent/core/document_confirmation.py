"""Confirmation: decides whether the agent must read a document twice before acting; pure."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from collections.abc import Iterable

    from forewarn.protocol.documents import Document


def doubtful(document: Document, incarnation: int, *, followed: Iterable[str]) -> bool:
    """Return whether the agent must read a document a second time before acting.

    If one wrong answer undid a preparation, the VM would be unprepared at the start of the event. A
    lower incarnation, or a missing event without a new incarnation, is permitted by B-2, but is
    also typical of a stale answer.

    Args:
        document: The document just read.
        incarnation: The incarnation of the last confirmed document.
        followed: Ids of the followed events, in upper case.

    Source: D-1, B-2, C-7.
    """
    if document.incarnation > incarnation:
        return False
    shown = {event.event_id.upper() for event in document.events}
    return document.incarnation < incarnation or not shown.issuperset(followed)
