"""A metadata node of the laboratory: asks the service in a guest's name, and signs it.

`python -m tests.libvirt.node_proxy ADDRESS SOCKET CALLERS`; the secret is in the environment.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import sys
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SECRET = "FOREWARN_METADATA_PROXY_SECRET"
DROPPED = {"x-instance-id", "x-instance-id-signature", "x-forwarded-for", "host", "connection"}
TIMEOUT_S = 130


class _Service(HTTPConnection):
    """A connection to the service's Unix socket."""

    path = ""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(self.path)


class _Handler(BaseHTTPRequestHandler):
    """Passes one request on."""

    protocol_version = "HTTP/1.1"
    callers: dict[str, str]

    def do_GET(self) -> None:
        self._pass_on(b"")

    def do_POST(self) -> None:
        self._pass_on(self.rfile.read(int(self.headers.get("Content-Length", "0"))))

    def _pass_on(self, body: bytes) -> None:
        instance = self.callers.get(self.client_address[0], "nobody")
        headers = {k: v for k, v in self.headers.items() if k.lower() not in DROPPED}
        headers["X-Instance-ID"] = instance
        secret = os.environ[SECRET].encode()
        headers["X-Instance-ID-Signature"] = hmac.digest(secret, instance.encode(), "sha256").hex()
        connection = _Service("localhost", timeout=TIMEOUT_S)
        try:
            connection.request(self.command, self.path, body or None, headers)
            answer = connection.getresponse()
            said, status = answer.read(), answer.status
        except (OSError, HTTPException):
            said, status = b"", 503
        finally:
            connection.close()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


def main() -> None:
    """Serve until it is ended."""
    address, _Service.path, callers = sys.argv[1:]
    _Handler.callers = json.loads(Path(callers).read_text())
    ThreadingHTTPServer((address, 80), _Handler).serve_forever()


if __name__ == "__main__":
    main()
