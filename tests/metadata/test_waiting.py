"""Held answers: long polls, first requests, stopping. E-9, B-1."""

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from forewarn_base.protocol.documents import Document
from forewarn_metadata.replication.messages import DocumentChange, Publication
from tests.metadata.live import (
    EVENTS,
    FREEZE,
    VM_A,
    Live,
    Raw,
    approval,
    request,
    serving,
    wait_for,
    with_settings,
)
from tests.waiting import LIMIT_S, wait_until

# Long polls.


def test_wait_is_answered_when_the_incarnation_moves(live: Live) -> None:
    """A long poll is held until the incarnation differs, then shows it at once. Source: E-9."""
    with live.connect() as raw, live.connect() as other:
        raw.send(request(wait_for(100)))
        assert raw.silent()
        other.send(request(EVENTS))
        assert other.reply().status == 200
        live.show(FREEZE, incarnation=1)
        assert json.loads(raw.reply().body)["DocumentIncarnation"] == 1
        raw.send(request(wait_for(100, 1)))
        assert raw.silent()
        live.show(incarnation=2)
        assert json.loads(raw.reply().body)["DocumentIncarnation"] == 2


def test_wait_is_not_held_when_the_incarnation_differs(live: Live) -> None:
    """Who has missed a change is answered at once. Source: E-9."""
    live.show(FREEZE, incarnation=4)
    assert live.get(wait_for(100, 3)).status == 200
    assert live.get(wait_for(100, 5)).status == 200  # an incarnation may start again: B-2


def test_wait_is_answered_when_its_time_is_up(live: Live) -> None:
    """Without a change the same document comes in the end. Source: E-9."""
    reply = live.get(wait_for(0.05))
    assert json.loads(reply.body)["DocumentIncarnation"] == 0
    etag = reply.headers["etag"]
    assert live.get(wait_for(0.01), if_none_match=etag).status == 304
    assert live.get(wait_for(0)).status == 200


def test_wait_has_a_longest(portable: bool) -> None:
    """A wait longer than allowed is cut to what is allowed. Source: E-9."""
    with serving(with_settings(wait_timeout_s=0.05), portable=portable) as live:
        assert live.get(wait_for(999_999_999)).status == 200


@pytest.mark.parametrize("query", ["wait=5", "wait=5&incarnation=", "wait=x&incarnation=1",
    "wait=-1&incarnation=1", "wait=1e3&incarnation=1", "wait=&incarnation=1",
    "wait=1&incarnation=-1", "wait=nan&incarnation=1", "wait=1.&incarnation=x"])  # fmt: skip
def test_malformed_wait_is_refused(live: Live, query: str) -> None:
    """A wait without a number, or without an incarnation, is 400. Source: E-8, E-9."""
    assert live.get(f"{EVENTS}&{query}").status == 400


def test_incarnation_alone_means_nothing(live: Live) -> None:
    """A client that never sends `wait` sees no difference. Source: E-9."""
    assert live.get(f"{EVENTS}&incarnation=x").status == 200


def test_waiting_client_that_hangs_up_is_forgotten(live: Live) -> None:
    """A long poll nobody listens to any more harms nobody. Source: E-9."""
    with live.connect() as raw:
        raw.send(request(wait_for(100)))
        assert raw.silent()
    live.show(FREEZE)
    assert live.get().status == 200


def test_pipelined_requests_behind_a_wait_keep_their_order(live: Live) -> None:
    """What was sent behind a long poll is answered after it. Source: E-9."""
    with live.connect() as raw:
        raw.send(request(wait_for(100)) + request("/metadata/versions") * 2000)
        assert raw.silent()
        live.show(FREEZE)
        assert b"Freeze" in raw.reply().body
        assert all(b"apiVersions" in raw.reply().body for _ in range(2000))


def flood(live: Live, raw: Raw, octets: bytes) -> bytes:
    """Send until the server reads no more; return what is left."""
    raw.sock.setblocking(False)
    try:
        while octets:
            try:
                sent = raw.sock.send(octets)
            except BlockingIOError:
                live.settle()
                sent = raw.sock.send(octets)
            octets = octets[sent:]
    except BlockingIOError:
        pass
    raw.sock.settimeout(LIMIT_S)
    return octets


def test_client_that_sends_on_behind_a_wait_is_held_back_until_its_answer(live: Live) -> None:
    """The server stops reading each time, goes on, and loses nothing. Source: E-8, E-9."""
    asked, count = request("/metadata/versions", padding="x" * 8000), 500
    with live.connect() as raw:
        raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        for incarnation in (0, 1):
            raw.send(request(wait_for(100, incarnation)))
            assert raw.silent()
            left = flood(live, raw, asked * count)
            assert left
            live.show(FREEZE, incarnation=incarnation + 1)
            unsent, rest = divmod(len(left), len(asked))
            raw.send(left[:rest])
            assert b"Freeze" in raw.reply().body
            assert all(b"apiVersions" in raw.reply().body for _ in range(count - unsent))


# First requests.


