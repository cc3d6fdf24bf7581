"""Readers of connections need time in proportion to the bytes, also if they arrive one by one."""

from collections.abc import Callable

import pytest

from forewarn.agent.sdk.http import ResponseReader
from forewarn_base.settings import MetadataSettings
from forewarn_metadata.endpoint.http.request import BODY_BYTES_MAX, HEAD_BYTES_MAX
from forewarn_metadata.endpoint.http.request_reader import RequestReader
from forewarn_metadata.endpoint.responder import Responder
from tests.hostile.growth import GROWTH_MAX, growth

pytestmark = pytest.mark.slow

HEAD = b"GET /metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\r\nHost: x\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\n"
REQUESTS: dict[str, Callable[[int], bytes]] = {
    "no head": lambda size: b"G" * size,
    "long header": lambda size: HEAD + b"X: " + b"a" * size,
    "line ends": lambda size: HEAD + b"X: " + b"\r" * size,
    "empty lines": lambda size: b"\r\n" * (size // 2),
    "headers": lambda size: HEAD + b"X: a\r\n" * (size // 6),
    "requests": lambda size: (HEAD + b"\r\n") * (size // len(HEAD)),
    "approvals": lambda size: (POST + b"Content-Length: 2\r\n\r\n{}") * (size // len(POST)),
    "body": lambda size: POST + b"Content-Length: %d\r\n\r\n" % (2 * size) + b"a" * size,
    "chunks": lambda size: CHUNKED + b"1\r\na\r\n" * (size // 6),
    "long chunk": lambda size: CHUNKED + b"%x\r\n" % (2 * size) + b"a" * size,
    "trailers": lambda size: CHUNKED + b"0\r\n" + b"a: b\r\n" * (size // 6),
}
ANSWERS: dict[str, Callable[[int], bytes]] = {
    "long header": lambda size: ANSWER + b"X: " + b"a" * size,
    "continue": lambda size: b"HTTP/1.1 100 Continue\r\n\r\n" * (size // 25),
    "body": lambda size: ANSWER + b"Content-Length: %d\r\n\r\n" % size + b"a" * size,
    "body to the end": lambda size: ANSWER + b"\r\n" + b"a" * size,
    "chunks": lambda size: (
        ANSWER + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * (size // 6)
    ),
    "trailers": lambda size: (
        ANSWER + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * (size // 6)
    ),
}


@pytest.mark.parametrize("piece", [1, 1000])
@pytest.mark.parametrize("name", REQUESTS)
def test_requests_are_read_in_linear_time(name: str, piece: int) -> None:
    """A head or body that arrives byte by byte is searched once."""
    responder = Responder(MetadataSettings())

    def read(octets: object) -> None:
        assert isinstance(octets, bytes)
        reader = RequestReader()
        for at in range(0, len(octets), piece):
            reader.push(octets[at : at + piece])
            while (pending := reader.pending or reader.head(responder)) and reader.body(pending):
                pass

    size = (
        HEAD_BYTES_MAX // 2 - len(HEAD) if "line" in name or "head" in name else BODY_BYTES_MAX // 2
    )
    assert growth(read, REQUESTS[name], size) <= GROWTH_MAX


@pytest.mark.parametrize("piece", [1, 1000])
@pytest.mark.parametrize("name", ANSWERS)
def test_answers_are_read_in_linear_time(name: str, piece: int) -> None:
    """A client reads each byte of its service once."""

    def read(octets: object) -> None:
        assert isinstance(octets, bytes)
        reader = ResponseReader()
        for at in range(0, len(octets), piece):
            reader.feed(octets[at : at + piece])

    assert growth(read, ANSWERS[name], 32 * 1024) <= GROWTH_MAX
