"""A table of hostile and odd requests, each with its one right answer."""

import contextlib

import pytest

from forewarn_metadata.endpoint.http.request import BODY_BYTES_MAX, CHUNKS_MAX, HEAD_BYTES_MAX
from tests.metadata.hostile import (
    BODY,
    CHUNKS,
    GOOD,
    HOST,
    LINE,
    METHOD,
    YES,
    Row,
    check_answer,
    chunked,
    get,
    header,
    length,
    post,
    resident_kib,
)
from tests.metadata.live import EVENTS, FREEZE, Live, request

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
    Row("method that is not a word", b"G(T" + METHOD, 400, stays=False),
    Row("OPTIONS *", b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n", 405),
    Row("OPTIONS of an unknown path", b"OPTIONS /nowhere HTTP/1.1\r\n" + HOST + b"\r\n", 404),
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
    Row("chunks of one byte", chunked(
        b"".join(b"1\r\n%c\r\n" % octet for octet in BODY) + b"0\r\n\r\n"), 200),
    Row("more chunks than anybody needs", chunked(b"1\r\n \r\n" * (CHUNKS_MAX + 1)), 400,
        stays=False),
    Row("more framing than body", chunked((b"1;" + b"x" * 200 + b"\r\n \r\n") * 700), 413,
        stays=False),
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
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_odd_request_gets_its_answer(live: Live, row: Row) -> None:
    """Each has one right answer, however the network cuts it up; others are served. Source: E-8."""
    check_answer(live, row)


def test_head_answers_as_get_without_a_body(live: Live) -> None:
    """HEAD has the headers of GET, its length too, and no body. Source: E-8."""
    full = live.ask(GOOD)
    with live.connect() as raw:
        raw.send(b"HEAD" + METHOD + GOOD)
        bare = raw.reply(head_only=True)
        assert raw.reply().body == full.body  # the next answer begins right after the head
    assert bare.head == full.head


def test_request_is_refused_with_an_odd_header_and_no_answer_leaks(live: Live) -> None:
    """What is refused says nothing about the VM's events. Source: E-2, E-8."""
    live.show(FREEZE)
    assert FREEZE.event_id.encode() not in live.ask(request(EVENTS, metadata="false")).body


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
