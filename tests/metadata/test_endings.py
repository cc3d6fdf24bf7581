"""How connections end whose clients read late, go, or are cut off meanwhile. E-8, L-7."""

import asyncio
import socket
import sys
from collections.abc import Callable
from concurrent.futures import Future

import pytest

from forewarn_base.protocol.documents import Document, ScheduledEvent
from forewarn_metadata.endpoint import server
from forewarn_metadata.endpoint.http import asyncio_transport, epoll_transport
from forewarn_metadata.endpoint.http.connection import Connection
from forewarn_metadata.replication.messages import DocumentChange, Publication
from tests.metadata.hostile import GOOD, get
from tests.metadata.live import EVENTS, FREEZE, Live, Raw, request, serving, wait_for, with_settings
from tests.waiting import LIMIT_S, wait_until

#: Its document is more than a small buffer holds, and goes out in one piece.
LONG = ScheduledEvent(event_id=FREEZE.event_id, event_type="Freeze", description="x" * 50_000)
TOO_LONG = request(EVENTS, method="POST", content_length="70000")
SMALL_BYTES = 4096

linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the event loop reads")


@pytest.fixture(autouse=True)
def _early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere than with epoll, too, a small buffer is full soon."""
    monkeypatch.setattr(asyncio_transport, "WRITE_HIGH_BYTES", SMALL_BYTES)


def narrow(live: Live, raw: Raw) -> None:
    """Have the system take little for a client that does not read, on its only connection."""
    raw.send(get(b"/metadata/versions"))
    assert raw.reply().status == 200

    def shrink() -> None:
        [connection] = live.server.service.connections
        if isinstance(connection, epoll_transport.EpollConnection):
            sock = connection.sock
        else:
            sock = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined]
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BYTES)

    live.call(shrink)


def await_any(live: Live, true: Callable[[Connection], object]) -> None:
    """Wait until this holds of a connection."""
    connections = live.server.service.connections
    wait_until(lambda: live.call(lambda: any(map(true, connections))))  # type: ignore[arg-type]


def stop_after(live: Live, act: Callable[[], None]) -> Future[None]:
    """Begin to stop the server before it could see what the client does just now."""

    async def end() -> None:
        act()
        await live.server.stop()

    return asyncio.run_coroutine_threadsafe(end(), live.loop)


def test_late_reader_gets_its_refusal_and_an_orderly_end(
    portable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has sent meanwhile resets nothing that it has not read yet. Source: E-8."""
    for transport in (epoll_transport, asyncio_transport):
        monkeypatch.setattr(transport, "LINGER_S", LIMIT_S)
    with serving(portable=portable) as live, live.connect(receive_bytes=SMALL_BYTES) as raw:
        live.show(LONG)
        narrow(live, raw)
        raw.send(GOOD + TOO_LONG)
        await_any(live, lambda each: each.over and each.stalled)
        raw.send(b"x" * 10_000)
        assert [raw.reply().status for _ in range(2)] == [200, 413]
        assert not raw.more()  # and no reset
        raw.send(b"x" * 10_000)


def test_client_that_was_cut_off_waits_for_nothing(portable: bool) -> None:
    """Its group, disabled, is not enabled again for its sake. Source: E-8, B-2."""
    settings = with_settings(stall_timeout_s=3)
    with serving(settings, portable=portable) as live:
        live.show(LONG)
        with live.connect(receive_bytes=SMALL_BYTES) as raw:
            narrow(live, raw)
            raw.send(GOOD + request(wait_for(100, 1)))
            await_any(live, lambda each: each.held and each.stalled)
            for _ in range(4):
                live.call(live.server.service.second)
            wait_until(lambda: live.call(lambda: not len(live.server.service.connections)))
        live.apply(DocumentChange(50, publications=(Publication("group-1", False, Document()),)))
        for _ in range(3):  # whoever asks does so in the loop's next round
            live.call(lambda: None)
        assert live.control.enabled == []


@linux
def test_request_whose_rest_comes_with_the_end_is_answered() -> None:
    """As if all of it had come by then. Source: L-7, E-7."""
    with serving() as live, live.connect() as raw:
        raw.send(GOOD[:40])
        await_any(live, lambda each: each.unfinished)
        stop_after(live, lambda: raw.send(GOOD[40:])).result(LIMIT_S)
        reply = raw.reply()
        assert (reply.status, reply.headers["connection"]) == (200, "close")
        assert raw.closed()


@linux
def test_late_reader_that_sends_no_more_gets_all_its_answers_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end of what it sends is not that of what it is sent. Source: L-7, E-8."""
    monkeypatch.setattr(server, "STOP_S", LIMIT_S)
    with serving() as live, live.connect(receive_bytes=SMALL_BYTES) as raw:
        live.show(LONG)
        narrow(live, raw)
        raw.send(GOOD)
        await_any(live, lambda each: each.stalled)
        stopping = stop_after(live, lambda: raw.sock.shutdown(socket.SHUT_WR))
        wait_until(lambda: live.server.service.emptied is not None)
        assert raw.reply().status == 200
        assert raw.closed()
        stopping.result(LIMIT_S)


@linux
def test_refused_client_that_goes_with_the_end_holds_nothing_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server sees that it has gone. Source: L-7, E-8."""
    monkeypatch.setattr(epoll_transport, "LINGER_S", 3600.0)
    monkeypatch.setattr(server, "STOP_S", 3600.0)
    with serving() as live, live.connect() as raw:
        raw.send(TOO_LONG)
        assert raw.reply().status == 413
        assert raw.closed()
        stop_after(live, raw.sock.close).result(LIMIT_S)
    assert live.server.figures() == {}
