"""One HTTP request to a service on this machine or in this cluster.

The request uses no proxy and follows no redirects. `http.client` would cost 3 MiB, so this is the
HTTP of the agent's SDK, and TLS where the URL says so.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from urllib.parse import urlsplit

from forewarn.agent.preparations.wait_until import Unanswered
from forewarn.agent.sdk.http import (
    Endpoint,
    HttpResponse,
    ResponseInvalid,
    ResponseReader,
    request_bytes,
)
from forewarn.agent.sdk.sockets import CHUNK_BYTES, connect
from forewarn_base.clock import SystemClock
from forewarn_base.errors import PeerError
from forewarn_base.host_port import host_of_url
from forewarn_base.urls import MALFORMED, shown_reason, shown_url

TIMEOUT_S = 15.0
#: Statuses of a service that is temporarily unable to answer, or of a proxy before it.
UNKNOWN_STATUSES = (408, 425, 429, 500, 502, 503, 504)

BODY_BYTES_MAX = 16 * 1024 * 1024
LABEL_MAX = 63  # characters of a part of a name in the DNS


class CallFailed(PeerError):
    """A preparation's request to a service failed."""

    code = "call-failed"
    message = "{method} {url}: {reason}."
    advice = "Check the service and its log."


class CallUnanswered(CallFailed, Unanswered):
    """A service did not answer a request, or is temporarily unable to answer it."""

    code = "call-unanswered"
    advice = "Check the service; the preparation has asked it until its deadline."


class Called:
    """An HTTP answer: status, headers with names in lower case, body."""

    def __init__(self, status: int, body: bytes, *, headers: dict[str, str]) -> None:
        self.status = status
        self.body = body
        self.headers = headers

    def form(self) -> dict[str, object]:
        """Return the body as a JSON object; empty if the body is not an object."""
        try:
            form = json.loads(self.body)
        except ValueError:
            return {}
        return form if isinstance(form, dict) else {"": form}


def call(
    method: str,
    url: str,
    *,
    form: object = None,
    headers: dict[str, str] | None = None,
    ca_file: str = "",
) -> Called:
    """Send a request, with `form` as its JSON body, and return the answer.

    Raises:
        CallUnanswered: the service does not answer.
        CallFailed: the request cannot be sent.
    """
    body = b"" if form is None else json.dumps(form).encode()
    known = {"Accept": "application/json", "Connection": "close", **(headers or {})}
    if form is not None:
        known.setdefault("Content-Type", "application/json")
    try:
        response = _exchange(method, url, body, headers=known, ca_file=ca_file)
    except (OSError, ResponseInvalid, ValueError) as error:
        # An untrusted certificate is a ValueError, too.
        kind = CallFailed if isinstance(error, ValueError) else CallUnanswered
        facts = {"method": method, "url": shown_url(url, path=True)}
        reason = error.facts["reason"] if isinstance(error, ResponseInvalid) else None
        raise kind(**facts, reason=reason or shown_reason(error)) from error
    return Called(response.status, response.body, headers=dict(response.headers))


def _exchange(
    method: str, url: str, body: bytes, *, headers: dict[str, str], ca_file: str
) -> HttpResponse:
    """Send a request on a new connection, and read its answer, within `TIMEOUT_S` together.

    Raises:
        OSError: the service does not answer in time.
        ResponseInvalid: the answer is malformed.
        ValueError: the URL or a header is malformed, or the certificate is not trusted.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise OSError("the scheme must be http or https")
    tls = parts.scheme == "https"
    target = Endpoint(host_of_url(parts.hostname), parts.port or (443 if tls else 80))
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    texts = (parts.netloc, path, *headers, *headers.values())
    plain = " " not in path and all(text.isascii() and text.isprintable() for text in texts)
    if not plain or any(len(label) > LABEL_MAX for label in target.host.split(".")):
        raise ValueError(MALFORMED)
    request = request_bytes(method, target, path=path, headers=tuple(headers.items()), body=body)
    clock, reader = SystemClock(), ResponseReader(method, body_bytes_max=BODY_BYTES_MAX)
    until_ms = clock.elapsed_ms() + int(TIMEOUT_S * 1000)
    connection = connect(target, TIMEOUT_S)
    try:
        if tls:
            import ssl  # noqa: PLC0415  4 MiB, only where it is wanted

            context = ssl.create_default_context(cafile=ca_file or None)
            name = target.host.encode()  # text would load the IDNA codec and use 1 MiB
            connection = context.wrap_socket(connection, server_hostname=name)
        connection.sendall(request)
        while reader.answer is None:
            left_s = (until_ms - clock.elapsed_ms()) / 1000
            if left_s <= 0:  # a server that sends single bytes keeps each read alive
                raise TimeoutError(f"the answer takes more than {TIMEOUT_S:g} s")
            connection.settimeout(left_s)
            reader.feed(connection.recv(CHUNK_BYTES))
    finally:
        connection.close()
    return reader.answer


def expect(called: Called, method: str, *, url: str, statuses: tuple[int, ...]) -> Called:
    """Return the answer if its status is in `statuses`.

    Raises:
        CallUnanswered: the service is temporarily unable to answer.
        CallFailed: the answer has another status.
    """
    if called.status in statuses:
        return called
    text = called.body[:300].decode("utf-8", "replace").strip()
    kind = CallUnanswered if called.status in UNKNOWN_STATUSES else CallFailed
    facts = {"method": method, "url": shown_url(url, path=True)}
    raise kind(**facts, reason=f"status {called.status} {text}")


def secret(path: object) -> str:
    """Return the content of a secret file; empty if no file is set."""
    return Path(str(path)).read_text("utf-8").strip() if path else ""


def local_host() -> str:
    """Return this machine's host name, the usual name of a cluster node."""
    return socket.gethostname()
