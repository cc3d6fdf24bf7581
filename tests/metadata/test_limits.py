"""Limits of a request's size, to the byte: what is just allowed is served. Sections E and A."""

from http import HTTPStatus

import pytest

from forewarn_base.errors import CallerError
from forewarn_metadata.endpoint.http.request import ChunkedBody, check_unfinished, parse_head
from forewarn_metadata.endpoint.http.request_reader import PendingRequest, RequestReader
from forewarn_metadata.endpoint.http.response import Response, head_of
from forewarn_metadata.endpoint.responder import Responder
from tests.metadata.live import EVENTS, SETTINGS, request

HEAD = request(EVENTS).removesuffix(b"\r\n\r\n")


def status_of(error: pytest.ExceptionInfo[CallerError]) -> int:
    """The status of a refusal."""
    return error.value.status


def padded(size: int) -> bytes:
    """A head of this many bytes."""
    rest = size - len(HEAD) - len("\r\nA: ")
    return HEAD + b"\r\nA: " + b"x" * rest


def test_head_has_at_most_16_kib() -> None:
    """One byte more is refused, whether its end is here or not. Source: E-8."""
    assert parse_head(padded(16_384)).headers["a"].startswith("x")
    check_unfinished(padded(16_384))
    for read in (parse_head, check_unfinished):
        with pytest.raises(CallerError) as refused:
            read(padded(16_385))
        assert status_of(refused) == 431


def test_head_has_at_most_100_headers() -> None:
    """One more is refused. Source: E-8."""
    known = HEAD.count(b"\r\n")
    more = b"".join(b"\r\nA%d: b" % n for n in range(100 - known))
    assert len(parse_head(HEAD + more).headers) == 100
    with pytest.raises(CallerError) as refused:
        parse_head(HEAD + more + b"\r\nLast: b")
    assert status_of(refused) == 431


@pytest.mark.parametrize(
    ("length", "status"),
    [("65536", 0), ("65537", 413), ("0" * 30 + "65536", 0), ("9" * 18, 413), ("9" * 19, 413)],
)
def test_body_of_a_length_has_at_most_64_kib(length: str, status: int) -> None:
    """What is announced beyond that is not waited for. Source: A-5."""
    head = HEAD + f"\r\nContent-Length: {length}".encode()
    if not status:
        assert parse_head(head).length == 65_536
        return
    with pytest.raises(CallerError) as refused:
        parse_head(head)
    assert status_of(refused) == status


def chunk(octets: bytes, extension: bytes = b"") -> bytes:
    """One chunk."""
    return b"%x%b\r\n%b\r\n" % (len(octets), extension, octets)


END = b"0\r\n\r\n"


@pytest.mark.parametrize(
    ("octets", "status"),
    [
        (chunk(b"x" * 65_536), 0),
        (chunk(b"x" * 65_535) + chunk(b"y"), 0),
        (chunk(b"x" * 65_535) + chunk(b"yy"), 413),
        (chunk(b"x" * 65_537), 413),
        (chunk(b"x") * 1024, 0),
        (chunk(b"x") * 1025, 400),
        (chunk(b"x", b";" + b"e" * 252), 0),
        (chunk(b"x", b";" + b"e" * 255), 400),
        (b"00000001\r\nx\r\n", 0),
        (b"000000001\r\nx\r\n", 400),
        (b"1 \t;a=b\r\nx\r\n", 0),
        (b"1\r\nxy\r\n", 400),
    ],
)
def test_chunks_have_their_limits(octets: bytes, status: int) -> None:
    """In bytes, number and framing; the last chunk ends the body. Source: A-5, E-8."""
    whole = octets + END
    if not status:
        found = ChunkedBody().read(whole + b"GET")
        assert found is not None
        assert found[1] == len(whole)
        assert len(found[0]) == sum(octets.count(each) for each in (b"x", b"y"))
        return
    with pytest.raises(CallerError) as refused:
        ChunkedBody().read(whole)
    assert status_of(refused) == status


