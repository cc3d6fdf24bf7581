"""The first request in some bytes as three readers have it: ours, h11 and httptools (llhttp)."""

from dataclasses import dataclass, field

import h11
import httptools

from forewarn_base.errors import CallerError
from forewarn_metadata.endpoint.http.request import HEAD_END, ChunkedBody, parse_head


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reader makes of some bytes."""

    #: Why it refuses them; empty if it does not.
    refusal: str = ""
    #: Whether it wants more of them; then the rest says nothing.
    waits: bool = False
    method: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


def ours(octets: bytes) -> Reading:
    """Read with our own reader."""
    while octets.startswith(b"\r\n"):
        octets = octets[2:]
    head, end, body = octets.partition(HEAD_END)
    if not end:
        return Reading(waits=True)
    try:
        request = parse_head(head)
        if request.length >= 0:
            found = (body[: request.length], 0) if len(body) >= request.length else None
        else:
            found = ChunkedBody().read(body)
    except CallerError as refusal:
        return Reading(refusal=str(refusal))
    if found is None:
        return Reading(waits=True)
    return Reading(method=request.method, headers=_sorted(request.headers.items()), body=found[0])


def of_h11(octets: bytes) -> Reading:
    """Read with h11."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    connection.receive_data(octets)
    asked: h11.Request | None = None
    body = b""
    try:
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Request):
                asked = event
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                assert asked is not None
                fields = [(name.decode(), value.decode("latin-1")) for name, value in asked.headers]
                return Reading(method=asked.method.decode(), headers=_joined(fields), body=body)
            else:
                return Reading(waits=True)
    except h11.RemoteProtocolError as refusal:
        return Reading(refusal=str(refusal))


@dataclass(slots=True)
class _Llhttp:
    """Takes what httptools calls back with, of the first request."""

    fields: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    done: bool = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        if not self.done:
            self.fields.append((name.decode("latin-1"), value.decode("latin-1")))

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        if not self.done:
            self.body += body

    def on_message_complete(self) -> None:
        """Take nothing more."""
        self.done = True


def of_httptools(octets: bytes) -> Reading:
    """Read with httptools, which uses llhttp, as Node does."""
    taken = _Llhttp()
    parser = httptools.HttpRequestParser(taken)
    method = ""
    refusal = ""
    try:
        for at in range(len(octets)):
            parser.feed_data(octets[at : at + 1])
            if taken.done:
                break
    except httptools.HttpParserUpgrade:
        taken.done = True
    except httptools.HttpParserError as error:
        refusal = str(error) or type(error).__name__
    if refusal and not taken.done:
        return Reading(refusal=refusal)
    if not taken.done:
        return Reading(waits=True)
    method = parser.get_method().decode()
    return Reading(method=method, headers=_joined(taken.fields), body=taken.body)


def _joined(fields: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    headers: dict[str, str] = {}
    for name, value in fields:
        key, text = name.lower(), value.strip(" \t")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return _sorted(headers.items())


def _sorted(items: object) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(items))  # type: ignore[call-overload]
