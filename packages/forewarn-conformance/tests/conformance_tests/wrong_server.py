"""A server that passes requests on to a right one, and gets one thing wrong in its answers."""

import contextlib
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator

from tests.waiting import LIMIT_S

#: Given a request and the right answer, returns the wrong one.
Wrong = Callable[[bytes, bytes], bytes]


@contextlib.contextmanager
def serving(right: tuple[str, int], wrong: Wrong) -> Iterator[str]:
    """Serve on a free port of loopback; yield the address."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.settimeout(LIMIT_S)
            with contextlib.suppress(OSError):
                request = _message(self.request)
                with socket.create_connection(right, LIMIT_S) as behind:
                    behind.sendall(request)
                    answer = _message(behind, of_head=request.startswith(b"HEAD"))
                self.request.sendall(wrong(request, answer))
                if b"connection: close" not in request.lower():
                    self.request.recv(1)  # until the client goes

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        host, port = server.server_address[:2]
        yield f"http://{host!s}:{port}"
        server.shutdown()
        thread.join(LIMIT_S)


def _message(connection: socket.socket, *, of_head: bool = False) -> bytes:
    """Return one request or answer, whole."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65_536)
        if not more:
            return data
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:") and not of_head:
            text = line.partition(b":")[2].strip()
            length = int(text) if text.isdigit() else 0
    while len(rest) < length:
        rest += connection.recv(65_536)
    return head + b"\r\n\r\n" + rest
