"""A ticket system as people have them: it opens a ticket for a task, and calls back when it closes.

It knows nothing of Forewarn's code: its checks of signatures are its own.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

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
        far = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                status, answer = far.answer(dict(self.headers.items()), body)
                self.send_response(status)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        scheme = "http"
        if tls is not None:
            scheme = "https"
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}/tickets"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        """Answer one request; one that meets trouble may have been taken all the same."""
        answer = self._answer(headers, body)
        return (self.troubles.pop(0), b"later") if self.troubles else answer

    def _answer(self, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
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
