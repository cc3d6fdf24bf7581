"""Approvals: renders and parses the body of a request; pure."""

from __future__ import annotations

from forewarn_base.errors import CallerError
from forewarn_base.protocol.json_text import encode_json, parse_json

#: Maximum length of an approval, in bytes. Source: A-5.
APPROVAL_BYTES_MAX = 64 * 1024

#: Maximum number of StartRequests in one approval. Source: A-5.
APPROVALS_MAX = 100


class ApprovalMalformed(CallerError):
    """The body of an approval is malformed; nothing was approved. Source: A-2."""

    code = "approval-malformed"
    message = "Bad request. {reason}"
    advice = 'Send {{"StartRequests":[{{"EventId":"..."}}]}}.'


class UnknownEvent(CallerError):
    """The VM does not see the event that it approves. Source: S-4."""

    code = "unknown-event"
    status = 400
    message = "Bad request. EventId {event_id} is not a scheduled event of this VM."
    advice = "Read the document again: the event may be over."


class ApprovalTooLarge(CallerError):
    """An approval exceeds the size limits; nothing was approved. Source: A-5."""

    code = "approval-too-large"
    status = 413
    message = "Request too large. At most {bytes_max} bytes and {approvals_max} requests."
    advice = "Approve in several requests."


def render_approval(event_ids: tuple[str, ...], incarnation: int | None = None) -> bytes:
    """Return the body that approves these events; see A-1, and V-1 for the incarnation."""
    form: dict[str, object] = {}
    if incarnation is not None:
        form["DocumentIncarnation"] = incarnation
    form["StartRequests"] = [{"EventId": event_id} for event_id in event_ids]
    return encode_json(form).encode("ascii")


def read_approval(body: bytes) -> tuple[str, ...]:
    """Return the event ids of an approval in upper case, without duplicates, in order.

    Source: A-2, A-5.

    Raises:
        ApprovalMalformed: the body violates A-2; nothing may be approved.
        ApprovalTooLarge: the body exceeds `APPROVAL_BYTES_MAX` or `APPROVALS_MAX`.
    """
    if len(body) > APPROVAL_BYTES_MAX:
        raise _too_large()
    try:
        form = parse_json(body)
    except (ValueError, RecursionError) as error:
        raise ApprovalMalformed(reason="The body is not JSON") from error
    requests = form.get("StartRequests") if isinstance(form, dict) else None
    if not isinstance(requests, list):
        raise ApprovalMalformed(reason="The body has no list of StartRequests")
    if not requests:
        raise ApprovalMalformed(reason="StartRequests is empty")
    if len(requests) > APPROVALS_MAX:
        raise _too_large()
    event_ids: dict[str, None] = {}
    for request in requests:
        event_id = request.get("EventId") if isinstance(request, dict) else None
        if not isinstance(event_id, str):
            raise ApprovalMalformed(reason="A StartRequest has no EventId")
        # JSON permits unpaired surrogates, which cannot be encoded.
        event_ids[event_id.upper().encode("utf-8", "backslashreplace").decode()] = None
    return tuple(event_ids)


def _too_large() -> ApprovalTooLarge:
    return ApprovalTooLarge(bytes_max=APPROVAL_BYTES_MAX, approvals_max=APPROVALS_MAX)
