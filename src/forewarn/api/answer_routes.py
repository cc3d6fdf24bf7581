"""Route for the first answer to a call with an Idempotency-Key. Source: P-10."""

from __future__ import annotations

from forewarn.access.roles import Permission
from forewarn.api.idempotency import KEY_LENGTH_MAX, first_answer
from forewarn.api.routes import ApiCall, ApiResponse, Route
from forewarn.api.schemas import TABLE
from forewarn.validation.fields import Text
from forewarn.validation.forms import Field


@Route(
    "GET /v1/answers",
    Permission.SIGNED_IN,
    active=True,
    query=(
        Field("key", Text(KEY_LENGTH_MAX), "The Idempotency-Key of the request.", required=True),
    ),
    answer=TABLE,
)
async def show_answer(call: ApiCall) -> ApiResponse:
    """Show the first answer to the caller's request with a key, without repeating the request."""
    authority = call.control.authority
    kept = await first_answer(call.control, call.principal, authority, key=call.query["key"])
    return ApiResponse(kept.answer.encode(), kept.status)
