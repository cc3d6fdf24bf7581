"""Bytes nobody would send: no 5xx, no hang, no growth. Sections E and A."""

import contextlib
import errno
import re
import socket
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.metadata.hostile import resident_kib
from tests.metadata.live import EVENTS, FREEZE, Live, approval, request, serving, with_settings
from tests.waiting import LIMIT_S

BODY = approval(FREEZE.event_id)
SEEDS = [
    request(EVENTS),
    request(EVENTS, method="POST", body=BODY),
    request(EVENTS, method="POST", transfer_encoding="chunked") + b"5\r\n12345\r\n0\r\n\r\n",
    request(f"{EVENTS}&wait=0&incarnation=1", if_none_match='"x"', connection="keep-alive"),
    request("/metadata/instance/compute/name?api-version=2021-02-01&format=text"),
    request("http://169.254.169.254/metadata/versions", expect="100-continue", content_length="2"),
]
BITS = st.sampled_from(
    [b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b"%", b"%00", b"?", b"&", b"#", b"/", b"..",
     b"\xff", b"Host: x\r\n", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n",
     b"Connection: close\r\n", b"HTTP/1.0", b"ffffffff\r\n", b"-1", b"api-version=", b"GET "]
)  # fmt: skip
END = b"\r\n\r\n"
RESET = b"reset"
STATUS = re.compile(rb"HTTP/1\.1 ([0-9]{3}) ")
LENGTH = re.compile(rb"(?i)\ncontent-length:[ \t]*([0-9]+)")
CHUNKED = re.compile(rb"(?i)\ntransfer-encoding:[ \t]*chunked")
EXAMPLES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Return one or more good requests with a few bytes cut out, put in or doubled."""
    octets = b"".join(draw(st.lists(st.sampled_from(SEEDS), min_size=1, max_size=3)))
    for _ in range(draw(st.integers(1, 5))):
        at = draw(st.integers(0, len(octets)))
        cut = draw(st.integers(0, 8))
        octets = octets[:at] + draw(BITS | st.binary(max_size=4)) + octets[at + cut :]
    return octets


def talk(live: Live, pieces: list[bytes]) -> bytes:
    """Send pieces, then the end; return everything that comes until the server hangs up.

    `RESET` where the connection was reset, which may take an answer with it that had come.
    """
    with live.connect() as raw:
        for piece in pieces:
            raw.send(piece)
        try:
            hang_up(raw.sock)
            while raw.more():  # a server that neither answers nor hangs up raises TimeoutError
                pass
        except ConnectionError:
            return raw.buffer or RESET
        return raw.buffer


def hang_up(sock: socket.socket) -> None:
    """Say that nothing more comes, unless the server has hung up already."""
    try:
        sock.shutdown(socket.SHUT_WR)
    except OSError as error:
        if error.errno != errno.ENOTCONN:
            raise


def check(sent: bytes, octets: bytes) -> None:
    """Check that there is an answer to what was sent, and that nothing was the server's fault.

    A request that never ends may get no answer. 505 says what HTTP/2 is told.
    """
    statuses = STATUS.findall(octets)
    assert statuses or octets == RESET or may_lack(sent), sent
    for status in statuses:
        assert status < b"500" or status == b"505", octets


def may_lack(sent: bytes) -> bool:
    """Whether the first request lacks the end of its head or of its body, or may do so.

    Blank lines before it are nobody's. Where a damaged chunk ends is not worked out here.
    """
    head, end, rest = sent.lstrip(b"\r\n").partition(END)
    lacks = any(int(length) > len(rest) for length in LENGTH.findall(head))
    return not end or lacks or CHUNKED.search(head) is not None


@EXAMPLES
@given(octets=mutated(), cut=st.integers(0, 200))
def test_mutated_requests_are_answered_or_refused(live: Live, octets: bytes, cut: int) -> None:
    """Whatever is done to a good request, the answer is a good one or a refusal. Source: E-8."""
    check(octets, talk(live, [octets[:cut], octets[cut:]]))


@EXAMPLES
@given(octets=st.binary(max_size=400))
def test_random_bytes_are_refused(live: Live, octets: bytes) -> None:
    """Random bytes are refused, with and without an end of the head. Source: E-8."""
    check(octets, talk(live, [octets]))
    check(octets + END, talk(live, [octets + END]))


@EXAMPLES
@given(target=st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=60),
       value=st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=40))  # fmt: skip
def test_odd_targets_and_header_values_are_answered(live: Live, target: str, value: str) -> None:
    """Any target and any header value get an answer. Source: E-8."""
    lines = f"GET /metadata/{target} HTTP/1.1\r\nHost: x\r\nMetadata: true\r\nX: {value}\r\n\r\n"
    octets = talk(live, [lines.encode("latin-1")])
    assert STATUS.match(octets)
    check(lines.encode("latin-1"), octets)


@EXAMPLES
@given(body=st.binary(max_size=300) | mutated())
def test_any_body_is_approved_or_refused(live: Live, body: bytes) -> None:
    """Any body is answered 200 or 400. Source: A-2."""
    octets = talk(live, [request(EVENTS, method="POST", content_length=str(len(body))) + body])
    assert STATUS.findall(octets)[0] in (b"200", b"400")


def test_nothing_of_it_is_left_behind(live: Live) -> None:
    """Afterwards no connection is open and memory has not grown with the requests. Source: E-8."""
    for n in range(500):
        talk(live, [request(f"{EVENTS}&n={n}")])
    before = resident_kib()
    for n in range(1000):
        talk(live, [request(f"{EVENTS}&n={n}", x=f"{n}" * 50)])
    assert resident_kib() - before < 4 * 1024
    until = time.monotonic() + LIMIT_S
    while live.call(lambda: len(live.server.service.connections)):
        assert time.monotonic() < until
    assert live.get().status == 200


def test_slow_and_half_open_clients_stop_nobody(portable: bool) -> None:
    """Clients that say nothing, or half of something, do not delay others. Source: E-8."""
    roomy = with_settings(max_connections_per_client=1000)
    with serving(roomy, portable=portable) as live, contextlib.ExitStack() as stack:
        for n in range(200):
            stack.enter_context(live.connect()).send(request(EVENTS)[: n % 100])
        assert [live.get().status for _ in range(20)] == [200] * 20


@pytest.mark.parametrize("piece", [1, 3, 50])
def test_every_cut_gives_the_same_answers(live: Live, piece: int) -> None:
    """Where the network cuts a stream of requests changes no answer. Source: E-8."""
    octets = b"".join(SEEDS[:5])
    whole = STATUS.findall(talk(live, [octets]))
    assert whole == [b"200", b"200", b"400", b"200", b"200"]
    cut = [octets[at : at + piece] for at in range(0, len(octets), piece)]
    assert STATUS.findall(talk(live, cut)) == whole
