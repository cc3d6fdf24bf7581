"""The operator API of a standby process: it reports health and refuses everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from forewarn.api.responses import encoded, refusal
from forewarn.control.service_state import STANDBY
from forewarn.errors import PeerError

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

HEALTH_PATH = "/v1/health"
LIVE_PATH = "/live"


class StandingBy(PeerError):
    """Another process is active; this one takes over when the other fails."""

    code = "standing-by"
    status = 503
    message = "This process is a standby; another process is active."
    advice = "Call the active process, or wait until this one has taken over."


class StandbyApp:
    """The operator API of a standby process; an ASGI application."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer for health, refuse everything else."""
        answer = refusal(StandingBy())
        if scope["path"] == LIVE_PATH:
            answer = Response(encoded({"live": True}), media_type="application/json")
        elif scope["path"] in {HEALTH_PATH, "/ready"}:
            body = encoded({"live": True, "ready": False, "state": STANDBY})
            answer = Response(body, 503, media_type="application/json")
        await answer(scope, receive, send)
