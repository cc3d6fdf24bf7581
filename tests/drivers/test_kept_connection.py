"""A kept connection: several requests on one, and a new one where the server has closed it."""

import http.server
import threading
from collections.abc import Iterator

import pytest

from forewarn_base.http_client import ClientRequest, KeptConnection


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers with the number of the connection; `/last` closes it without a word."""

    protocol_version = "HTTP/1.1"
    connections = 0

    def setup(self) -> None:
        """Count a connection."""
        super().setup()
        type(self).connections += 1

    def do_GET(self) -> None:
        """Answer."""
        body = str(type(self).connections).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = self.path == "/last"

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    """Serve on a port of the loopback."""
    handler = type("Own", (Handler,), {"connections": 0})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_requests_share_a_connection_until_the_server_closes_it(url: str) -> None:
    """A closed connection is not an error of the next request."""
    kept = KeptConnection(timeout_s=5)

    def ask(path: str) -> bytes:
        return kept.exchange(ClientRequest("GET", url + path, {})).body

    assert [ask("/one"), ask("/two"), ask("/last")] == [b"1", b"1", b"1"]
    assert [ask("/one"), ask("/two")] == [b"2", b"2"]
    kept.close()
    assert ask("/one") == b"3"
    kept.close()