@pytest.mark.parametrize(("size", "refused"), [(16_000, False), (16_400, True)])
def test_trailers_have_the_limit_of_a_head(size: int, refused: bool) -> None:
    """They mean nothing, and are passed over. Source: E-8."""
    whole = chunk(b"x") + b"0\r\nA: " + b"t" * size + b"\r\n\r\n"
    if refused:
        with pytest.raises(CallerError) as error:
            ChunkedBody().read(whole)
        assert status_of(error) == 431
    else:
        assert ChunkedBody().read(whole) == (b"x", len(whole))


def test_chunks_that_arrive_byte_by_byte_are_the_same() -> None:
    """However the network cuts them, and with trailers. Source: E-8."""
    whole = chunk(b"ab") + chunk(b"cde", b";n=1") + b"0\r\nA: b\r\nC: d\r\n\r\n"
    body = ChunkedBody()
    for size in range(len(whole)):
        assert body.read(whole[:size]) is None
    assert body.read(whole + b"rest") == (b"abcde", len(whole))


def read_all(reader: RequestReader, responder: Responder) -> list[tuple[str, bytes]]:
    """Every request that is here, by path and body."""
    found: list[tuple[str, bytes]] = []
    while True:
        asked: PendingRequest | None = reader.pending or reader.head(responder)
        if asked is None:
            return found
        if asked.request.length and not reader.body(asked):
            return found
        found.append((asked.request.path, asked.body))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 1000])
def test_requests_are_read_in_order_however_they_are_cut(size: int) -> None:
    """With and without bodies, and empty lines between them. Source: E-8."""
    octets = b"".join(
        (
            b"\r\n",
            request("/one"),
            request("/two", method="POST", body=b"body of two"),
            b"\r\n\r\n",
            request("/three", method="POST", transfer_encoding="chunked") + chunk(b"3") + END,
            request("/four"),
        )
    )
    reader, responder, found = RequestReader(), Responder(SETTINGS), []
    for at in range(0, len(octets), size):
        reader.push(octets[at : at + size])
        found += read_all(reader, responder)
        assert reader.begun is (len(reader) > 0 or reader.pending is not None)
    assert found == [("/one", b""), ("/two", b"body of two"), ("/three", b"3"), ("/four", b"")]
    assert (len(reader), reader.begun) == (0, False)


def test_only_a_client_that_sent_no_body_waits_for_continue() -> None:
    """It is told once to go on; a body that came already needs no word. Source: E-8."""
    head = request("/", method="POST", content_length="2", expect="100-continue")
    for body, due in ((b"", True), (b"{", False)):
        reader, responder = RequestReader(), Responder(SETTINGS)
        reader.push(head + body)
        assert read_all(reader, responder) == []
        assert reader.continue_due is due
        reader.push(b"{}"[len(body) :])
        assert read_all(reader, responder) == [("/", b"{}")]
        assert not reader.continue_due


def test_requests_are_remembered_within_limits() -> None:
    """At most 1,024 of at most 2 KiB, none with a body; the oldest goes first. Source: E-8."""
    responder = Responder(SETTINGS)
    size = len(request("/?n="))
    small, large = (request("/?n=" + "x" * (each - size)) for each in (2048, 2049))
    for raw in (small, large, request("/", method="POST", body=b"x").removesuffix(b"x")):
        responder.read(raw)
    assert [*responder.known] == [small]
    for n in range(1023):
        responder.read(request(f"/?{n}"))
    assert (len(responder.known), small in responder.known) == (1024, True)
    responder.read(request("/last"))
    assert (len(responder.known), small in responder.known) == (1024, False)


STATUSES = (200, 304, 400, 404, 405, 408, 410, 413, 417, 429, 431, 500, 503, 505)


@pytest.mark.parametrize("status", STATUSES)
def test_status_has_its_reason(status: int) -> None:
    """Whatever is answered, people who look at the line see the usual words. Source: E-7."""
    line = head_of(Response(status), "x").split(b"\r\n")[0].decode()
    reason = "Content Too Large" if status == 413 else HTTPStatus(status).phrase
    assert line == f"HTTP/1.1 {status} {reason}"
