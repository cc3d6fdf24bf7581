"""The wire between jobs and the agent: one JSON object per line, over a Unix or a TCP socket.

Over a Unix socket, the kernel names the sender's user. Over TCP, the agent sends a nonce, and the
first line of a connection proves with it that the sender has the agent's token.
"""

from __future__ import annotations

import json
import socket

from forewarn_base.host_port import host_and_port

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from collections.abc import Mapping

LINE_BYTES_MAX = 8192
SILENT_MS = 15_000  # time after which TCP ends a connection without an answer
KEEPALIVE_S = 5


class LineInvalid(Exception):
    """The other side sent a line that is too long or is not a JSON object."""


class LineReader:
    """Splits received bytes into messages; its time is linear in the bytes."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._bytes = 0

    def feed(self, data: bytes) -> list[dict[str, object]]:
        """Return the messages that are complete.

        Raises:
            LineInvalid: a line is too long, or is not a JSON object.
        """
        *ends, rest = data.split(b"\n")
        messages = []
        for end in ends:
            messages.append(self._message(b"".join((*self._parts, end))))
            self._parts, self._bytes = [], 0
        if rest:
            self._parts.append(rest)
            self._bytes += len(rest)
        if self._bytes > LINE_BYTES_MAX:
            raise LineInvalid(f"a line has more than {LINE_BYTES_MAX} bytes")
        return messages

    def _message(self, line: bytes) -> dict[str, object]:
        if len(line) > LINE_BYTES_MAX:
            raise LineInvalid(f"a line has more than {LINE_BYTES_MAX} bytes")
        try:
            form = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise LineInvalid("a line is not JSON") from error
        if not isinstance(form, dict):
            raise LineInvalid("a line is not a JSON object")
        return form


def line_of(message: Mapping[str, object]) -> bytes:
    """Return a message as a line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def is_path(address: str) -> bool:
    """Return whether an address is the path of a Unix socket; otherwise it is `ADDRESS:PORT`."""
    return "/" in address


def proof(token: str, nonce: str) -> str:
    """Return the proof that the sender of a nonce's answer knows the token."""
    import hashlib  # noqa: PLC0415  loads OpenSSL, 3 MiB, which a Unix socket does not need
    import hmac  # noqa: PLC0415  the same

    return hmac.new(token.encode(), nonce.encode(), hashlib.sha256).hexdigest()


def is_proof(given: object, token: str, nonce: str) -> bool:
    """Return whether a text is the proof for a nonce, in a time that does not depend on it."""
    import hmac  # noqa: PLC0415  the same

    return hmac.compare_digest(str(given).encode(), proof(token, nonce).encode())


def connect(address: str, *, timeout_s: float) -> socket.socket:
    """Return a connection to an agent's job socket.

    Raises:
        OSError: nobody answers.
        ValueError: the address is malformed.
    """
    if is_path(address):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout_s)
            connection.connect(address)
        except BaseException:
            connection.close()
            raise
        return connection
    connection = socket.create_connection(host_and_port(address), timeout_s)
    end_when_silent(connection)
    return connection


def end_when_silent(connection: socket.socket) -> None:
    """Make TCP end a connection whose other side has vanished."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, number in (
        ("TCP_KEEPIDLE", KEEPALIVE_S),
        ("TCP_KEEPINTVL", KEEPALIVE_S),
        ("TCP_USER_TIMEOUT", SILENT_MS),
    ):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), number)
