"""A go-between for PostgreSQL's socket that can cut the line at a chosen word.

Knows no more of PostgreSQL's protocol than what a few messages look like, and where each ends.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

SOCKET_NAME = ".s.PGSQL.5432"
#: In the server's answer to COMMIT.
COMMITTED = b"COMMIT\x00"
#: In the server's answer to the first statement of a commit.
ADVANCED = b"UPDATE 1\x00"
#: What a client ends a pipeline with: whatever it had to say has been said.
_SYNC = b"S\x00\x00\x00\x04"


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


class Messages:
    """Finds where the messages of one direction end: each has a letter, then its length."""

    def __init__(self, *, begun: bool) -> None:
        """Begin; a client's first message has no letter."""
        self._letter = int(begun)
        self._head = b""
        self._left = 0

    def ends(self, words: bytes) -> list[int]:
        """Return where in these words a message ends."""
        found, at = [], 0
        while at < len(words):
            if not self._left:
                wanted = self._letter + 4 - len(self._head)
                self._head += words[at : at + wanted]
                at += wanted
                if len(self._head) < self._letter + 4:
                    break
                self._left = int.from_bytes(self._head[self._letter :], "big") - 4
                self._head, self._letter = b"", 1
            passed = min(self._left, len(words) - at)
            at += passed
            self._left -= passed
            if not self._left:
                found.append(at)
        return found


@dataclass
class Proxy:
    """What happens to the connections through it; change it at any time."""

    folder: Path
    behind: Path
    #: Cut the line instead of passing an answer on that has this in it.
    swallow: bytes = b""
    #: Pass an answer on that has this in it; of what the client says then, nothing arrives.
    deaf_after: bytes = b""
    #: Messages in either direction that still pass before the line is cut; None: all.
    left: int | None = None
    #: Whether the trouble ends with the first connection it hits.
    once: bool = False
    #: Whether new connections are taken.
    reachable: bool = True
    #: New connections that were not taken.
    refused: int = 0
    _lines: list[Line] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def has_cut(self) -> bool:
        """Whether the line was cut since `left` was set."""
        return self.left is None

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
        messages = Messages(begun=False)
        with suppress(OSError):
            while words := line.front.recv(65536):
                if not self._passes(messages, words, line.back):
                    break
                if not line.deaf:
                    line.back.sendall(words)
                elif _SYNC in words:
                    break
        line.cut()

    def _downwards(self, line: Line) -> None:
        messages = Messages(begun=True)
        with suppress(OSError):
            while words := line.back.recv(65536):
                if not self._passes(messages, words, line.front):
                    break
                if self.swallow and self.swallow in words:
                    self._hit()
                    break
                if self.deaf_after and self.deaf_after in words:
                    self._hit()
                    line.deaf = True
                line.front.sendall(words)
        line.cut()

    def _passes(self, messages: Messages, words: bytes, end: socket.socket) -> bool:
        """Whether all of this passes; else what still does has been sent."""
        with self._lock:
            ends = messages.ends(words)
            if self.left is None or len(ends) <= self.left:
                self.left = None if self.left is None else self.left - len(ends)
                return True
            last = ends[self.left - 1] if self.left else 0
            self.left = None
        end.sendall(words[: max(last, 0)])
        return False

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
