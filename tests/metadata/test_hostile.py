"""A table of hostile and odd HTTP, each row with its one right answer, on the raw socket.

What a well-formed request means may not be tested in here.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from forewarn.metadata.http.request import BODY_BYTES_MAX, HEAD_BYTES_MAX
from tests.metadata.live import EVENTS, FREEZE, WAIT_S, approval, request, serving, with_settings
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.metadata.live import Live

HOST, YES = b"Host: 169.254.169.254\r\n", b"Metadata: true\r\n"
LINE = b"GET " + EVENTS.encode() + b" HTTP/1.1\r\n"
GOOD = LINE + HOST + YES + b"\r\n"
QUERY = b"api-version=2020-07-01"
BODY = approval(FREEZE.event_id)


def get(path: bytes) -> bytes:
    """Return a good request for another path."""
    return b"GET " + path + b"?" + QUERY + b" HTTP/1.1\r\n" + HOST + YES + b"\r\n"


def header(*lines: bytes) -> bytes:
    """Return a good request with these header lines too."""
    return LINE + HOST + YES + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def post(framing: bytes, body: bytes) -> bytes:
    """Return an approval whose body is framed so."""
    return f"POST {EVENTS} HTTP/1.1\r\n".encode() + HOST + YES + framing + b"\r\n\r\n" + body


def chunked(body: bytes) -> bytes:
    """Return an approval with this as its chunked body."""
    return post(b"Transfer-Encoding: chunked", body)


def length(text: bytes, body: bytes = BODY) -> bytes:
    """Return an approval with this Content-Length."""
    return post(b"Content-Length: " + text, body)


CHUNKS = b"5\r\n" + BODY[:5] + b"\r\n" + f"{len(BODY) - 5:X}".encode() + b';x="y"\r\n' + BODY[5:]
METHOD = b" " + EVENTS.encode() + b" HTTP/1.1\r\n" + HOST + YES + b"\r\n"


@dataclass(frozen=True)
class Row:
    """One request and what is right."""

    name: str
    octets: bytes
    status: int
    stays: bool = True
    """Whether the connection serves another request afterwards."""


ROWS = [
    Row("garbage", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, stays=False),
    Row("one word", b"HELLO\r\n\r\n", 400, stays=False),
    Row("no version", f"GET {EVENTS}\r\n\r\n".encode(), 400, stays=False),
    Row("two spaces", b"GET  / HTTP/1.1\r\n" + HOST + b"\r\n", 400, stays=False),
    Row("empty line first", b"\r\n" + GOOD, 200),
    Row("two empty lines first", b"\r\n\r\n" + GOOD, 200),
    Row("no Host", LINE + YES + b"\r\n", 400, stays=False),
    Row("empty Host", LINE + b"Host:\r\n" + YES + b"\r\n", 200),
    Row("two Hosts", LINE + HOST + HOST + YES + b"\r\n", 400, stays=False),
    Row("a Host that is none", LINE + b"Host: a/b\r\n" + YES + b"\r\n", 400, stays=False),
    Row("bare LF everywhere", GOOD.replace(b"\r\n", b"\n"), 400, stays=False),
    Row("one bare LF", header(b"A: b\nC: d"), 400, stays=False),
    Row("one bare CR", header(b"A: b\rC: d"), 400, stays=False),
    Row("space before the colon", header(b"A : b"), 400, stays=False),
    Row("no space after the colon", header(b"A:b"), 200),
    Row("folded header", header(b"A: b", b" c"), 400, stays=False),
    Row("header without colon", header(b"A"), 400, stays=False),
    Row("header without name", header(b": b"), 400, stays=False),
    Row("Metadata twice", header(b"Metadata: true"), 400),
    Row("another header twice", header(b"A: b", b"A: c"), 200),
    Row("NUL in a header", header(b"A: b\0c"), 400, stays=False),
    Row("NUL in the path", get(b"/metadata/\0"), 400, stays=False),
    Row("obsolete text in a header", header(b"A: \xe9\xff"), 200),
    Row("length and chunked", post(b"Content-Length: 5\r\nTransfer-Encoding: chunked",
        b"0\r\n\r\n"),
        400, stays=False),
    Row("two equal lengths", post(b"Content-Length: 2\r\nContent-Length: 2", b"{}"), 400,
        stays=False),
    Row("two lengths", post(b"Content-Length: 2\r\nContent-Length: 3", b"{}"), 400, stays=False),
    Row("list of lengths", length(b"2, 2", b"{}"), 400, stays=False),
    Row("signed length", length(b"+2", b"{}"), 400, stays=False),
    Row("negative length", length(b"-1", b""), 400, stays=False),
    Row("hexadecimal length", length(b"0x2", b"{}"), 400, stays=False),
    Row("empty length", length(b"", b""), 400, stays=False),
    Row("length with zeros before", length(f"000{len(BODY)}".encode()), 200),
    Row("length beyond all bounds", length(b"9" * 30), 413, stays=False),
    Row("length of 64 KiB and one", length(str(BODY_BYTES_MAX + 1).encode(), b""), 413,
        stays=False),
    Row("GET with a body", LINE + HOST + YES + b"Content-Length: 3\r\n\r\nabc", 200),
    Row("chunked body", chunked(CHUNKS + b"\r\n0\r\n\r\n"), 200),
    Row("chunked body with trailer", chunked(CHUNKS + b"\r\n0\r\nA: b\r\n\r\n"), 200),
    Row("CHUNKED", post(b"Transfer-Encoding: CHUNKED", CHUNKS + b"\r\n0\r\n\r\n"), 200),
    Row("chunk size no number", chunked(b"zz\r\n"), 400, stays=False),
    Row("chunk size signed", chunked(b"+5\r\n"), 400, stays=False),
    Row("chunk size of 20 digits", chunked(b"1" * 20 + b"\r\n"), 400, stays=False),
    Row("chunk longer than its size", chunked(b"2\r\nabcd\r\n0\r\n\r\n"), 400, stays=False),
    Row("chunk size without end", chunked(b"5;" + b"x" * 400), 400, stays=False),
    Row("chunk with bare LF", chunked(b"2\nab\n0\n\n" + b" " * 400), 400, stays=False),
    Row("chunk trailer malformed", chunked(b"0\r\nA : b\r\n\r\n"), 400, stays=False),
    Row("chunks beyond 64 KiB", chunked(b"10001\r\n"), 413, stays=False),
    Row("gzip coding", post(b"Transfer-Encoding: gzip, chunked", b"0\r\n\r\n"), 400, stays=False),
    Row("unknown coding", post(b"Transfer-Encoding: identity", b""), 400, stays=False),
    Row("chunked in HTTP/1.0", chunked(b"0\r\n\r\n").replace(b"/1.1", b"/1.0"), 400, stays=False),
    Row("Expect something else", post(b"Expect: 200-ok\r\nContent-Length: 2", b"{}"), 417,
        stays=False),
    Row("absolute-form target", get(b"http://169.254.169.254/metadata/scheduledevents"), 200),
    Row("absolute form, other host", get(b"HTTP://other:81/metadata/scheduledevents"), 200),
    Row("absolute form without host", get(b"http:///metadata/scheduledevents"), 400, stays=False),
    Row("absolute form, bad host", get(b"http://a@b/metadata/scheduledevents"), 400, stays=False),
    Row("absolute form of https", get(b"https://x/metadata/scheduledevents"), 400, stays=False),
    Row("absolute form without path", get(b"http://169.254.169.254"), 404),
    Row("target without slash", get(b"metadata/scheduledevents"), 400, stays=False),
    Row("target with fragment", LINE.replace(b" HTTP", b"#x HTTP") + HOST + b"\r\n", 400,
        stays=False),
    Row("percent-encoded letter", get(b"/metadata/%73cheduledevents"), 200),
    Row("percent-encoded slash", get(b"/metadata%2fscheduledevents"), 404),
    Row("percent-encoded NUL", get(b"/metadata/scheduledevents%00"), 404),
    Row("percent sign alone", get(b"/metadata/scheduledevents%"), 400, stays=False),
    Row("dotted path", get(b"/metadata/./scheduledevents"), 404),
    Row("dots back and forth", get(b"/metadata/instance/../scheduledevents"), 404),
    Row("encoded dots", get(b"/metadata/instance/%2e%2e/scheduledevents"), 404),
    Row("doubled slash", get(b"/metadata//scheduledevents"), 404),
    Row("doubled slash first", get(b"//metadata/scheduledevents"), 404),
    Row("trailing slash", get(b"/metadata/scheduledevents/"), 200),
    Row("two trailing slashes", get(b"/metadata/scheduledevents//"), 404),
    Row("path of another case", get(b"/METADATA/ScheduledEvents"), 200),
    Row("root", get(b"/"), 404),
    Row("query not UTF-8", LINE.replace(b"?", b"?x=%ff&") + HOST + YES + b"\r\n", 400, stays=False),
    Row("query with bad percent", LINE.replace(b"?", b"?x=%f&") + HOST + YES + b"\r\n", 400,
        stays=False),
    Row("PUT", b"PUT" + METHOD, 405),
    Row("DELETE", b"DELETE" + METHOD, 405),
    Row("invented method", b"FOREWARN" + METHOD, 405),
    Row("method in lower case", b"get" + METHOD, 405),
    Row("method that is no word", b"G(T" + METHOD, 400, stays=False),
    Row("OPTIONS *", b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n", 405),
    Row("GET *", b"GET * HTTP/1.1\r\n" + HOST + b"\r\n", 400, stays=False),
    Row("CONNECT", b"CONNECT x:80 HTTP/1.1\r\n" + HOST + b"\r\n", 405),
    Row("HTTP/1.0", LINE.replace(b"1.1", b"1.0") + YES + b"\r\n", 200, stays=False),
    Row("HTTP/1.0 kept", LINE.replace(b"1.1",
        b"1.0") + YES + b"Connection: keep-alive\r\n\r\n", 200),
    Row("HTTP/1.2", LINE.replace(b"1.1", b"1.2") + HOST + YES + b"\r\n", 200),
    Row("HTTP/2.5", LINE.replace(b"1.1", b"2.5") + HOST + YES + b"\r\n", 505, stays=False),
    Row("HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, stays=False),
    Row("HTTP/11.1", LINE.replace(b"1.1", b"11.1") + HOST + YES + b"\r\n", 400, stays=False),
    Row("http/1.1", LINE.replace(b"HTTP", b"http") + HOST + YES + b"\r\n", 400, stays=False),
    Row("h2c upgrade", header(b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c",
                              b"HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA"), 200),
    Row("Connection: close", header(b"Connection: close"), 200, stays=False),
    Row("Connection: x, Close", header(b"Connection: x, Close"), 200, stays=False),
    Row("32 KiB header", header(b"A: " + b"b" * 32_768), 431, stays=False),
    Row("1 MiB header", header(b"A: " + b"b" * 1_048_576), 431, stays=False),
    Row("15 KiB header", header(b"A: " + b"b" * (HEAD_BYTES_MAX - 1024)), 200),
    Row("500 headers", header(*[b"A%d: b" % n for n in range(500)]), 431, stays=False),
    Row("98 headers", header(*[b"A%d: b" % n for n in range(98)]), 200),
    Row("32 KiB target", get(b"/" + b"x" * 32_768), 431, stays=False),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_odd_request_gets_its_answer(live: Live, row: Row) -> None:
    """Each odd request has one right answer, and afterwards others are served. Source: E-8."""
    with live.connect() as raw:
        raw.send(row.octets)
        reply = raw.reply()
        assert reply.status == row.status
        if row.status >= 400:
            assert b'"error"' in reply.body
        if row.stays:
            raw.send(GOOD)
            assert raw.reply().status == 200
        else:
            assert raw.closed()
            assert reply.headers["connection"] == "close"
    assert live.ask(GOOD).status == 200


@pytest.mark.parametrize(
    "row", [row for row in ROWS if len(row.octets) < 1000], ids=lambda x: x.name
)
def test_odd_request_in_pieces_gets_the_same_answer(live: Live, row: Row) -> None:
    """How the network cuts a request up changes nothing. Source: E-8."""
    with live.connect() as raw:
        raw.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(row.octets), 7):
            raw.send(row.octets[at : at + 7])
        assert raw.reply().status == row.status


def test_expect_100_continue_is_answered_first(live: Live) -> None:
    """A client that waits for leave to send its body gets it, then the answer. Source: E-8."""
    with live.connect() as raw:
        raw.send(length(str(len(BODY)).encode() + b"\r\nExpect: 100-continue", b""))
        assert raw.reply().status == 100
        raw.send(BODY)
        assert raw.reply().status == 200


def test_expect_100_continue_is_refused_when_too_large(live: Live) -> None:
    """A body that would be refused is refused before it is sent. Source: A-5."""
    with live.connect() as raw:
        raw.send(length(b"100000\r\nExpect: 100-continue", b""))
        assert raw.reply().status == 413


def test_head_answers_as_get_without_a_body(live: Live) -> None:
    """HEAD has the headers of GET, its length too, and no body. Source: E-8."""
    full = live.ask(GOOD)
    with live.connect() as raw:
        raw.send(b"HEAD" + METHOD + GOOD)
        bare = raw.reply(head_only=True)
        assert raw.reply().body == full.body  # the next answer begins right after the head
    assert bare.head == full.head


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
        raw.sock.settimeout(WAIT_S)
        await_approvals(live, 1)
        live.call(lambda: live.control.waiting[0].set_exception(RuntimeError()))
        assert [raw.reply().status for _ in range(3)] == [503, 200, 200]


def await_approvals(live: Live, count: int) -> None:
    """Wait until the control plane was asked so often."""
    until = time.monotonic() + WAIT_S
    while len(live.control.approvals) < count:
        assert time.monotonic() < until
        live.call(lambda: None)


def test_client_that_never_reads_is_not_answered_further(live: Live) -> None:
    """Answers nobody reads do not pile up, and others are served. Source: E-8."""
    with live.connect(receive_bytes=4096) as raw:
        raw.sock.settimeout(0.5)
        with contextlib.suppress(TimeoutError, OSError):
            for _ in range(2000):
                raw.sock.sendall(GOOD * 100)
        raw.sock.settimeout(WAIT_S)
        assert live.ask(GOOD).status == 200
        assert [raw.reply().status for _ in range(1000)] == [200] * 1000


def test_body_of_64_mib_is_refused_without_growth(live: Live) -> None:
    """A huge body is refused at once and never kept. Source: A-5."""
    before = resident_kib()
    with live.connect() as raw:
        raw.send(length(str(64 * 1024 * 1024).encode(), b""))
        piece = bytes(65_536)
        with contextlib.suppress(OSError):
            for _ in range(1024):
                raw.sock.sendall(piece)
        assert raw.reply().status == 413
    assert resident_kib() - before < 8 * 1024


def resident_kib() -> int:
    """Return the memory of this process, the server's thread included, in KiB."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123
            return int(statm.read().split()[1]) * (os.sysconf("SC_PAGE_SIZE") // 1024)
    except FileNotFoundError:
        return 0


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


@pytest.mark.slow
def test_stalled_client_is_cut_off(portable: bool) -> None:
    """A client that refuses to read its answers is cut off after a while. Source: E-8."""
    with (
        serving(with_settings(stall_timeout_s=1), portable=portable) as live,
        live.connect() as raw,
    ):
        raw.sock.settimeout(0.5)
        with contextlib.suppress(TimeoutError, OSError):
            while True:
                raw.sock.sendall(GOOD * 500)
        wait_until(lambda: live.call(lambda: live.server.connections) == 0, limit_s=WAIT_S)


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
    with serving(portable=portable) as live, contextlib.ExitStack() as stack:
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


def raise_file_limit() -> None:
    """Let this process open as many files as it may."""
    resource = pytest.importorskip("resource")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))


def test_request_is_refused_with_an_odd_header_and_no_answer_leaks(live: Live) -> None:
    """What is refused says nothing about the VM's events. Source: E-2, E-8."""
    live.show(FREEZE)
    assert FREEZE.event_id.encode() not in live.ask(request(EVENTS, metadata="false")).body
