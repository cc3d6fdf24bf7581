"""Calls that a follower forwards. Source: H-4."""

import asyncio
import http.client
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from forewarn.api import standby
from forewarn.api.standby import Forwarder
from tests.waiting import wait_until


def test_call_that_waits_for_a_thread_is_answered_after_the_takeover() -> None:
    """`stop` cancels its wait, and this process, which leads now, answers it. Source: H-2."""
    forwarder, released = Forwarder(lambda: "", str), threading.Event()
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
        forwarder.end_with(answer)
        forwarder.stop()
        released.set()
        await call

    asyncio.run(story())
    assert sent == ["answered"]


class SilentConnection(http.client.HTTPConnection):
    """A connection to an active process that receives calls and never answers."""

    calls = 0

    def connect(self) -> None:
        """Connect to nothing."""

    def endheaders(self, message_body: object = None, **_: object) -> None:
        """Receive a call."""
        assert message_body is not None
        self.calls += 1

    def putrequest(self, *_: object, **__: object) -> None:
        """Receive its first line."""

    def putheader(self, *_: object) -> None:
        """Receive a header."""

    def getresponse(self) -> http.client.HTTPResponse:
        """Break off."""
        raise ConnectionResetError


@pytest.mark.parametrize("keyed", [True, False])
def test_call_without_answer_is_repeated_only_with_a_key(
    monkeypatch: pytest.MonkeyPatch, *, keyed: bool
) -> None:
    """A change that the active process may have received is not sent twice. Source: H-4, P-10."""
    silent = SilentConnection("active")
    monkeypatch.setattr(standby, "new_connection", lambda *_, **__: silent)
    monkeypatch.setattr(standby, "TAKEOVER_S", 0.5)
    headers = [(b"idempotency-key", b"k")] if keyed else []
    scope = {"method": "POST", "path": "/", "raw_path": b"/", "query_string": b""}

    async def story() -> list[Any]:
        body, sent = asyncio.Queue[dict[str, object]](), asyncio.Queue[Any]()
        body.put_nowait({"type": "http.request"})
        await Forwarder(lambda: "http://active", str)(
            scope | {"type": "http", "headers": headers}, body.get, sent.put
        )
        return [sent.get_nowait()]

    assert [each["status"] for each in asyncio.run(story())] == [503]
    assert (silent.calls > 1) == keyed
