"""Calls that a follower forwards. Source: H-4."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from forewarn_server.api import standby
from forewarn_server.api.standby import ActiveProcess, Forwarder
from tests.metadata.feeds import until

SCOPE = {"type": "http", "raw_path": b"/", "path": "/", "query_string": b"", "headers": []}
BODY: dict[str, object] = {"type": "http.request"}


class Active:
    """An active process that does with each connection what the test wants."""

    def __init__(self, answer: Callable[[asyncio.StreamWriter], None]) -> None:
        """Start later."""
        self.calls: list[bytes] = []
        self.url = ""
        self._answer = answer

    async def start(self) -> asyncio.Server:
        """Listen."""
        server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return server

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.calls.append(await reader.readuntil(b"\r\n\r\n"))
        self._answer(writer)
        await reader.read()
        writer.close()


async def forwarded(active: Active, method: str, **headers: str) -> list[dict[str, Any]]:
    """Return what a caller receives."""
    body, sent = asyncio.Queue[dict[str, object]](), asyncio.Queue[Any]()
    body.put_nowait(BODY)
    pairs = [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]
    forwarder = Forwarder(ActiveProcess(lambda: active.url, lambda: "lease"))
    await forwarder(SCOPE | {"method": method, "headers": pairs}, body.get, sent.put)
    return [sent.get_nowait() for _ in range(sent.qsize())]


def test_call_that_waits_for_its_turn_is_answered_after_the_takeover(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`stop` ends its wait, and this process, which leads now, answers it. Source: H-2."""
    monkeypatch.setattr(standby, "FORWARDED_MAX", 0)
    sent: list[str] = []

    async def answer(*_: Any) -> None:  # noqa: ANN401 - an ASGI application
        sent.append("answered")

    async def story() -> None:
        forwarder = Forwarder(ActiveProcess(str, str))
        body = asyncio.Queue[dict[str, object]]()
        body.put_nowait(BODY)
        call = asyncio.create_task(forwarder(SCOPE | {"method": "GET"}, body.get, answer))
        await until(lambda: bool(forwarder._attempts))
        forwarder.end_with(answer)
        forwarder.stop()
        await call

    asyncio.run(story())
    assert sent == ["answered"]


def test_answer_to_a_change_that_waits_in_a_follower_is_pending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is not missing; another caller's question is left to the active process. P-10, H-4."""
    sent = asyncio.Queue[Any]()

    async def story() -> list[object]:
        forwarder = Forwarder(ActiveProcess(str, str))

        async def call(method: str, token: bytes, answer: asyncio.Queue[Any]) -> None:
            body = asyncio.Queue[dict[str, object]]()
            body.put_nowait(BODY)
            headers = [(b"authorization", token), (b"idempotency-key", b"k")]
            scope = SCOPE | {"path": standby.ANSWERS_PATH, "query_string": b"key=k"}
            await forwarder(scope | {"method": method, "headers": headers}, body.get, answer.put)

        async def ask(token: bytes) -> object:
            answer = asyncio.Queue[Any]()
            await call("GET", token, answer)
            answer.get_nowait()
            return json.loads(answer.get_nowait()["body"])["error"]["code"]

        async def answers(_: Any, __: Any, send: Any) -> None:  # noqa: ANN401 - the same
            await send("answered")

        waiting = asyncio.create_task(call("POST", b"mine", sent))
        await until(lambda: bool(forwarder._waiting))
        codes = [await ask(b"mine")]
        monkeypatch.setattr(standby, "TAKEOVER_S", 0.0)
        codes.append(await ask(b"theirs"))
        forwarder.end_with(answers)
        await waiting
        assert not forwarder._waiting
        return codes

    assert asyncio.run(story()) == ["answer-pending", "standing-by"]
    assert sent.get_nowait() == "answered"


@pytest.mark.parametrize("keyed", [True, False])
def test_call_without_answer_is_repeated_only_with_a_key(
    monkeypatch: pytest.MonkeyPatch, *, keyed: bool
) -> None:
    """A change that the active process may have received is not sent twice. Source: H-4, P-10."""
    monkeypatch.setattr(standby, "TAKEOVER_S", 0.5)
    active = Active(lambda writer: writer.transport.abort())

    async def story() -> list[dict[str, Any]]:
        async with await active.start():
            return await forwarded(active, "POST", **({"idempotency_key": "k"} if keyed else {}))

    assert [each.get("status") for each in asyncio.run(story())] == [503, None]
    assert (len(active.calls) > 1) == keyed


def test_call_that_breaks_off_is_not_forwarded() -> None:
    """The first half of a topology, in TOML, may be a topology. Source: H-4."""
    active = Active(lambda _: None)

    async def story() -> None:
        async with await active.start():
            body, sent = asyncio.Queue[dict[str, object]](), asyncio.Queue[Any]()
            body.put_nowait(BODY | {"body": b'location = "north"', "more_body": True})
            body.put_nowait({"type": "http.disconnect"})
            forwarder = Forwarder(ActiveProcess(lambda: active.url, lambda: "lease"))
            await forwarder(SCOPE | {"method": "PUT"}, body.get, sent.put)
            assert sent.empty()

    asyncio.run(story())
    assert active.calls == []


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", b"abc"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc", b"abc"),
        (CHUNKED + b"2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n", b"abc"),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n", b""),
    ],
)
def test_answer_arrives_as_it_was_sent(answer: bytes, body: bytes) -> None:
    """Whatever frames it, and with each of its headers. Source: H-4."""

    def send(writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        if b"close" in answer:
            writer.write_eof()

    async def story() -> list[dict[str, Any]]:
        active = Active(send)
        async with await active.start():
            return await forwarded(active, "GET")

    first, *rest = asyncio.run(story())
    assert b"".join(each["body"] for each in rest) == body
    assert [each["more_body"] for each in rest][-1:] == [False]
    cookies = [text for name, text in first["headers"] if name == b"set-cookie"]
    assert cookies == ([b"a", b"b"] if answer.startswith(CHUNKED) else [])


@pytest.mark.parametrize(
    "end", [b"5\r\nab", b"-1\r\nab\r\n", b"zz\r\nab\r\n", b"0\r\nTrailer: x\r\n\r\n", b""]
)
def test_answer_that_breaks_off_is_not_completed(end: bytes) -> None:
    """The caller notices by the end of its connection. Source: H-4."""

    def send(writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED + end)
        writer.write_eof()

    async def story() -> list[dict[str, Any]]:
        active = Active(send)
        async with await active.start():
            return await forwarded(active, "GET")

    first, *rest = asyncio.run(story())
    assert first["status"] == 200
    assert all(each["more_body"] for each in rest)
