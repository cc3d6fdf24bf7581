"""One HTTP request to a service on this machine or in this cluster.

The request uses no proxy and follows no redirects.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from pathlib import Path

from forewarn.agent.preparations.wait_until import Unanswered
from forewarn.errors import PeerError
from forewarn.http_client import ClientRequest, exchange
from forewarn.urls import shown_reason, shown_url

TIMEOUT_S = 15.0
UNKNOWN_STATUSES = (408, 425, 429, 500, 502, 503, 504)
"""Statuses of a service that is temporarily unable to answer, or of a proxy before it."""

BODY_BYTES_MAX = 16 * 1024 * 1024


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
        request = ClientRequest(method, url, known, body)
        answer = exchange(request, timeout_s=TIMEOUT_S, ca_file=ca_file, bytes_max=BODY_BYTES_MAX)
    except (OSError, http.client.HTTPException, ValueError) as error:
        wrong = isinstance(error, (ValueError, ssl.SSLCertVerificationError))
        kind = CallFailed if wrong else CallUnanswered
        facts = {"method": method, "url": shown_url(url, path=True)}
        raise kind(**facts, reason=shown_reason(error)) from error
    return Called(answer.status, answer.body, headers=dict(answer.headers))


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
