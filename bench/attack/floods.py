"""The floods: `python -m bench.attack.floods NAME --port N --seconds S`. Loopback only.

Floods of connections send the same bytes on each connection; `requests` has those of complete
requests. Each flood is bounded in time, connections and bytes, and prints its counts as one line of
JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import selectors
import socket
import time
from dataclasses import dataclass, field

from bench.attack.requests import REQUESTS, Requests

TARGET = "/metadata/scheduledevents?api-version=2020-07-01"
CONNECTIONS_MAX = 200_000
#: One-byte chunks with 256 KiB in total, an earlier limit of chunked bodies.
CHUNKS = 43_690

HEAD = f"POST {TARGET} HTTP/1.1\r\nHost: 169.254.169.254\r\nMetadata: true\r\n"
CHUNKED = f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode() + b"1\r\n \r\n" * CHUNKS
POLLS = f"GET {TARGET} HTTP/1.1\r\nHost: 169.254.169.254\r\nMetadata: true\r\n\r\n".encode() * 25
HEALTH = b"GET /v1/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
GUESS = b"GET /feed/h-0 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer guess\r\n\r\n"
OPERATOR_HEAD = b"GET /v1/hosts HTTP/1.1\r\nHost: x\r\n" + b"X-A: " + b"a" * 512


@dataclass(frozen=True)
class Flood:
    """The bytes, source addresses and number of connections of one flood."""

    octets: bytes
    sources: tuple[str, ...]
    at_a_time: int
    #: Whether a connection stays open after sending its bytes.
    keeps: bool = True
    #: New connections a second; 0: as many as possible.
    per_s: float = 0.0
    #: Name of the attacked port of the service.
    port: str = "metadata"
    #: Number of hosts of the fleet, each with a VM.
    hosts: int = 1
    #: Beginning of the first answer; a flood with another one does not reach what it is about.
    answer: bytes = b""

    def run(self, port: int, seconds: float) -> dict[str, int]:
        """Flood a port for a time; return what became of the connections."""
        sender = Sender(self, port)
        sender.run(seconds)
        assert sender.first.startswith(self.answer), sender.first
        return {"opened": sender.opened, "refused": sender.refused, "cut": sender.cut}


STRANGER = ("127.3.0.1",)
STRANGERS = tuple(f"127.3.{high}.{low}" for high in range(8) for low in range(1, 251))
VM = ("127.2.0.1",)
FLOODS: dict[str, Flood | Requests] = {
    "1,500 incomplete requests from an unknown address": Flood(b"G", STRANGER, 1500),
    "1,500 incomplete requests from 1,500 addresses": Flood(b"G", STRANGERS[:1500], 1500),
    "1,500 incomplete requests from a VM": Flood(b"G", VM, 1500),
    "12,000 connections, as fast as they go": Flood(b"G", STRANGER, 12_000, keeps=False),
    "one-byte chunks from a VM, 20 a second": Flood(CHUNKED, VM, 64, keeps=False, per_s=20),
    "one-byte chunks from an unknown address": Flood(CHUNKED, STRANGER, 64, keeps=False, per_s=20),
    "25 polls a connection from a VM": Flood(POLLS, VM, 64, keeps=False),
    "25 polls a connection from 1,500 addresses": Flood(POLLS, STRANGERS[:1500], 64, keeps=False),
}
FLOODS |= {
    f"silent TLS handshakes at the {port} from {whom}": Flood(b"\x16", sources, 1500, port=port)
    for port in ("Azure port", "TLS feed")
    for whom, sources in (("an address", STRANGER), ("1,500 addresses", STRANGERS[:1500]))
}
FLOODS |= {
    "1,100 incomplete requests to the operator API": Flood(
        OPERATOR_HEAD, STRANGER, 1100, per_s=500, port="operator"
    ),
    "health requests at 100,000 hosts": Flood(
        HEALTH, STRANGERS[:64], 64, port="operator", hosts=100_000
    ),
    "silent connections at the feed": Flood(b"G", STRANGERS[:1500], 1500, port="feed"),
    "wrong tokens at the feed": Flood(
        GUESS, STRANGERS[:64], 64, keeps=False, port="feed", answer=b"HTTP/1.1 403"
    ),
}
FLOODS |= REQUESTS


@dataclass
class Sender:
    """Opens connections of one flood and sends its bytes."""

    flood: Flood
    port: int
    opened: int = 0
    refused: int = 0
    cut: int = 0
    #: Beginning of the first answer.
    first: bytes = b""
    _open: dict[socket.socket, bytes] = field(default_factory=dict)
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    def run(self, seconds: float) -> None:
        """Flood for a time, then close all connections."""
        begun = time.monotonic()
        while (passed := time.monotonic() - begun) < seconds and self.opened < CONNECTIONS_MAX:
            due = int(passed * self.flood.per_s) if self.flood.per_s else CONNECTIONS_MAX
            room = min(self.flood.at_a_time - len(self._open), due - self.opened, 64)
            for _ in range(room):
                self._connect()
            for key, events in self._selector.select(0 if room > 0 else 0.002):
                self._serve(key.fileobj, events)  # type: ignore[arg-type]  # sockets only
        for sock in tuple(self._open):
            self._close(sock)

    def _connect(self) -> None:
        sock = socket.socket()
        sock.settimeout(0)
        source = self.flood.sources[self.opened % len(self.flood.sources)]
        self.opened += 1
        try:
            sock.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
            sock.bind((source, 0))
            sock.connect_ex(("127.0.0.1", self.port))
        except OSError:
            self.refused += 1
            sock.close()
            return
        self._open[sock] = self.flood.octets
        self._selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE)

    def _serve(self, sock: socket.socket, events: int) -> None:
        left = self._open[sock]
        try:
            if events & selectors.EVENT_WRITE and left:
                left = self._open[sock] = left[sock.send(left) :]
                if not left and not self.flood.keeps:
                    sock.shutdown(socket.SHUT_WR)
                if not left:
                    self._selector.modify(sock, selectors.EVENT_READ)
            if events & selectors.EVENT_READ:
                octets = sock.recv(65_536)
                self.first = self.first or octets
                if not octets:
                    raise ConnectionResetError
        except BlockingIOError:
            return
        except OSError:
            self.cut += 1
            self._close(sock)

    def _close(self, sock: socket.socket) -> None:
        del self._open[sock]
        self._selector.unregister(sock)
        with contextlib.suppress(OSError):
            sock.close()


def main() -> None:
    """Flood one port of this machine."""
    parser = argparse.ArgumentParser(prog="python -m bench.attack.floods")
    parser.add_argument("name", choices=FLOODS)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    os.nice(10)  # a low priority, so that the flood does not slow the measuring process
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20_000), hard))
    print(json.dumps(FLOODS[options.name].run(options.port, options.seconds)), flush=True)


if __name__ == "__main__":
    main()
