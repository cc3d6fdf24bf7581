"""Our HTTP reader against h11 and httptools: what it reads they read alike, or refuse."""

import random
from collections import Counter

import pytest

from tests.metadata.outside_readers import Reading, of_h11, of_httptools, ours
from tests.metadata.test_fuzz import SEEDS

HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\n"
PIECES = (
    *(b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b"%", b"?", b"&", b"#", b"/", b"\xff", b";"),
    *(b"Host: x\r\n", b"Content-Length: 5\r\n", b"Content-Length: 5\r\nContent-Length: 6\r\n"),
    *(b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding : chunked\r\n", b"X: y\r\n z\r\n"),
    *(b"Connection: close\r\n", b"HTTP/1.0", b"ffffffff\r\n", b"-1", b"+", b"0", b",", b"GET "),
)
#: Refusals of ours of what both of the others read.
STRICTER = {
    "Bad request. The Host header is malformed.",  # RFC 9112, 3.2: repeated or no host at all
    "Bad request. The request target is malformed.",  # a fragment, a half escape
    "Bad request. The query is malformed.",  # a half escape, or no UTF-8
    "Bad request. The body's length is ambiguous.",  # chunked in HTTP/1.0
}
#: Beginnings of what one of the others says of what we read.
LOOSER = (
    "Invalid method encountered",  # llhttp knows a list of methods; here any gets its 405
    "Expected space after method",
    "no request line received",  # h11 passes over no empty line before a request
    "Invalid character in chunk size",  # a space after it
    "Invalid `Transfer-Encoding` header value",  # among trailers, which mean nothing here
)
MESSAGES = 2000


def broken_messages(seed: int) -> list[bytes]:
    """Good requests with a few bytes cut out or put in; always the same for a seed."""
    draw = random.Random(seed)
    found = []
    for _ in range(MESSAGES):
        octets = b"".join(draw.choice(SEEDS) for _ in range(draw.randint(1, 2)))
        for _ in range(draw.randint(0, 4)):
            at, cut = draw.randint(0, len(octets)), draw.choice((0, 0, 0, 1, 2, 8))
            octets = octets[:at] + draw.choice(PIECES) + octets[at + cut :]
        found.append(octets)
    return found


def without_host(reading: Reading) -> tuple[object, ...]:
    """What was read, but for the host, which an absolute target overrides here."""
    fields = [field for field in reading.headers if field[0] != "host"]
    return reading.method, fields, reading.body


def verdict(reading: Reading) -> str:
    """Whether it was read, refused, or is not whole."""
    return "refused" if reading.refusal else "waits" if reading.waits else "read"


def compare(octets: bytes) -> str:
    """Assert that our reading is one of theirs, or a difference that is known."""
    mine, theirs = ours(octets), (of_h11(octets), of_httptools(octets))
    if verdict(mine) == "read":
        for their in theirs:
            if verdict(their) == "read":
                assert without_host(their) == without_host(mine), octets
            else:
                assert their.refusal.startswith(LOOSER), (octets, their)
    elif all(verdict(their) == "read" for their in theirs):
        assert mine.refusal in STRICTER, (octets, mine)
    elif verdict(mine) == "waits" and "read" in map(verdict, theirs):
        assert b"\n\n" in octets or b"\n\r\n" in octets, octets  # h11 ends lines at a bare LF
    return verdict(mine)


@pytest.mark.parametrize("seed", [1, 2])
def test_broken_messages_are_read_alike_or_refused(seed: int) -> None:
    """No bytes mean one request to us and another one to h11 or llhttp. Source: E-8."""
    found = Counter(compare(octets) for octets in broken_messages(seed))
    assert min(found["read"], found["refused"], found["waits"]) > MESSAGES // 40, found


@pytest.mark.parametrize(
    ("octets", "mine", "h11", "llhttp"),
    [
        pytest.param(HEAD + b"Host: y\r\n\r\n", "refused", "refused", "read", id="two hosts"),
        pytest.param(
            HEAD.replace(b": x", b": a#b") + b"\r\n", "refused", "read", "read", id="no host"
        ),
        pytest.param(b"GET /#a HTTP/1.1\r\nHost: x\r\n\r\n", "refused", "read", "read", id="#"),
        pytest.param(b"GET /%4 HTTP/1.1\r\nHost: x\r\n\r\n", "refused", "read", "read", id="half"),
        pytest.param(HEAD + b"X: y\r\n z\r\n\r\n", "refused", "read", "refused", id="folded"),
        pytest.param(HEAD + b"X : y\r\n\r\n", "refused", "refused", "refused", id="space"),
        pytest.param(HEAD[:-2] + b"\n\n", "waits", "read", "refused", id="bare LF"),
        pytest.param(
            POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "refused",
            "read",
            "refused",
            id="two lengths",
        ),
        pytest.param(
            POST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\nx",
            "refused",
            "read",
            "refused",
            id="one length twice",
        ),
        pytest.param(
            b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "refused",
            "read",
            "read",
            id="chunked in 1.0",
        ),
        pytest.param(b"\r\n" + HEAD + b"\r\n", "read", "refused", "read", id="empty line first"),
        pytest.param(HEAD.replace(b"GET", b"FOO") + b"\r\n", "read", "read", "refused", id="FOO"),
    ],
)
def test_known_difference_is_as_it_was(octets: bytes, mine: str, h11: str, llhttp: str) -> None:
    """Where the readers differ, ours is the strict one, or what it reads is harmless."""
    found = [verdict(read(octets)) for read in (ours, of_h11, of_httptools)]
    assert found == [mine, h11, llhttp]
