"""Clients that read late, send slowly or break off, and a process that has no file left. E-8."""

import asyncio
import contextlib
import errno
import os
import socket
import struct
import sys
import threading

import pytest

from forewarn_core.requests import RequestAnswer
from forewarn_metadata.endpoint import server
from forewarn_metadata.endpoint.http import asyncio_transport, epoll_transport
from forewarn_metadata.endpoint.http.addresses import Listener
from tests.metadata.hostile import GOOD
from tests.metadata.live import (
    EVENTS,
    FREEZE,
    Live,
    Raw,
    approval,
    request,
    serving,
    wait_for,
    with_settings,
)
from tests.waiting import LIMIT_S, wait_until


def seconds(live: Live, count: int) -> None:
    """Let the service count seconds."""
    for _ in range(count):
        live.call(live.server.service.second)


def count(live: Live) -> int:
    """Return the number of open connections."""
    return live.call(lambda: len(live.server.service.connections))


def flood(raw: Raw, pieces: list[bytes]) -> threading.Thread:
    """Send all this, however long nobody reads the answers."""
    thread = threading.Thread(target=lambda: raw.send(b"".join(pieces)), daemon=True)
    thread.start()
    return thread


def stalled(live: Live) -> bool:
    """Whether some connection's client does not read its answers."""
    return live.call(lambda: any(each.stalled for each in live.server.service.connections))


@pytest.mark.parametrize("last", ["stays", "closes", "half-closed", "waits", "refused"])
def test_client_that_reads_late_gets_every_answer(portable: bool, last: str) -> None:
    """In order, none twice, none cut; and what it asks afterwards is answered, too. E-8."""
    number = 12_000
    with serving(portable=portable) as live, live.connect(receive_bytes=4096) as raw:
        live.show(FREEZE)
        asked = [EVENTS, "/metadata/versions", "/nowhere"]
        pieces = [request(f"{asked[n % 3]}") for n in range(number)]
        if last == "closes":
            pieces.append(request(EVENTS, connection="close"))
        elif last == "waits":
            pieces += [request(wait_for(30, 1)), GOOD]
        elif last == "refused":
            pieces += [request(EVENTS, method="POST", content_length="70000"), b"x" * 70_000]
        sending = flood(raw, pieces)
        wait_until(lambda: stalled(live))
        assert live.ask(GOOD).status == 200
        statuses = [raw.reply().status for _ in range(number)]
        assert statuses == [(200, 200, 404)[n % 3] for n in range(number)]
        sending.join(LIMIT_S)
        if last == "stays":
            raw.send(GOOD)
            assert raw.reply().status == 200
            assert raw.silent()
        elif last == "refused":
            assert raw.reply().status == 413
            assert raw.closed()
        elif last == "waits":
            assert raw.silent()
            live.show(incarnation=2)
            assert [b'tion":2' in raw.reply().body for _ in range(2)] == [True, True]
        elif last == "closes":
            reply = raw.reply()
            assert (reply.status, reply.headers["connection"]) == (200, "close")
            assert raw.closed()
        else:
            raw.sock.shutdown(socket.SHUT_WR)
            assert raw.closed()
        wait_until(lambda: not stalled(live))


def test_client_that_does_not_read_is_cut_off_after_its_time(portable: bool) -> None:
    """And not before; whoever reads then finds only whole answers before the end. E-8."""
    settings = with_settings(stall_timeout_s=3, idle_timeout_s=100)
    with serving(settings, portable=portable) as live, live.connect(receive_bytes=4096) as raw:
        flood(raw, [GOOD * 20_000])
        wait_until(lambda: stalled(live))
        seconds(live, 2)
        assert count(live) == 1
        seconds(live, 2)
        wait_until(lambda: count(live) == 0)


def test_request_that_takes_too_long_is_refused(portable: bool) -> None:
    """With 408; an idle connection closes after its own time; a held answer stays. E-8."""
    settings = with_settings(request_timeout_s=3, idle_timeout_s=6, approve_timeout_s=500.0)
    with (
        serving(settings, portable=portable) as live,
        live.connect() as slow,
        live.connect() as idle,
        live.connect() as held,
    ):
        live.control.answer = None
        for raw in (slow, idle):
            raw.send(GOOD)
            assert raw.reply().status == 200
        slow.send(GOOD[:30])
        held.send(request(EVENTS, method="POST", body=approval(FREEZE.event_id)))
        wait_until(lambda: live.control.approvals and count(live) == 3)
        wait_until(
            lambda: live.call(
                lambda: any(each.unfinished for each in live.server.service.connections)
            )
        )
        seconds(live, 2)
        slow.send(GOOD[30:31])  # a byte now and then starts nothing again
        seconds(live, 2)
        assert slow.reply().status == 408
        assert slow.closed()
        seconds(live, 4)
        assert idle.closed()
        live.control.answer = None
        live.call(live.control.waiting[0].cancel)
        assert held.reply().status == 503


TOO_LONG = request(EVENTS, method="POST", content_length="70000")