def test_first_get_is_held_until_the_group_is_enabled(portable: bool) -> None:
    """A group not enabled is enabled by its first GET, which waits for it. Source: B-1."""
    with serving(portable=portable) as live:
        off = Publication("group-1", enabled=False, document=Document())
        live.apply(DocumentChange(50, publications=(off,)))
        live.control.enables = False
        with live.connect() as raw, live.connect() as other:
            raw.send(request(EVENTS))
            other.send(request(EVENTS))
            assert raw.silent()
            assert other.silent()
            live.show(FREEZE, incarnation=1)
            assert b"Freeze" in raw.reply().body
            assert b"Freeze" in other.reply().body
        assert live.control.enabled == ["vm-a"]


def test_first_get_outlasts_a_whole_without_its_view(portable: bool) -> None:
    """A node that is sent everything answers who waited before, once that is there. M-2, B-1."""
    with serving(portable=portable) as live:
        live.control.enables = False
        live.apply(DocumentChange(50, whole=True, callers=(VM_A,)))
        with live.connect() as first, live.connect() as waits:
            first.send(request(EVENTS))
            waits.send(request(wait_for(100)))
            assert first.silent()
            assert waits.silent()
            live.apply(DocumentChange(51, whole=True, callers=(VM_A,)))
            live.show(FREEZE, incarnation=1)
            assert b"Freeze" in first.reply().body
            assert b"Freeze" in waits.reply().body
        assert live.control.enabled == ["vm-a"]
        live.apply(DocumentChange(52, whole=True, callers=(VM_A,)))
        assert not len(live.server.service.responder.snapshot)  # nobody waits any more


def test_first_get_is_held_as_long_as_the_setting_says(portable: bool) -> None:
    """The public service's slow first answer can be had. Source: B-1."""
    with serving(with_settings(enable_delay_s=0.2), portable=portable) as live:
        live.apply(DocumentChange(50, publications=(Publication("group-1", False, Document()),)))
        live.control.on_enable = lambda _: live.server.service.apply(enabled_change())
        with live.connect() as raw:
            raw.send(request(EVENTS))
            assert raw.silent()
            assert raw.reply().status == 200
        assert live.get().status == 200


def test_group_is_enabled_only_after_the_delay(portable: bool) -> None:
    """What is announced meanwhile counts no notice for who cannot see it. Source: B-1, B-3, N-1."""
    with serving(with_settings(enable_delay_s=3600.0), portable=portable) as live:
        live.apply(DocumentChange(50, publications=(Publication("group-1", False, Document()),)))
        with live.connect() as raw:
            raw.send(request(EVENTS))
            assert raw.silent()
            assert live.control.enabled == []
            live.show(FREEZE, incarnation=1)  # another node was asked before
            assert b"Freeze" in raw.reply().body
            assert b"Freeze" in live.get().body


@contextlib.contextmanager
def unasked(portable: bool, **settings: float) -> Iterator[Live]:
    """Serve a group nobody has asked for yet; it is enabled as soon as somebody does."""
    with serving(with_settings(**settings), portable=portable) as live:
        live.apply(DocumentChange(50, publications=(Publication("group-1", False, Document()),)))
        live.control.on_enable = lambda _: live.server.service.apply(enabled_change())
        yield live


def test_first_wait_ends_with_its_time(portable: bool) -> None:
    """Once the group is enabled the wait is what was asked for. Source: B-1, E-9."""
    with unasked(portable) as live:
        assert live.get(wait_for(0.05)).status == 200
        assert live.control.enabled == ["vm-a"]


def test_first_wait_ends_with_enabling_where_that_is_later(portable: bool) -> None:
    """The time a first answer takes counts as time waited. Source: B-1, E-9."""
    with unasked(portable, enable_delay_s=0.1) as live:
        assert live.get(wait_for(0.01)).status == 200


def test_first_wait_is_not_cut_to_that_of_enabling(portable: bool) -> None:
    """A group enabled in time is waited for as long as asked. Source: B-1, E-9."""
    with unasked(portable, enable_timeout_s=0.01) as live, live.connect() as raw:
        raw.send(request(wait_for(100)))
        assert raw.silent()
        live.show(FREEZE, incarnation=1)
        assert b"Freeze" in raw.reply().body


def test_first_answer_is_not_remembered_for_ever(portable: bool) -> None:
    """Polls after a first one that was held show the time and are handed on. Source: B-1, B-2."""
    with serving(portable=portable) as live, live.connect() as raw:
        live.apply(DocumentChange(50, publications=(Publication("group-1", False, Document()),)))
        raw.send(request(EVENTS))
        wait_until(lambda: live.control.groups, what="the second of the request to be over")
        live.show()
        assert raw.reply().status == 200
        live.clock.advance(60_000)
        live.call(live.server.service.clock_moved)
        raw.send(request(EVENTS))
        assert raw.reply().headers["date"] == "Tue, 14 Nov 2023 22:14:20 GMT"


