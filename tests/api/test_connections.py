"""What a connection of the operator port may hold, and who makes room for whom."""

import contextlib
import logging
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest

from forewarn_base.settings import OperatorSettings
from forewarn_server.api.connections import HEAD_BYTES_MAX, HEADERS_MAX
from tests.api.live import SETTINGS, TOKEN, Live
from tests.waiting import LIMIT_S

BEARER = f"Authorization: Bearer {TOKEN}\r\n".encode()
HALF = b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n"


def served(operator: OperatorSettings) -> Iterator[Live]:
    """Run a service that asks for a token."""
    with Live(replace(SETTINGS, operator=operator)) as service:
        yield service


@pytest.fixture(scope="module")
def narrow() -> Iterator[Live]:
    """A service with room for few."""
    yield from served(OperatorSettings(max_connections=8, max_connections_per_source=6))


@pytest.fixture
def hasty() -> Iterator[Live]:
    """A service with little patience: a whole request of a loaded machine may come too late."""
    yield from served(OperatorSettings(request_timeout_s=0.3))


def dial(live: Live) -> socket.socket:
    """Connect."""
    return socket.create_connection((live.host, int(live.port)), timeout=LIMIT_S)


def rest_of(channel: socket.socket) -> bytes:
    """Return everything until the other side ends; an abort is an end, too."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while part := channel.recv(65536):
            found += part
    return found


def asked(live: Live, content: bytes) -> bytes:
    """Send bytes and return everything that comes until the other side ends."""
    with dial(live) as channel:
        with contextlib.suppress(ConnectionError):
            channel.sendall(content)
        return rest_of(channel)


def test_half_a_request_is_cut_off(hasty: Live) -> None:
    """A head that never ends does not hold a connection for ever; nor does a body, of anybody."""
    assert asked(hasty, HALF) == b""
    head = b"PUT /v1/hosts/h HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n" + BEARER + b"\r\n{"
    assert asked(hasty, head) == b""


def test_refusal_is_told_before_the_body_came(narrow: Live) -> None:
    """Who may not call is told so when the head is in."""
    head = b"PUT /v1/hosts/h HTTP/1.1\r\nHost: x\r\nContent-Length: 900000000\r\n\r\n"
    with dial(narrow) as channel:
        channel.sendall(head)
        assert channel.recv(65536).startswith(b"HTTP/1.1 401")


def test_half_requests_hold_up_nobody(narrow: Live) -> None:
    """Who has not said who he is makes room for the next, oldest first."""
    with contextlib.ExitStack() as open_ones:
        for _ in range(40):
            open_ones.enter_context(dial(narrow)).sendall(HALF)
            reply = narrow.call("GET", "/v1/hosts", headers={"Authorization": f"Bearer {TOKEN}"})
            assert reply.status == 200


def test_accepted_request_keeps_its_connection(narrow: Live) -> None:
    """A flood of strangers does not end an operator's watch."""
    with dial(narrow) as watch, contextlib.ExitStack() as open_ones:
        watch.sendall(b"GET /v1/watch HTTP/1.1\r\nHost: x\r\n" + BEARER + b"\r\n")
        assert watch.recv(65536).startswith(b"HTTP/1.1 200")
        for _ in range(40):
            open_ones.enter_context(dial(narrow)).sendall(HALF)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        assert narrow.call("PUT", "/v1/hosts/seen", {}, headers=headers).status == 201
        watch.settimeout(LIMIT_S)
        found = b""
        while b"host.added" not in found:
            part = watch.recv(65536)
            assert part, found
            found += part


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"x" * (HEAD_BYTES_MAX + 1) + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * (HEADERS_MAX + 1) + b"\r\n",
        b"GET / HTTP/1.1\r\na: " + b"x" * (HEAD_BYTES_MAX + 1) + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\na: " + b"x" * 4_000_000,
        b"GET /" + b"x" * 4_000_000,
        b"PUT /v1/hosts/h HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"
        + BEARER
        + b"\r\n0\r\na: "
        + b"x" * 4_000_000,
    ],
    ids=["url", "headers", "header", "endless-header", "endless-url", "endless-trailer"],
)
def test_head_above_its_limit_is_refused(narrow: Live, head: bytes) -> None:
    """Nobody makes the service hold more than a head's worth before it knows who asks."""
    assert b"HTTP/1.1 2" not in asked(narrow, head)


def test_bad_pipelined_requests_make_no_traceback(
    narrow: Live, caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot be read is refused; nothing is logged but that."""
    good = b"GET /v1/hosts HTTP/1.1\r\nHost: x\r\n" + BEARER + b"\r\n"
    bad = b"GET \xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n"
    with caplog.at_level(logging.DEBUG):
        for content in (bad * 5, good + bad * 5, good * 5 + bad, good * 40, good * 3 + b"\r\n\x00"):
            asked(narrow, content)
        narrow.settle()
    told = [r for r in caplog.records if r.exc_info or r.levelno >= logging.ERROR]
    assert told == []
