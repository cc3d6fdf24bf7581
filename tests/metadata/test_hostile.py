"""A table of hostile and odd request lines and headers, each with its one right answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from forewarn.metadata.http.request import HEAD_BYTES_MAX
from tests.metadata.hostile import (
    GOOD,
    HOST,
    LINE,
    METHOD,
    YES,
    Row,
    check_answer,
    check_pieces,
    get,
    header,
)
from tests.metadata.live import EVENTS, FREEZE, request

if TYPE_CHECKING:
    from tests.metadata.live import Live

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
    check_answer(live, row)


@pytest.mark.parametrize(
    "row", [row for row in ROWS if len(row.octets) < 1000], ids=lambda x: x.name
)
def test_odd_request_in_pieces_gets_the_same_answer(live: Live, row: Row) -> None:
    """How the network cuts a request up changes nothing. Source: E-8."""
    check_pieces(live, row)


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
