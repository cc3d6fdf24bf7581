"""Encodes HTTP answers."""

from __future__ import annotations

import json

from forewarn_base.values import value

JSON = "application/json; charset=utf-8"
TEXT = "text/plain; charset=utf-8"

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_REASONS = {
    200: "OK",
    304: "Not Modified",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    410: "Gone",
    413: "Content Too Large",
    417: "Expectation Failed",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}


@value
class Response:
    """One answer without date and connection headers."""

    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    #: Further headers of the answer, in order.
    headers: tuple[tuple[str, str], ...] = ()


def refusal(status: int, error: str, *headers: tuple[str, str]) -> Response:
    """Return an answer whose body is `{"error": error}`."""
    return Response(status, compact({"error": error}), JSON, headers)


def compact(form: object) -> bytes:
    """Return one compact line of JSON in ASCII. Source: E-7."""
    return json.dumps(form, separators=(",", ":")).encode("ascii")


def head_of(response: Response, server: str) -> bytes:
    """Return the constant part of an answer's head, without its end; see `head`."""
    return head(
        response.status,
        len(response.body),
        server=server,
        content_type=response.content_type,
        headers=response.headers,
    )


def head(
    status: int,
    length: int,
    *,
    server: str,
    content_type: str = JSON,
    headers: tuple[tuple[str, str], ...] = (),
) -> bytes:
    """Return the constant part of the head of an answer with a body of this length.

    The part ends in `Date: `, before the date and one of the endings below. A 304 has neither
    content type nor length, because both would describe the document.
    """
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Unknown')}"]
    if status != 304:
        lines.append(f"Content-Type: {content_type}")
        lines.append(f"Content-Length: {length}")
    lines.extend([f"{name}: {value}" for name, value in headers])
    lines.append(f"Server: {server}")
    return ("\r\n".join(lines) + "\r\nDate: ").encode("latin-1")


STAYS = b"\r\n\r\n"
CLOSES = b"\r\nConnection: close\r\n\r\n"
#: Ending of the head for an HTTP/1.0 client that asked to keep the connection.
STAYS_OLD = b"\r\nConnection: keep-alive\r\n\r\n"
