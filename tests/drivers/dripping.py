"""A far side of HTTP that answers for ever, a byte now and then."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: Where its answer does not end.
HEADS = {"head": b"HTTP/1.0 200 OK\r\nX: ", "body": b"HTTP/1.0 200 OK\r\n\r\n"}


@contextmanager
def dripping(head: bytes) -> Iterator[str]:
    """Answer each connection with that and never end; gives the address."""
    ended = threading.Event()

    def drip(line: socket.socket) -> None:
        with line:
            try:
                line.sendall(head)
                while not ended.wait(0.02):
                    line.sendall(b"x")
            except OSError:
                return

    def accept(listening: socket.socket) -> None:
        while not ended.is_set():
            line, _ = listening.accept()
            threading.Thread(target=drip, args=(line,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        accepting = threading.Thread(target=accept, args=(listening,), daemon=True)
        accepting.start()
        port = listening.getsockname()[1]
        yield f"http://127.0.0.1:{port}/"
        ended.set()
        socket.create_connection(("127.0.0.1", port)).close()
        accepting.join()
