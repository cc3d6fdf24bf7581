"""Measure the latency of changes: `make bench-latency` or `python -m bench.latency`.

One process of the service with a SQLite file, durable to the disk, on loopback. From an
operator's call to the changed document: for a client whose poll is held until something changes,
and for one that polls without pause. From the last approval to `Started`, with every step on the
disk. Beside them, in the same minutes and the same directory, what the disk needs for fdatasync.
Then a rush, where 2,000 VMs approve at once, on SQLite and PostgreSQL and on slow disks.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.latency import rush
from bench.latency.client import SETTINGS, Line, approval, call, poll
from bench.sizes import Parser

START_S_MAX = 30.0
#: Bytes written before each fdatasync: a page of SQLite's log.
PAGE = b"\0" * 4096
FLEET = {
    "hosts": {"h1": {}},
    "groups": {"web": {}, "db": {}},
    "vms": {"web-0": {"host": "h1", "group": "web"}, "db-0": {"host": "h1", "group": "db"}},
}


@dataclass
class Service:
    """A running service and connections to it."""

    operator_port: int
    metadata_port: int
    pid: int = 0
    operator: Line = field(init=False)
    vm: Line = field(init=False)
    other: Line = field(init=False)

    def connect(self) -> None:
        """Open the connections and put a fleet of two VMs on one host."""
        self.operator, self.vm = Line(self.operator_port), Line(self.metadata_port)
        self.other = Line(self.metadata_port)
        self.operator.ask(call("PUT", "/v1/topology", FLEET))
        for name in ("web-0", "db-0"):
            self.vm.ask(poll(name))

    def incarnation(self) -> int:
        """Return the incarnation of the watched document."""
        found: int = self.vm.ask(poll("web-0"))["DocumentIncarnation"]
        return found


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _sources(tree: Path) -> str:
    """Return the directories of a tree's packages, as in PYTHONPATH."""
    return os.pathsep.join(map(str, (tree / "src", *sorted(tree.glob("packages/*/src")))))


@contextlib.contextmanager
def serving(directory: Path, tree: Path | None = None) -> Iterator[Service]:
    """Run a service whose store is in a directory, perhaps of another source tree."""
    service = Service(free_port(), free_port())
    config = directory / "forewarn.toml"
    config.write_text(
        SETTINGS.format(
            metadata=service.metadata_port,
            operator=service.operator_port,
            store=directory / "forewarn.db",
        )
    )
    command = [sys.executable, "-m", "forewarn_server.cli.main", "serve", "--config", str(config)]
    environment = dict(os.environ) | ({"PYTHONPATH": _sources(tree)} if tree else {})
    process = subprocess.Popen(command, env=environment, cwd=directory)
    service.pid = process.pid
    try:
        ends = time.perf_counter() + START_S_MAX
        while True:
            try:
                service.connect()
                break
            except ConnectionError:
                assert process.poll() is None, "the service has ended"
                assert time.perf_counter() < ends, "the service does not start"
                time.sleep(0.05)
        yield service
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(START_S_MAX)


def call_to_held_poll(service: Service) -> float:
    """Return the seconds from an operator's call until a held poll returns the change."""
    service.vm.send(poll("web-0", service.incarnation()))
    time.sleep(0.002)  # the service holds the poll before the call arrives
    begun = time.perf_counter()
    service.operator.send(call("POST", "/v1/vms/web-0/reboot"))
    service.vm.receive()
    taken_s = time.perf_counter() - begun
    withdraw(service, json.loads(service.operator.receive()))
    return taken_s


def call_to_busy_poll(service: Service) -> float:
    """Return the seconds from an operator's call until continuous polls return the change."""
    before = b'{"DocumentIncarnation":%d,' % service.incarnation()
    request = poll("web-0")
    begun = time.perf_counter()
    service.operator.send(call("POST", "/v1/vms/web-0/reboot"))
    while True:
        service.vm.send(request)
        if not service.vm.receive().startswith(before):
            break
    taken_s = time.perf_counter() - begun
    withdraw(service, json.loads(service.operator.receive()))
    return taken_s


def call_to_answer(service: Service) -> float:
    """Return seconds from an operator's call to its answer."""
    begun = time.perf_counter()
    service.operator.send(call("POST", "/v1/vms/web-0/reboot"))
    answer = service.operator.receive()
    taken_s = time.perf_counter() - begun
    withdraw(service, json.loads(answer))
    return taken_s


def approval_to_started(service: Service) -> float:
    """Return the seconds from the last of two approvals until a held poll returns `Started`."""
    [operation] = service.operator.ask(call("POST", "/v1/hosts/h1/reboot"))["operations"]
    of_db, of_web = operation["events"]
    service.other.ask(approval("db-0", of_db))
    service.vm.send(poll("web-0", service.incarnation()))
    time.sleep(0.002)
    begun = time.perf_counter()
    service.other.send(approval("web-0", of_web))
    document = service.vm.receive()
    taken_s = time.perf_counter() - begun
    assert b'"EventStatus":"Started"' in document, document
    service.other.receive()
    settle(service)
    service.operator.ask(call("POST", f"/v1/operations/{operation['id']}/complete"))
    settle(service)
    return taken_s


def withdraw(service: Service, answer: dict[str, list[dict[str, str]]]) -> None:
    """Cancel the requested work, and wait until the document has no events."""
    [operation] = answer["operations"]
    settle(service)
    service.operator.ask(call("POST", f"/v1/operations/{operation['id']}/cancel"))
    settle(service)


