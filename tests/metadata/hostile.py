"""What the tables of hostile and odd HTTP share: how requests are written, and what is right."""

import os
import socket
import time
from dataclasses import dataclass

import pytest

from tests.metadata.live import EVENTS, FREEZE, Live, approval
from tests.waiting import LIMIT_S

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


#: Longest request that is also sent in pieces of seven bytes.
CUT_BYTES_MAX = 1000


@dataclass(frozen=True)
class Row:
    """One request and what is right."""

    name: str
    octets: bytes
    status: int
    #: Whether the connection serves another request afterwards.
    stays: bool = True


def check_answer(live: Live, row: Row) -> None:
    """Check that a row gets its answer, whole and in pieces, and that others are served."""
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
    if len(row.octets) > CUT_BYTES_MAX:
        return
    with live.connect() as raw:
        raw.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(row.octets), 7):
            raw.send(row.octets[at : at + 7])
        assert raw.reply().status == row.status


def await_approvals(live: Live, count: int) -> None:
    """Wait until the control plane was asked so often."""
    until = time.monotonic() + LIMIT_S
    while len(live.control.approvals) < count:
        assert time.monotonic() < until
        live.call(lambda: None)


def resident_kib() -> int:
    """Return the memory of this process, the server's thread included, in KiB."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123
            return int(statm.read().split()[1]) * (os.sysconf("SC_PAGE_SIZE") // 1024)
    except FileNotFoundError:
        return 0


def raise_file_limit() -> None:
    """Let this process open as many files as it may."""
    resource = pytest.importorskip("resource")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
