"""A small HTTP server on a port of the loopback, which answers as a test says."""

import contextlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self, TypeAlias


@dataclass(frozen=True)
class Request:
    """One request that came; names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 - as it came
        """The body, read."""
        return json.loads(self.body)


#: Gives the status, the body and the headers of an answer.
Respond: TypeAlias = Callable[[Request], tuple[int, bytes, Mapping[str, str]]]


class HttpServer:
    """Answers each request on a thread of its own, until it is closed."""

    def __init__(
        self, respond: Respond, *, tls: ssl.SSLContext | None = None, port: int = 0
    ) -> None:
        """Serve on a port, by default a free one; over TLS where a context is given."""

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle(self) -> None:
                with contextlib.suppress(ConnectionError):  # of a client that hangs up
                    super().handle()

            def _answer(self) -> None:
                headers = {name.lower(): text for name, text in self.headers.items()}
                body = self.rfile.read(int(headers.get("content-length", 0)))
                status, body, more = respond(Request(self.command, self.path, headers, body))
                self.send_response(status)
                for name, text in {"Content-Length": str(len(body)), **more}.items():
                    self.send_header(name, text)
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PUT = do_PATCH = do_OPTIONS = _answer  # noqa: N815 - http.server's

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        """Serve already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Serve no more."""
        self.close()


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Have a handler answer each request, also in ways that HTTP forbids; gives the address."""
    quiet = type("Quiet", (handler,), {"log_message": lambda *_: None})
    server = ThreadingHTTPServer(("127.0.0.1", 0), quiet)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
