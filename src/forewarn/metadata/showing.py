"""The bytes of one answer to one request, as it stands now.

Nothing may be held or remembered in here, and nobody may be asked anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.metadata.answer import Show, matches

if TYPE_CHECKING:
    from forewarn.metadata.intake import Asked
    from forewarn.metadata.response import Answer
    from forewarn.metadata.service import Service


def shown(service: Service, asked: Asked) -> bytes | None:
    """Return the document, or None while it is not what the request waits for."""
    view, plan = asked.view, asked.planned.plan
    assert view is not None
    assert isinstance(plan, Show)
    if not view.enabled:
        return None
    if asked.ends_s and view.document.incarnation == plan.incarnation:
        return None
    rendered = view.rendered(plan.version)
    tail = service.tail(close=asked.close, old=asked.request.old)
    if plan.unless and matches(plan.unless, rendered.etag):
        return rendered.head_unchanged + tail
    if asked.request.method == "HEAD":
        return rendered.head + tail
    return rendered.head + tail + rendered.body


def answered(service: Service, asked: Asked, answer: Answer) -> bytes:
    """Return an answer that is no document."""
    request = asked.request
    head = service.head(answer) + service.tail(close=asked.close, old=request.old)
    return head if request.method == "HEAD" else head + answer.body
