"""Starts `forewarn emulate` repeatedly; prints ms to the first document and to the end.

The time runs from before the process's creation until the end of the answer. Uses only loopback.
"""

from __future__ import annotations

import platform
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

from bench.sizes import Parser

REQUEST = (
    b"GET /metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\r\n"
    b"Host: x\r\nMetadata: true\r\nConnection: close\r\n\r\n"
)
START_S_MAX = 30.0


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def first_answer(port: int) -> bytes:
    """Send requests until an answer arrives."""
    ends = time.perf_counter() + START_S_MAX
    while time.perf_counter() < ends:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
                connection.sendall(REQUEST)
                return connection.makefile("rb").read()
        except OSError:
            time.sleep(0.001)
    raise TimeoutError(f"nobody answers on port {port}")


def one_start() -> tuple[float, float]:
    """Return ms from the start to the first answer, and from Ctrl-C to the end."""
    port, operator = free_port(), free_port()
    command = [sys.executable, "-m", "forewarn_server.cli.main", "emulate", "--quiet"]
    command += ["--listen", f"127.0.0.1:{port}", "--operator-listen", f"127.0.0.1:{operator}"]
    begun = time.perf_counter()
    process = subprocess.Popen(command)
    try:
        answer = first_answer(port)
        start_ms = (time.perf_counter() - begun) * 1000
        assert answer.startswith(b"HTTP/1.1 200 "), answer
        assert b'{"DocumentIncarnation":0,"Events":[]}' in answer, answer
    finally:
        time.sleep(
            0.3
        )  # wait for the operator API, because an earlier Ctrl-C ends the process in another way
        begun = time.perf_counter()
        process.send_signal(signal.SIGINT)
        status = process.wait(START_S_MAX)
    assert status == 0, status
    return start_ms, (time.perf_counter() - begun) * 1000


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print medians with their spread."""
    parser = Parser("bench.start", __doc__)
    parser.add_size("--runs", 20, 5, 1, "number of measured starts")
    runs = parser.sized(arguments).runs
    one_start()  # the first run compiles modules
    starts, stops = zip(*(one_start() for _ in range(runs)), strict=True)
    print(f"Python {platform.python_version()} on {platform.machine()}, {runs} starts")
    for name, found in (("start to first answer", starts), ("Ctrl-C to the end", stops)):
        middle = statistics.median(found)
        print(
            f"{name:<22} median {middle:5.0f} ms   least {min(found):5.0f}   most {max(found):5.0f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
