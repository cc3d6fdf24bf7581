"""Connections that are used in hostile and odd ways: pipelined, never read, slow, too many."""

import contextlib
import socket

import pytest

from tests.metadata.hostile import BODY, GOOD, await_approvals, get, length, raise_file_limit
from tests.metadata.live import FREEZE, Live, serving, with_settings
from tests.waiting import LIMIT_S


def test_three_pipelined_requests_are_answered_in_order(live: Live) -> None:
    """Requests sent at once are answered one after the other, in order. Source: E-8."""
    with live.connect() as raw:
        raw.send(GOOD + get(b"/nowhere") + length(str(len(BODY)).encode()) + GOOD)
        assert [raw.reply().status for _ in range(4)] == [200, 404, 200, 200]


def test_pipelined_approval_holds_back_what_follows(live: Live) -> None:
    """What follows an approval that is not durable yet waits for its turn. Source: A-6."""
    live.control.answer = None
    with live.connect() as raw, live.connect() as other:
        raw.send(length(str(len(BODY)).encode()) + GOOD + GOOD)
        other.send(GOOD)
        assert other.reply().status == 200
        raw.sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            raw.more()
        raw.sock.settimeout(LIMIT_S)
        await_approvals(live, 1)
        live.call(lambda: live.control.waiting[0].set_exception(RuntimeError()))
        assert [raw.reply().status for _ in range(3)] == [503, 200, 200]


def test_client_that_never_reads_is_not_answered_further(live: Live) -> None:
    """Answers nobody reads do not pile up, and others are served. Source: E-8."""
    with live.connect(receive_bytes=4096) as raw:
        raw.sock.settimeout(0.5)
        with contextlib.suppress(TimeoutError, OSError):
            for _ in range(2000):
                raw.sock.sendall(GOOD * 100)
        raw.sock.settimeout(LIMIT_S)
        assert live.ask(GOOD).status == 200
        assert [raw.reply().status for _ in range(1000)] == [200] * 1000


def test_half_closed_connection_gets_its_answer(live: Live) -> None:
    """A client that has said all it will say is still answered. Source: E-8."""
    with live.connect() as raw:
        raw.send(GOOD)
        raw.sock.shutdown(socket.SHUT_WR)
        assert raw.reply().status == 200
        assert raw.closed()


def test_half_closed_approval_gets_its_answer(live: Live) -> None:
    """The same where the answer is held. Source: A-6."""
    live.control.answer = None
    with live.connect() as raw:
        raw.send(length(str(len(BODY)).encode()))
        raw.sock.shutdown(socket.SHUT_WR)
        await_approvals(live, 1)
        live.call(live.control.waiting[0].cancel)
        assert raw.reply().status == 503
        assert raw.closed()


@pytest.mark.slow
def test_one_byte_a_second_is_cut_off(portable: bool) -> None:
    """A request that never ends is refused after its time, unheard clients go. Source: E-8."""
    quick = with_settings(request_timeout_s=2, idle_timeout_s=3)
    with serving(quick, portable=portable) as live, live.connect() as slow, live.connect() as idle:
        idle.send(GOOD)
        assert idle.reply().status == 200
        slow.sock.settimeout(1.0)
        for octet in GOOD:
            slow.send(bytes([octet]))
            with contextlib.suppress(TimeoutError):
                assert slow.reply().status == 408
                break
        else:
            pytest.fail("the slow request was not cut off")
        assert live.ask(GOOD).status == 200
        assert idle.closed()


def test_oldest_idle_connection_makes_room(portable: bool) -> None:
    """Beyond the limit the oldest idle connection goes, the newcomer is served. Source: E-8."""
    few = with_settings(max_connections=3)
    with serving(few, portable=portable) as live, contextlib.ExitStack() as stack:
        raws = []
        for _ in range(5):
            raw = stack.enter_context(live.connect())
            raw.send(GOOD)
            assert raw.reply().status == 200
            raws.append(raw)
        assert [raw.closed() for raw in raws[:2]] == [True, True]
        raws[4].send(GOOD)
        assert raws[4].reply().status == 200


@pytest.mark.slow
def test_5000_idle_connections_stop_nobody(portable: bool) -> None:
    """Thousands of idle connections neither stop service nor stopping. Source: E-8."""
    many = with_settings(max_connections_per_client=10_000)
    with serving(many, portable=portable) as live, contextlib.ExitStack() as stack:
        raise_file_limit()
        count = 0
        for _ in range(5000):
            try:
                raw = stack.enter_context(live.connect())
            except OSError:  # the machine's limit on open files, which both sides share
                break
            raw.send(GOOD)
            count += 1
        assert count >= 400
        assert live.ask(GOOD).status == 200
        live.show(FREEZE)
        assert b"Freeze" in live.ask(GOOD).body
