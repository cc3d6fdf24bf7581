"""A table of hostile and odd bodies and their framing, each with its one right answer."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from forewarn.metadata.http.request import BODY_BYTES_MAX, CHUNKS_MAX
from tests.metadata.hostile import (
    BODY,
    CHUNKS,
    HOST,
    LINE,
    YES,
    Row,
    check_answer,
    check_pieces,
    chunked,
    length,
    post,
    resident_kib,
)

if TYPE_CHECKING:
    from tests.metadata.live import Live

ROWS = [
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
def test_odd_body_gets_its_answer(live: Live, row: Row) -> None:
    """Each odd request has one right answer, and afterwards others are served. Source: E-8."""
    check_answer(live, row)


@pytest.mark.parametrize(
    "row", [row for row in ROWS if len(row.octets) < 1000], ids=lambda x: x.name
)
def test_odd_body_in_pieces_gets_the_same_answer(live: Live, row: Row) -> None:
    """How the network cuts a request up changes nothing. Source: E-8."""
    check_pieces(live, row)


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
