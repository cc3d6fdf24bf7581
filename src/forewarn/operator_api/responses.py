"""How answers are written as JSON, and errors as answers; no route in here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from starlette.responses import Response

if TYPE_CHECKING:
    from forewarn.errors import ForewarnError

_encode = json.JSONEncoder(separators=(",", ":")).encode  # made once: json.dumps makes it anew
#: Seconds after which a refusal for lack of room may be tried again.
_RETRY_AFTER_S = {429: "1", 503: "2"}


def encoded(value: object) -> bytes:
    """Return a value as compact JSON, ASCII."""
    return _encode(value).encode("ascii")


def refusal(error: ForewarnError) -> Response:
    """Return an error as every route answers it."""
    told = {"code": error.code, "message": str(error), "advice": error.advice_text()}
    headers = {}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if error.status in _RETRY_AFTER_S:
        headers["Retry-After"] = _RETRY_AFTER_S[error.status]
    if error.status == 405:
        headers["Allow"] = str(error.facts["allowed"])
    return Response(encoded({"error": told}), error.status, headers, media_type="application/json")
