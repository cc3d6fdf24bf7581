"""Calls that a follower forwards. Source: H-4."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from forewarn.api.standby import Forwarder
from tests.waiting import wait_until


def test_call_that_waits_for_a_thread_is_answered_after_the_takeover() -> None:
    """`stop` cancels its wait, and this process, which leads now, answers it. Source: H-2."""
    forwarder, released = Forwarder(lambda: ""), threading.Event()
    forwarder._threads = ThreadPoolExecutor(1)
    forwarder._threads.submit(released.wait)
    sent: list[str] = []

    async def answer(*_: Any) -> None:  # noqa: ANN401 - an ASGI application
        sent.append("answered")

    async def story() -> None:
        scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
        body = asyncio.Queue[dict[str, object]]()
        body.put_nowait({"type": "http.request"})
        call = asyncio.create_task(forwarder(scope, body.get, answer))
        await asyncio.to_thread(wait_until, forwarder._threads._work_queue.qsize)
        forwarder.successor = answer
        forwarder.stop()
        released.set()
        await call

    asyncio.run(story())
    assert sent == ["answered"]
