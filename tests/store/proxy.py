"""A go-between for PostgreSQL's socket that can cut the line at a chosen word.

Knows no more of PostgreSQL's protocol than what a few messages look like.
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
_SYNC = b"S\x00\x00\x00\x04"
"""What a client ends a pipeline with: whatever it had to say has been said."""


@dataclass
class Line:
    """One connection through the proxy."""

    front: socket.socket
    back: socket.socket
    #: Whether what the client says is thrown away.
    deaf: bool = False

    def cut(self) -> None:
        """End it in both directions, whoever still reads from it."""
        for end in (self.front, self.back):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@dataclass
class Proxy:
    """What happens to the connections through it; change it at any time."""

    folder: Path
    behind: Path
    #: Cut the line instead of passing an answer on that has this in it.
    swallow: bytes = b""
    #: Pass an answer on that has this in it; of what the client says then, nothing arrives.
    deaf_after: bytes = b""
    #: Whether the trouble ends with the first connection it hits.
    once: bool = False
    #: Whether new connections are taken.
    reachable: bool = True
    #: New connections that were not taken.
    refused: int = 0
    _lines: list[Line] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)

    def address(self, database: str) -> str:
        """The address of a database behind the proxy."""
        return f"postgresql://forewarn@/{database}?host={self.folder}"

    def cut(self) -> None:
        """Cut every line that is open now."""
        for line in tuple(self._lines):  # whoever is cut may be back before the last one is
            line.cut()

    def serve(self, listener: socket.socket) -> None:
        """Take connections until the listener is shut."""
        with suppress(OSError):
            while True:
                front, _ = listener.accept()
                if not self.reachable:
                    front.close()
                    self.refused += 1
                    continue
                back = socket.socket(socket.AF_UNIX)
                back.connect(str(self.behind / SOCKET_NAME))
                line = Line(front, back)
                self._lines.append(line)
                for direction in (self._upwards, self._downwards):
                    thread = threading.Thread(target=direction, args=(line,))
                    thread.start()
                    self._threads.append(thread)

    def close(self) -> None:
        """Cut every line, and wait until nobody works on one."""
        self.cut()
        for thread in self._threads:
            thread.join()
        for line in self._lines:
            line.front.close()
            line.back.close()

    def _upwards(self, line: Line) -> None:
        with suppress(OSError):
            while words := line.front.recv(65536):
                if not line.deaf:
                    line.back.sendall(words)
                elif _SYNC in words:
                    break
        line.cut()

    def _downwards(self, line: Line) -> None:
        with suppress(OSError):
            while words := line.back.recv(65536):
                if self.swallow and self.swallow in words:
                    self._hit()
                    break
                if self.deaf_after and self.deaf_after in words:
                    self._hit()
                    line.deaf = True
                line.front.sendall(words)
        line.cut()

    def _hit(self) -> None:
        if self.once:
            self.swallow = self.deaf_after = b""


@contextmanager
def running_proxy(folder: Path, behind: Path) -> Iterator[Proxy]:
    """Stand in `folder` before the server whose socket is in the folder `behind`."""
    proxy = Proxy(folder, behind)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / SOCKET_NAME))
        listener.listen()
        thread = threading.Thread(target=proxy.serve, args=(listener,))
        thread.start()
        try:
            yield proxy
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            proxy.close()
