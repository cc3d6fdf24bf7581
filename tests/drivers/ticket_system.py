"""A ticket system as people have them: it opens a ticket for a task, and calls back when it closes.

It knows nothing of Forewarn's code: its checks of signatures are its own.
"""

import hashlib
import hmac
import json
import ssl
import time
from collections import Counter
from collections.abc import Mapping

from tests.serving import HttpServer, Request

SECRET = b"a secret of thirty-two bytes 012"


class TicketSystem:
    """The far side of a webhook, on a port of its own."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        """Serve until closed; over TLS where a context is given."""
        self.opened: Counter[str] = Counter()
        self.seen: set[str] = set()
        self.aborted: set[str] = set()
        self.newest = 0
        self.requests: list[dict[str, object]] = []
        #: Statuses that the next requests are answered with instead.
        self.troubles: list[int] = []
        #: What requests for progress are answered with.
        self.progress: dict[str, object] = {"done": True}
        self._server = HttpServer(self._respond, tls=tls)
        self.close = self._server.close
        self.url = f"{self._server.url}/tickets"

    def _respond(self, request: Request) -> tuple[int, bytes, dict[str, str]]:
        return *self.answer(request.headers, request.body), {}

    def answer(self, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """Answer one request; one that meets trouble may have been taken all the same."""
        answer = self._answer(headers, body)
        return (self.troubles.pop(0), b"later") if self.troubles else answer

    def _answer(self, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        signed = f"forewarn-request:{headers['forewarn-driver']}:{headers['forewarn-timestamp']}:"
        right = hmac.new(SECRET, signed.encode() + body, hashlib.sha256).hexdigest()
        if headers["forewarn-signature"] != f"sha256={right}":
            return 401, b"bad signature"
        if abs(time.time() - int(headers["forewarn-timestamp"])) > 300:
            return 401, b"too old"
        task = json.loads(body)
        self.requests.append(task)
        if task["verb"] == "discover":
            return 200, b'{"hosts": {"h1": {}}}'
        if task["verb"] == "progress":
            return 200, json.dumps(self.progress).encode()
        if task["generation"] < self.newest:
            return 409, b"superseded"
        self.newest = task["generation"]
        if task["verb"] == "abort":
            self.aborted.add(task["operation"])
        elif task["operation"] in self.aborted:
            return 409, b"aborted"
        elif headers["idempotency-key"] not in self.seen:
            self.seen.add(headers["idempotency-key"])
            self.opened[task["task"]] += 1
        return 200, b"{}"

    def report(
        self, driver: str, report: dict[str, object], *, age_s: int = 0, secret: bytes = SECRET
    ) -> tuple[dict[str, str], bytes]:
        """Return the headers and the body of a callback."""
        body = json.dumps(report).encode()
        at = str(int(time.time()) - age_s)
        signed = f"forewarn-report:{driver}:{at}:".encode() + body
        right = hmac.new(secret, signed, hashlib.sha256).hexdigest()
        headers = {
            "forewarn-driver": driver,
            "forewarn-timestamp": at,
            "forewarn-signature": f"sha256={right}",
            "content-type": "application/json",
        }
        return headers, body
