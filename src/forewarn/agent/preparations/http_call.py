"""One HTTP request to a service on this machine or in this cluster.

The request uses no proxy and follows no redirects.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from forewarn.errors import PeerError
from forewarn.urls import shown_reason, shown_url

TIMEOUT_S = 15.0
BODY_BYTES_MAX = 16 * 1024 * 1024


class CallFailed(PeerError):
    """A preparation's request to a service failed."""

    code = "call-failed"
    message = "{method} {url}: {reason}."
    advice = "Check the service and its log."


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
        CallFailed: the service does not answer.
    """
    parts = urlsplit(url)
    body = None if form is None else json.dumps(form).encode()
    known = {"Accept": "application/json", "Connection": "close", **(headers or {})}
    if body is not None:
        known.setdefault("Content-Type", "application/json")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection: http.client.HTTPConnection
    try:
        connection = _connection(url, ca_file)
        connection.request(method, path, body, known)
        answer = connection.getresponse()
        payload = answer.read(BODY_BYTES_MAX)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise CallFailed(
            method=method, url=shown_url(url, path=True), reason=shown_reason(error)
        ) from error
    connection.close()
    answered = {name.lower(): text for name, text in answer.getheaders()}
    return Called(answer.status, payload, headers=answered)


def expect(called: Called, method: str, *, url: str, statuses: tuple[int, ...]) -> Called:
    """Return the answer if its status is in `statuses`.

    Raises:
        CallFailed: the answer has another status.
    """
    if called.status not in statuses:
        text = called.body[:300].decode("utf-8", "replace").strip()
        raise CallFailed(
            method=method, url=shown_url(url, path=True), reason=f"status {called.status} {text}"
        )
    return called


def secret(path: object) -> str:
    """Return the content of a secret file; empty if no file is set."""
    return Path(str(path)).read_text("utf-8").strip() if path else ""


def _connection(url: str, ca_file: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    if parts.scheme == "https":
        trust = ssl.create_default_context(cafile=ca_file or None)
        return http.client.HTTPSConnection(
            parts.hostname or "", parts.port, timeout=TIMEOUT_S, context=trust
        )
    if parts.scheme != "http" or not parts.hostname:
        raise OSError("the scheme must be http or https")
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT_S)


def local_host() -> str:
    """Return this machine's host name, the usual name of a cluster node."""
    return socket.gethostname()