@pytest.mark.parametrize("goes", [True, False], ids=["goes", "stays"])
def test_refused_client_may_read_its_answer(
    portable: bool, goes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it goes on sending is passed over, until it goes or its time is up. Source: E-8."""
    monkeypatch.setattr(epoll_transport, "LINGER_S", 3600.0 if goes else 0.02)
    monkeypatch.setattr(asyncio_transport, "LINGER_S", 1.0 if goes else 0.02)
    with serving(portable=portable) as live:
        with live.connect() as raw:
            raw.send(TOO_LONG)
            raw.send(b"x" * 70_000)
            assert raw.reply().status == 413
            assert raw.closed()
            if goes:
                raw.send(b"x" * 70_000)
                assert count(live) == 1
            else:
                wait_until(lambda: count(live) == 0)
        wait_until(lambda: count(live) == 0)


@pytest.mark.parametrize("octets", [b"", GOOD[:30], GOOD, GOOD * 3])
def test_client_that_breaks_off_is_forgotten(portable: bool, octets: bytes) -> None:
    """Whatever it has sent, and whether it was answered. Source: E-8."""
    with serving(portable=portable) as live:
        with live.connect() as raw:
            raw.send(GOOD)
            assert raw.reply().status == 200
            raw.send(octets)
            raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wait_until(lambda: count(live) == 0)
        assert live.get().status == 200


def test_client_that_breaks_off_while_it_is_answered_is_forgotten(portable: bool) -> None:
    """An approval that waits is decided for nobody. Source: E-8, A-6."""
    with serving(portable=portable) as live:
        live.control.answer = None
        with live.connect() as raw:
            raw.send(request(EVENTS, method="POST", body=approval(FREEZE.event_id)))
            wait_until(lambda: live.control.waiting)
            raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wait_until(lambda: count(live) == 0)
        live.call(live.control.waiting[0].cancel)
        assert live.get().status == 200


class Full:
    """A system that gives no descriptor to whoever accepts, as long as it is so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
        self.error, self.attempts, self.now = error, 0, True
        accept = Listener.accept

        def accept_or_not(listener: Listener) -> tuple[int, str]:
            self.attempts += 1
            if self.now:
                raise OSError(self.error, os.strerror(self.error))
            return accept(listener)

        monkeypatch.setattr(Listener, "accept", accept_or_not)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the event loop reads")
@pytest.mark.parametrize("what", [EVENTS, wait_for(30), "approval"])
def test_request_that_comes_with_the_end_is_answered(what: str) -> None:
    """At once, and the answer says that the connection closes. Source: L-7, E-7."""
    with serving() as live, live.connect() as raw:
        raw.send(GOOD)
        assert raw.reply().status == 200
        octets = request(what)
        if what == "approval":
            live.control.answer = None
            octets = request(EVENTS, method="POST", body=approval(FREEZE.event_id))

        async def end() -> None:
            raw.send(octets)  # it is there before anybody could have read it
            await live.server.stop()

        asyncio.run_coroutine_threadsafe(end(), live.loop).result(LIMIT_S)
        reply = raw.reply()
        assert reply.status == (503 if what == "approval" else 200)
        assert reply.headers["connection"] == "close"
        assert raw.closed()


def test_server_stops_as_soon_as_the_last_answer_is_sent(
    portable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for answers under way, and for nothing else. Source: L-7."""
    monkeypatch.setattr(server, "STOP_S", 3600.0)
    with serving(portable=portable) as live, live.connect() as raw:
        live.control.answer = None
        raw.send(request(EVENTS, method="POST", body=approval(FREEZE.event_id)))
        wait_until(lambda: live.control.waiting)
        stopping = asyncio.run_coroutine_threadsafe(live.server.stop(), live.loop)
        wait_until(lambda: live.server.service.emptied is not None)
        assert not stopping.done()
        live.call(lambda: live.control.waiting[0].set_result(RequestAnswer(True)))
        stopping.result(LIMIT_S)
        assert raw.reply().status == 200
        assert raw.closed()


linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the event loop accepts")


@linux
@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_process_without_descriptors_accepts_again_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: int
) -> None:
    """It does not turn in circles meanwhile, says so once, and serves whoever waited. E-8."""
    monkeypatch.setattr(epoll_transport, "FULL_S", 0.1)
    with serving() as live:
        full = Full(monkeypatch, error)
        with live.connect() as first, live.connect() as second:
            for raw in (first, second):
                raw.send(GOOD)
            wait_until(lambda: full.attempts >= 3)
            before = full.attempts
            for _ in range(300):
                live.call(lambda: None)
            assert full.attempts - before < 100
            full.now = False
            for raw in (first, second):
                assert raw.reply().status == 200
    said = [each for each in caplog.records if getattr(each, "action", "") == "full"]
    assert len(said) == 1


@linux
def test_idle_connection_makes_way_where_no_descriptor_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The newcomer need not wait for a pause then. Source: E-8."""
    monkeypatch.setattr(epoll_transport, "FULL_S", 3600.0)
    with serving() as live, live.connect() as idle:
        idle.send(GOOD)
        assert idle.reply().status == 200
        full = Full(monkeypatch, errno.EMFILE)
        forget = live.server.service.forget

        def forget_and_free(connection: object) -> None:
            forget(connection)  # type: ignore[arg-type]
            full.now = False

        monkeypatch.setattr(live.server.service, "forget", forget_and_free)
        assert live.get().status == 200
        assert idle.closed()


@linux
def test_client_that_has_gone_before_it_is_accepted_stops_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """That is the client's own affair. Source: E-8."""
    with serving() as live:
        full = Full(monkeypatch, errno.ECONNABORTED)
        with live.connect() as raw:
            raw.send(GOOD)
            wait_until(lambda: full.attempts)
            full.now = False
            assert raw.reply().status == 200
    assert caplog.records == []


@linux
def test_server_that_stops_while_it_has_no_descriptor_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pause of accepting keeps nothing alive. Source: L-7."""
    monkeypatch.setattr(epoll_transport, "FULL_S", 0.02)
    with serving() as live, contextlib.ExitStack() as stack:
        full = Full(monkeypatch, errno.EMFILE)
        stack.enter_context(live.connect()).send(GOOD)
        wait_until(lambda: full.attempts >= 2)
    assert live.server.figures() == {}
