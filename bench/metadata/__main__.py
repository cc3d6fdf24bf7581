"""`python -m bench.metadata` compares the servers, and prints a table and JSON.

The server has one core and the load the other. Every round runs every rival once in each case, so
that noise affects all rivals. The table has the medians of the rounds.
"""

from __future__ import annotations

import json
import platform
import re
import socket
import statistics
import subprocess
import sys
from argparse import Namespace
from collections import defaultdict
from pathlib import Path

from bench.metadata.rivals import BUILT, LOAD_CORE, REQUEST, TARGET, Rival, build, install, on_core
from bench.sizes import Parser

RATE_PER_S = 1000
Figures = dict[str, dict[str, list[float]]]


def wrk(rival: Rival, connections: int, *, seconds: int, close: bool) -> dict[str, float]:
    """Return the requests per second, and the server's processor time per request."""
    before = rival.cpu_s()
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}", "-H", "Metadata: true"]
    command += ["-H", "Connection: close"] if close else []
    done = subprocess.run(
        [*command, f"http://{rival.address}{TARGET}"],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=on_core(LOAD_CORE),
    ).stdout
    if "Non-2xx" in done or "connect" in done.partition("Requests/sec")[0].partition("Socket")[2]:
        print(done, file=sys.stderr)
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", done)[1])  # type: ignore[index]
    count = int(re.search(r"(\d+) requests in", done)[1])  # type: ignore[index]
    return {"per_s": rate, "cpu_us": (rival.cpu_s() - before) / count * 1e6}


def fixed_rate(rival: Rival, *, seconds: int) -> dict[str, float]:
    """Return latencies at a fixed rate, measured from the due time of each request."""
    done = subprocess.run(
        [str(BUILT / "load"), rival.address, TARGET, str(RATE_PER_S), "16", str(seconds)],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=on_core(LOAD_CORE),
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def idle(rival: Rival, connections: int) -> dict[str, float]:
    """Return the memory of an idle connection after one answer."""
    before = rival.resident_kib()
    socks = []
    try:
        for _ in range(connections):
            sock = socket.create_connection(("127.0.0.1", rival.port), timeout=10)
            socks.append(sock)
            sock.sendall(REQUEST)
            assert sock.recv(4096).startswith(b"HTTP/1.1 200")
        return {"connection_kib": (rival.resident_kib() - before) / connections}
    finally:
        for sock in socks:
            sock.close()


def rounds(rivals: list[Rival], options: Namespace) -> Figures:
    """Run every case of every rival repeatedly."""
    figures: Figures = defaultdict(lambda: defaultdict(list))

    def note(rival: Rival, case: str, found: dict[str, float]) -> None:
        for name, value in found.items():
            figures[f"{case} {name}"][rival.name].append(value)

    for number in range(options.rounds):
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
        for rival in rivals:
            note(rival, "start", {"ms": rival.start() * 1000})
        for rival in rivals:
            found = wrk(rival, 64, seconds=options.seconds, close=False)
            note(rival, "keep-alive", found)
        for rival in rivals:
            found = wrk(rival, 32, seconds=options.seconds, close=True)
            note(rival, "new connection", found)
        for rival in rivals:
            note(rival, "1000/s", fixed_rate(rival, seconds=options.seconds))
        for rival in rivals:
            rival.stop()
            rival.start()
            note(rival, "idle", idle(rival, options.idle))
            rival.stop()
    return figures


def table(figures: Figures, rivals: list[Rival]) -> str:
    """Return medians, and the ratio of Forewarn's to Go's."""
    names = [rival.name for rival in rivals]
    lines = [f"{'':26}" + "".join(f"{name:>19}" for name in names) + f"{'forewarn : go':>15}"]
    for case, found in figures.items():
        medians = {name: statistics.median(found[name]) for name in names}
        ratio = medians["forewarn"] / medians["go"] if medians["go"] else float("nan")
        shown = "".join(f"{medians[name]:>19,.1f}" for name in names)
        lines.append(f"{case:26}{shown}{ratio:>15.2f}")
    return "\n".join(lines)


def main() -> None:
    """Run the comparison."""
    parser = Parser("bench.metadata", __doc__)
    parser.add_size("--rounds", 5, 1, 1, "number of rounds")
    parser.add_size("--seconds", 4, 2, 1, "duration of each case in each round, in seconds")
    parser.add_size("--idle", 5000, 5000, 20, "number of idle connections")
    parser.add_argument("--json", type=Path, help="file of all rounds' figures")
    options = parser.sized()
    install("wrk", "nginx", "go")
    on_core(LOAD_CORE)()
    rivals = build()
    try:
        figures = rounds(rivals, options)
    finally:
        for rival in rivals:
            rival.stop()
    print(table(figures, rivals))
    machine = {"machine": platform.platform(), "python": platform.python_version()}
    if options.json:
        options.json.write_text(json.dumps({**machine, "figures": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
