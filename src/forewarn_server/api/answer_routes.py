"""Route for the first answer to a call with an Idempotency-Key. Source: P-10."""

from __future__ import annotations

from forewarn_base.validation.fields import Text
from forewarn_base.validation.forms import Field
from forewarn_core.access.roles import Permission
from forewarn_server.api.idempotency import KEY_LENGTH_MAX, first_answer
from forewarn_server.api.routes import ApiCall, ApiResponse, Route
from forewarn_server.api.schemas import TABLE


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
