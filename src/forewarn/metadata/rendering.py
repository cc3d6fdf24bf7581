"""The bytes of one answer to one request, as it stands now.

Nothing may be held or remembered in here, and nobody may be asked anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.metadata.responder import ShowDocument, matches
from forewarn.metadata.snapshot import Pieces

if TYPE_CHECKING:
    from forewarn.metadata.http.request_reader import PendingRequest
    from forewarn.metadata.http.response import Response
    from forewarn.metadata.service import MetadataService


def shown(asked: PendingRequest) -> Pieces | None:
    """Return the document, or None while it is not what the request waits for."""
    view, plan = asked.view, asked.planned.plan
    assert view is not None
    assert isinstance(plan, ShowDocument)
    if not view.enabled:
        return None
    ahead = 0 if asked.disturbance is None else asked.disturbance.incarnation_ahead
    if asked.ends_s and view.document.incarnation + ahead == plan.incarnation:
        return None
    rendered = view.ahead(plan.version, by=ahead) if ahead else view.rendered(plan.version)
    head, body = rendered.head, rendered.body
    if plan.unless and matches(plan.unless, rendered.etag):
        head, body = rendered.head_unchanged(), b""
    elif asked.request.method == "HEAD":
        body = b""
    return Pieces(head, body, asked.close, asked.request.old)


def joined(service: MetadataService, pieces: Pieces) -> bytes:
    """Return the document's answer with the present date."""
    return pieces.head + service.tail(close=pieces.close, old=pieces.old) + pieces.body


def answered(service: MetadataService, asked: PendingRequest, answer: Response) -> bytes:
    """Return an answer that is no document."""
    request = asked.request
    head = service.head(answer) + service.tail(close=asked.close, old=request.old)
    return head if request.method == "HEAD" else head + answer.body


def cut(asked: PendingRequest, octets: bytes) -> bytes:
    """Return an answer as it is sent: without half its body where a fault says so. Source: E-10.

    The connection closes after that, which the answer does not say.
    """
    if asked.disturbance is None or not asked.disturbance.truncate:
        return octets
    asked.close = True
    head_end = octets.index(b"\r\n\r\n") + 4
    return octets[: head_end + (len(octets) - head_end) // 2]
