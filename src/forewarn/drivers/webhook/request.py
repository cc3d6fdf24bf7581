"""One signed request to the far side: bounded, with a time limit, and tried again for a while."""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
import threading
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from forewarn.clock import SystemClock
from forewarn.drivers.webhook.signing import REQUEST, signed
from forewarn.errors import PeerError
from forewarn.urls import shown_reason, shown_url
from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Longest answer, in bytes: a topology is the largest.
ANSWER_BYTES_MAX = 4 * 1024 * 1024
#: Times a request is sent before the call fails.
TRIES = 3
#: Statuses that may be otherwise a little later.
LATER = frozenset({408, 425, 429, 500, 502, 503, 504})


class WebhookFailed(PeerError):
    """The far side of a webhook cannot be reached, or has refused a request."""

    code = "driver-webhook-failed"
    message = "{url} {problem} ({verb} of {task})."
    advice = "Look at the far side; then retry, complete or fail the operation."


@value
class Endpoint:
    """Where requests go, and how."""

    driver: str
    url: str
    secret: bytes
    #: How long each step until a request is sent may take, and then its whole answer, in seconds.
    timeout_s: float
    #: How long until a request is sent again, in seconds; doubled each time.
    backoff_s: float
    #: Certificates that are trusted; empty: the system's.
    ca_file: str = ""


def is_protected(url: str) -> bool:
    """Whether nobody on the way can read what is sent: TLS, or this machine itself."""
    parts = urlsplit(shown_url(url))
    if parts.scheme == "https":
        return bool(parts.hostname)
    if parts.scheme != "http" or not parts.hostname:
        return False
    try:
        return ipaddress.ip_address(parts.hostname).is_loopback
    except ValueError:
        return parts.hostname == "localhost"


def send(endpoint: Endpoint, verb: str, task: str, *, body: bytes) -> bytes:
    """Send a request, a few times if need be; return its answer.

    Raises:
        WebhookFailed: it was refused, or never answered well.
    """
    problem = ""
    for attempt in range(TRIES):
        if attempt:
            threading.Event().wait(endpoint.backoff_s * 2 ** (attempt - 1))
        try:
            status, answer = _exchange(endpoint, f"{verb} {task}", body)
        except (OSError, http.client.HTTPException) as error:
            problem = f"cannot be reached: {error}"
            continue
        if len(answer) > ANSWER_BYTES_MAX:
            problem = f"answered more than {ANSWER_BYTES_MAX} bytes"
            break
        if 200 <= status < 300:
            return answer
        said = answer[:200].decode("utf-8", "replace").strip()
        problem = f"answered {status}{said and ': '}{said}"
        if status not in LATER:
            break
    raise WebhookFailed(url=shown_url(endpoint.url), problem=problem, verb=verb, task=task)


def _exchange(endpoint: Endpoint, key: str, body: bytes) -> tuple[int, bytes]:
    headers = {
        "content-type": "application/json",
        "idempotency-key": key,
        **signed(
            endpoint.secret,
            REQUEST,
            endpoint.driver,
            time_s=SystemClock().now_ms() // 1000,
            body=body,
        ),
    }
    request = HttpRequest("POST", endpoint.url, headers, body)
    response = exchange(request, timeout_s=endpoint.timeout_s, ca_file=endpoint.ca_file)
    return response.status, response.body


@value
class HttpRequest:
    """One request, ready to be sent."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes = b""


@value
class HttpResponse:
    """What came back; a body that is too long is cut off after one byte more than the limit."""

    status: int
    #: By their names in lower case.
    headers: Mapping[str, str]
    body: bytes


def exchange(
    request: HttpRequest,
    *,
    timeout_s: float,
    ca_file: str = "",
    bytes_max: int = ANSWER_BYTES_MAX,
) -> HttpResponse:
    """Send one request on a connection of its own; never follows a redirect.

    Args:
        request: what is sent.
        timeout_s: how long each step until it is sent may take, and then the whole answer.
        ca_file: certificates that are trusted; empty: the system's.
        bytes_max: the longest body that is read whole.

    Raises:
        OSError, HTTPException: there was no answer, or none that is whole in time.
    """
    connection = open_request(request, timeout_s=timeout_s, ca_file=ca_file)
    line, late = connection.sock, threading.Event()

    def give_up() -> None:
        late.set()
        with suppress(OSError):  # it has ended already
            socket.socket.shutdown(line, socket.SHUT_RDWR)

    # A far side that sends a byte now and then keeps each read alive: the whole has a limit.
    timer = threading.Timer(timeout_s, give_up)
    timer.daemon = True
    timer.start()
    try:
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return HttpResponse(response.status, headers, response.read(bytes_max + 1))
    finally:
        timer.cancel()
        connection.close()
        if late.is_set():
            raise TimeoutError(f"the answer takes more than {timeout_s:g} s")


def open_request(
    request: HttpRequest, *, timeout_s: float, ca_file: str = ""
) -> http.client.HTTPConnection:
    """Send one request on a connection of its own, whose answer the caller reads and closes.

    Raises:
        OSError, HTTPException: it could not be sent.
    """
    parts = urlsplit(request.url)
    host = parts.hostname or ""
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context(cafile=ca_file or None)
        connection = http.client.HTTPSConnection(
            host, parts.port, timeout=timeout_s, context=context
        )
    else:
        connection = http.client.HTTPConnection(host, parts.port, timeout=timeout_s)
    path = parts.path or "/"
    target = f"{path}?{parts.query}" if parts.query else path
    try:
        connection.request(request.method, target, request.body, dict(request.headers))
    except (ValueError, http.client.InvalidURL) as error:
        connection.close()
        if isinstance(error, OSError):
            raise
        raise http.client.HTTPException(shown_reason(error)) from None
    except BaseException:
        connection.close()
        raise
    return connection