def settle(service: Service) -> None:
    """Wait until the service has finished its follow-up work."""
    for _ in range(3):
        service.operator.ask(call("GET", "/v1/events"))
    time.sleep(0.002)


def fdatasync_of(directory: Path, *, in_place: bool) -> Callable[[], float]:
    """Return a measure of one fdatasync of a page, in the directory of the store.

    In a growing file, fdatasync also waits for the file system's journal. The store's log does not
    grow, so compare the store with the measure in place.
    """
    descriptor = os.open(directory / f"fdatasync-{in_place}", os.O_CREAT | os.O_WRONLY, 0o600)
    sync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync

    def once() -> float:
        if in_place:
            os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, PAGE)
        begun = time.perf_counter()
        sync(descriptor)
        return time.perf_counter() - begun

    return once


def measure(rounds: int, warm_up: int, directory: Path) -> dict[str, list[float]]:
    """Run all measures in turn, and return their sorted seconds."""
    growing, in_place = (fdatasync_of(directory, in_place=each) for each in (False, True))
    with serving(directory) as service:
        measures: dict[str, Callable[[], float]] = {
            "call to held poll": lambda: call_to_held_poll(service),
            "call to busy poll": lambda: call_to_busy_poll(service),
            "call to its answer": lambda: call_to_answer(service),
            "last approval to Started": lambda: approval_to_started(service),
            "fdatasync of 4 KiB": growing,
            "the same, in place": in_place,
        }
        found: dict[str, list[float]] = {name: [] for name in measures}
        for warming in range(-warm_up, rounds):
            for name, once in measures.items():
                taken_s = once()
                if warming >= 0:
                    found[name].append(taken_s)
    return {name: sorted(each) for name, each in found.items()}


def compare(rounds: int, warm_up: int, directory: Path, tree: Path) -> None:
    """Print what approvals cost this tree and another one, in alternate rounds."""
    with contextlib.ExitStack() as stack:
        services = []
        for name, source in (("this", None), ("other", tree)):
            (directory / name).mkdir()
            services.append(stack.enter_context(serving(directory / name, source)))
        for service in services:
            service.connect()  # idle connections are closed while another service starts
        found: list[list[float]] = [[], []]
        for _ in range(warm_up):
            for service in services:
                approval_to_started(service)
        before_s = [processor_s(service.pid) for service in services]
        for number in range(rounds):
            for at in (0, 1) if number % 2 else (1, 0):
                found[at].append(approval_to_started(services[at]))
        used_s = [
            (processor_s(service.pid) - before) / rounds
            for service, before in zip(services, before_s, strict=True)
        ]
    this, other = map(sorted, found)
    load = os.getloadavg()[0]
    print(f"{rounds} alternate rounds, last approval to Started; load {load:.1f}\n")
    print("| | this tree | other tree | ratio |\n|---|---|---|---|")
    rows = {name: (share(this, p), share(other, p)) for name, p in {"p50": 0.5, "p90": 0.9}.items()}
    rows["processor time of a round"] = (used_s[0] * 1000, used_s[1] * 1000)
    for name, (ours, theirs) in rows.items():
        print(f"| {name} | {ours:.2f} ms | {theirs:.2f} ms | {ours / theirs:.2f} |")


def processor_s(pid: int) -> float:
    """Return the processor time that a process has used, in seconds; only on Linux."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def share(found: Sequence[float], part: float) -> float:
    """Return the value below which a part of sorted values lies, in ms."""
    return found[min(int(len(found) * part), len(found) - 1)] * 1000


def main() -> int:
    """Measure and print a table."""
    parser = Parser("bench.latency", __doc__)
    parser.add_size("--rounds", 1000, 100, 2, "number of measured rounds")
    parser.add_size("--warm-up", 20, 20, 1, "number of rounds before the measured ones")
    parser.add_argument("--directory", type=Path, help="directory of the store (default: .build)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--against", type=Path, help="another source tree, in alternate rounds with this one"
    )
    asked = parser.sized()
    parent = asked.directory or Path(".build")
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix="latency-") as directory:
        if asked.against:
            compare(asked.rounds, asked.warm_up, Path(directory).resolve(), asked.against.resolve())
            return 0
        found = measure(asked.rounds, asked.warm_up, Path(directory).resolve())
    parts = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "most": 1.0}
    rows = {name: {n: share(each, p) for n, p in parts.items()} for name, each in found.items()}
    if asked.json:
        print(json.dumps(rows))
        return 0
    print(f"Python {platform.python_version()}, {platform.platform()}, {os.cpu_count()} cores")
    print(f"{asked.rounds} rounds, milliseconds\n")
    print(f"| {'from and to':<26} |" + "".join(f" {name:>5} |" for name in parts))
    print(f"|{'-' * 28}|" + "------:|" * len(parts))
    for name, row in rows.items():
        print(f"| {name:<26} |" + "".join(f" {each:5.2f} |" for each in row.values()))
    if asked.smoke:
        return 0
    print()
    engines, delays_ms = (["SQLite"], [20]) if asked.quick else (rush.ENGINES, rush.DELAYS_MS)
    rush.table(rush.VMS, engines, delays_ms, parent)
    return 0


if __name__ == "__main__":
    sys.exit(main())
