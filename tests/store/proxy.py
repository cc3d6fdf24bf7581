"""A go-between for PostgreSQL's socket that can cut the line at a chosen word.

Knows no more of PostgreSQL's protocol than what a few answers look like.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

SOCKET_NAME = ".s.PGSQL.5432"
COMMITTED = b"COMMIT\x00"
"""In the server's answer to COMMIT."""
ADVANCED = b"UPDATE 1\x00"
"""In the server's answer to the first statement of a commit."""


@dataclass
class Proxy:
    """What happens to the connections through it; change it at any time."""

    folder: Path
    behind: Path
    #: Cut the line instead of passing an answer on that has this in it.
    swallow: bytes = b""
    #: Pass an answer on that has this in it, then cut the line before the client's next word.
    deaf_after: bytes = b""
    #: Whether new connections are taken.
    reachable: bool = True
    _lines: list[tuple[socket.socket, socket.socket]] = field(default_factory=list)

    def address(self, database: str) -> str:
        """The address of a database behind the proxy."""
        return f"postgresql://forewarn@/{database}?host={self.folder}"

    def cut(self) -> None:
        """Cut every line that is open now."""
        for pair in self._lines:
            for end in pair:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        self._lines.clear()

    def serve(self, listener: socket.socket) -> None:
        """Take connections until the listener is shut."""
        with suppress(OSError):
            while True:
                front, _ = listener.accept()
                if not self.reachable:
                    front.close()
                    continue
                back = socket.socket(socket.AF_UNIX)
                back.connect(str(self.behind / SOCKET_NAME))
                self._lines.append((front, back))
                threading.Thread(target=self._upwards, args=(front, back), daemon=True).start()
                threading.Thread(target=self._downwards, args=(front, back), daemon=True).start()

    def _upwards(self, front: socket.socket, back: socket.socket) -> None:
        with suppress(OSError):
            while words := front.recv(65536):
                back.sendall(words)
        with suppress(OSError):
            back.shutdown(socket.SHUT_RDWR)
        back.close()

    def _downwards(self, front: socket.socket, back: socket.socket) -> None:
        with suppress(OSError):
            while words := back.recv(65536):
                if self.swallow and self.swallow in words:
                    break
                if self.deaf_after and self.deaf_after in words:
                    back.shutdown(socket.SHUT_WR)  # what the client says next is not passed on
                front.sendall(words)
        with suppress(OSError):
            front.shutdown(socket.SHUT_RDWR)
        front.close()


@contextmanager
def running_proxy(folder: Path, behind: Path) -> Iterator[Proxy]:
    """Stand in `folder` before the server whose socket is in the folder `behind`."""
    proxy = Proxy(folder, behind)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / SOCKET_NAME))
        listener.listen()
        thread = threading.Thread(target=proxy.serve, args=(listener,), daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            proxy.cut()
            thread.join()
