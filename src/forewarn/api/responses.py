"""How answers are written as JSON, and errors as answers; no route in here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.types import Receive

    from forewarn.errors import ForewarnError

#: Seconds after which a refusal for lack of room may be tried again.
_RETRY_AFTER_S = {429: "1", 503: "2"}


#: Returns a value as compact JSON in UTF-8: a page of 1,000 VMs takes it a tenth of what the
#: standard library needs. Source: ADR 0014.
encoded = msgspec.json.Encoder().encode


def refusal(error: ForewarnError) -> Response:
    """Return an error as every route answers it."""
    body = {"code": error.code, "message": str(error), "advice": error.advice_text()}
    headers = {}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if error.status in _RETRY_AFTER_S:
        headers["Retry-After"] = _RETRY_AFTER_S[error.status]
    if error.status == 405:
        headers["Allow"] = str(error.facts["allowed"])
    return Response(encoded({"error": body}), error.status, headers, media_type="application/json")


async def left(receive: Receive) -> None:
    """Wait until the caller is gone; only once the body has been read."""
    while (await receive())["type"] != "http.disconnect":
        pass