def test_wait_enables_a_group_that_is_disabled_meanwhile(portable: bool) -> None:
    """Who still waits is a VM that asks: the group is enabled again and shown. B-2, B-3, E-9."""
    with serving(portable=portable) as live, live.connect() as raw:
        live.show(FREEZE, incarnation=3)
        raw.send(request(wait_for(100, 3)))
        assert raw.silent()
        live.control.on_enable = lambda _: live.server.service.apply(enabled_change())
        live.apply(DocumentChange(50, publications=(Publication("group-1", False, Document()),)))
        reply = raw.reply()
        assert (reply.status, json.loads(reply.body)["DocumentIncarnation"]) == (200, 0)
        assert live.control.enabled == ["vm-a"]


def test_wait_is_as_long_as_asked_when_its_group_is_disabled(portable: bool) -> None:
    """Without a change its document comes when the time is up, not 503. Source: B-2, E-9."""
    with serving(portable=portable) as live, live.connect() as raw:
        raw.send(request(wait_for(0.3)))
        assert raw.silent()
        live.control.on_enable = lambda _: live.server.service.apply(enabled_change())
        live.apply(DocumentChange(50, publications=(Publication("group-1", False, Document()),)))
        assert raw.reply().status == 200


def enabled_change() -> DocumentChange:
    """Return the change that shows the group enabled."""
    return DocumentChange(51, publications=(Publication("group-1", True, Document()),))


def test_group_that_cannot_be_enabled_is_503(portable: bool) -> None:
    """Where enabling fails or takes too long the client is told to come again. Source: B-1."""
    with serving(with_settings(enable_timeout_s=0.1), portable=portable) as live:
        live.apply(DocumentChange(50, publications=(Publication("group-1", False, Document()),)))
        assert live.get().status == 503
        assert live.get().headers["retry-after"] == "1"
        assert len(live.control.enabled) == 2  # asked again
        live.control.on_enable = lambda _: live.server.service.apply(enabled_change())
        assert live.get().status == 200


# Stopping.


def stopping(live: Live) -> Callable[[], None]:
    """Begin to stop the server; returns what waits for the end."""
    done = asyncio.run_coroutine_threadsafe(live.server.stop(), live.loop)
    return lambda: done.result(LIMIT_S)


def test_stop_answers_what_is_under_way(portable: bool) -> None:
    """Waits are answered, approvals may finish, idle connections close. Source: E-9, A-6."""
    with serving(portable=portable) as live, contextlib.ExitStack() as stack:
        live.control.answer = None
        idle, wait, approving = (stack.enter_context(live.connect()) for _ in range(3))
        idle.send(request(EVENTS))
        assert idle.reply().status == 200
        wait.send(request(wait_for(100)))
        approving.send(request(EVENTS, method="POST", body=approval("A")))
        assert wait.silent()
        assert approving.silent()
        live.control.waiting[0].add_done_callback(lambda _: None)
        end = stopping(live)
        live.call(lambda: live.control.waiting[0].set_exception(RuntimeError()))
        reply = wait.reply()
        assert (reply.status, reply.headers["connection"]) == (200, "close")
        reply = approving.reply()
        assert (reply.status, reply.headers["connection"]) == (503, "close")
        assert [raw.closed() for raw in (idle, wait, approving)] == [True] * 3
        end()
        with pytest.raises(ConnectionRefusedError):
            live.connect()


def test_stop_does_not_wait_for_ever(portable: bool) -> None:
    """An approval that never ends and a client that never reads do not hold it up. Source: A-6."""
    with serving(portable=portable) as live, live.connect() as raw, live.connect() as deaf:
        live.control.answer = None
        raw.send(request(EVENTS, method="POST", body=approval("A")))
        deaf.sock.settimeout(0.2)
        with contextlib.suppress(TimeoutError):
            while True:
                deaf.sock.sendall(request(EVENTS) * 500)
        begun_at = time.monotonic()
        stopping(live)()
        print(f"stopped after {time.monotonic() - begun_at:.3f} s")
        with contextlib.suppress(ConnectionResetError):
            assert raw.closed()


def test_stop_under_load_cuts_no_answer(portable: bool) -> None:
    """Clients under load see whole answers until the end, then the end. Source: E-8."""
    counts: list[int] = []
    broken: list[str] = []

    def load() -> None:
        count = 0
        try:
            with live.connect() as raw:
                while True:
                    raw.send(request(EVENTS))
                    count += raw.reply().status == 200
        except EOFError as end:
            if end.args[0]:
                broken.append(repr(end.args[0]))
        except (ConnectionResetError, ConnectionRefusedError):
            pass
        counts.append(count)

    with serving(portable=portable) as live:
        threads = [threading.Thread(target=load) for _ in range(8)]
        for thread in threads:
            thread.start()
        for _ in range(200):
            assert live.get().status == 200
        begun_at = time.monotonic()
        stopping(live)()
        print(f"stopped after {time.monotonic() - begun_at:.3f} s")
        for thread in threads:
            thread.join(LIMIT_S)
    assert broken == []
    assert len(counts) == 8
    assert VM_A.vm == "vm-a"
