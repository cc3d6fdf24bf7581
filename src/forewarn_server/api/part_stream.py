"""Streaming of a long response in parts, with one part in memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from functools import partial

from starlette.types import Receive, Scope, Send

from forewarn_base.errors import ForewarnError
from forewarn_server.api.control_client import ControlClient
from forewarn_server.api.responses import first_of, left, start_stream

log = logging.getLogger("forewarn.operator")

#: Time in seconds after which a stalled caller is disconnected.
STALL_TIMEOUT_S = 30.0


class PartStream:
    """ASGI application that computes each part on a thread after sending the previous part."""

    def __init__(self, control: ControlClient, parts: Iterator[bytes], media: str) -> None:
        self._control = control
        self._parts = parts
        self._media = media

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all parts; abort the response if the caller disconnects or stalls."""
        sending = asyncio.ensure_future(self._send(send))
        ended = sending in await first_of(sending, left(receive))
        error = sending.exception() if ended and not sending.cancelled() else None
        if isinstance(error, ForewarnError):
            log.error("%s %s broke off: %s", scope["method"], scope["path"], error)
        elif error is not None:
            raise error

    async def _send(self, send: Send) -> None:
        await start_stream(send, self._media)
        more = True
        while more:
            part = await self._control.compute(partial(next, self._parts, b""))
            more = bool(part)
            async with asyncio.timeout(STALL_TIMEOUT_S):
                await send({"type": "http.response.body", "body": part, "more_body": more})
