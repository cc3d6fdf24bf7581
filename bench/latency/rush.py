"""Measure a rush: every VM of a fleet approves at the same instant.

    python -m bench.latency.rush [--vms N] [--delays-ms 0 20 300] [--engines SQLite PostgreSQL]
    python -m bench.latency.rush --follower

Each VM has an address and a connection of its own. With `--follower`, the VMs ask a metadata node
that follows a follower of the active process. Meanwhile an operator asks for small changes. A
library that is loaded into the service, or into PostgreSQL, makes each fsync slower, as a slow or
busy disk does.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.latency.client import SETTINGS, Line, call
from bench.sizes import Parser
from forewarn_core.access.roles import Role
from tests.access import seed_token
from tests.postgres import running_postgres

VMS, VMS_PER_HOST = 2000, 10
ENGINES, DELAYS_MS = ("SQLite", "PostgreSQL"), (0, 20, 300)
#: Time limit of the whole rush; a VM's approval is refused after 30 s.
RUSH_S_MAX = 60.0
#: Files of PostgreSQL's log that exist before the rush.
SEGMENTS = 4
#: Pause between two calls of the operator.
CALL_EVERY_S = 0.5
#: Hosts in one call for work.
TARGETS_MAX = 100
#: Tries of an operator's call before the rush.
TRIES_MAX = 100
START_S_MAX = 60.0
SOURCE = Path(__file__).with_name("slow_sync.c")
POLL = (
    b"GET /metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\r\nHost: x\r\n"
    b"Metadata: true\r\n\r\n"
)


@dataclass
class Rush:
    """What became of one rush; times in seconds, sorted."""

    approved_s: list[float]
    refused: int
    #: Times to the answers of an operator's calls during the rush.
    called_s: list[float]
    calls_refused: int


@dataclass(eq=False)
class Vm:
    """One VM and its connection."""

    name: str
    address: str
    port: int
    socket: socket.socket = field(init=False)
    received: bytes = b""

    def __post_init__(self) -> None:
        """Connect from the VM's own address."""
        self.socket = socket.create_connection(
            ("127.0.0.1", self.port), START_S_MAX, source_address=(self.address, 0)
        )
        self.socket.settimeout(0)

    def answer(self) -> tuple[int, bytes] | None:
        """Read what has arrived; return the status and the body once they are complete."""
        part = self.socket.recv(65536)
        assert part, f"the service closed the connection of {self.name}"
        self.received += part
        head, found, body = self.received.partition(b"\r\n\r\n")
        if not found:
            return None
        at = head.lower().index(b"content-length:") + 15
        if len(body) < int(head[at:].split(b"\r\n")[0]):
            return None
        self.received = b""
        return int(head[9:12]), body


def approval(event_id: str) -> bytes:
    """Return the bytes of an approval by the connection's VM."""
    body = json.dumps({"StartRequests": [{"EventId": event_id}]})
    path = "/metadata/scheduledevents?api-version=2020-07-01"
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nMetadata: true\r\nContent-Length: {len(body)}\r\n"
    return f"{head}\r\n{body}".encode()


def at_once(requests: dict[Vm, bytes]) -> list[tuple[Vm, float, int, bytes]]:
    """Send all requests at once; return each answer with its seconds since then."""
    answers: list[tuple[Vm, float, int, bytes]] = []
    with selectors.DefaultSelector() as selector:
        for vm in requests:
            selector.register(vm.socket, selectors.EVENT_READ, vm)
        begun = time.perf_counter()
        for vm, request in requests.items():
            vm.socket.sendall(request)
        while len(answers) < len(requests):
            assert time.perf_counter() - begun < RUSH_S_MAX, f"{len(answers)} answers"
            for key, _ in selector.select(1.0):
                answered = key.data.answer()
                if answered is not None:
                    answers.append((key.data, time.perf_counter() - begun, *answered))
    return answers


class Calls(threading.Thread):
    """An operator who changes a host's labels again and again."""

    def __init__(self, port: int) -> None:
        """Start calling."""
        super().__init__(daemon=True)
        self.times_s: list[float] = []
        self.refused = 0
        self._port = port
        self._line, self._over = Line(port), threading.Event()
        self.start()

    def run(self) -> None:
        """Call until `stop`."""
        number = 0
        while not self._over.is_set():
            number += 1
            begun = time.perf_counter()
            host = {"labels": {"round": str(number)}}
            try:
                self._line.ask(call("PUT", "/v1/topology", {"hosts": {"h0": host}}))
            except AssertionError:
                self.refused += 1
                self._line = Line(self._port)
            self.times_s.append(time.perf_counter() - begun)
            self._over.wait(CALL_EVERY_S)

    def stop(self) -> list[float]:
        """Finish the last call; return all times, sorted."""
        self._over.set()
        self.join()
        return sorted(self.times_s)


@contextlib.contextmanager
def serving(
    directory: Path, store: str, environment: dict[str, str], more: str = ""
) -> Iterator[tuple[int, int]]:
    """Run a service; yield its operator port and its metadata port."""
    operator, metadata = free_port(), free_port()
    text = SETTINGS.format(operator=operator, metadata=metadata, store="STORE")
    text = text.replace("sqlite:///STORE", store).replace("vm_by_query = true", "")
    with running(directory, ["serve"], text + more, operator, environment):
        yield operator, metadata


@contextlib.contextmanager
def behind_follower(
    directory: Path, store: str, environment: dict[str, str], hosts: Sequence[str]
) -> Iterator[tuple[int, int]]:
    """Run two services and a node of the second; yield the operator port of the first, the node's.

    The second service is a follower.
    """
    token = seed_token(store, "node", Role.NODE)
    feeds = [free_port(), free_port()]
    more = '[feed]\nlisten = "127.0.0.1:{}"\nhosts = ["node={}"]\n'
    metadata = free_port()
    words = ["node", "run", "--follow", f"127.0.0.1:{feeds[1]}", "--name", "node"]
    words += ["--store", str(directory / "node"), "--listen", f"127.0.0.1:{metadata}"]
    node = f'[node]\ntoken = "{token}"\n[metadata]\nrate_per_s = 0.0\n[log]\nlevel = "warning"\n'
    with contextlib.ExitStack() as stack:
        ports = [
            stack.enter_context(
                serving(directory, store, environment, more.format(feed, ",".join(hosts)))
            )
            for feed in feeds
        ]
        stack.enter_context(running(directory, words, node, metadata, environment))
        yield ports[0][0], metadata


@contextlib.contextmanager
def running(
    directory: Path, words: Sequence[str], text: str, port: int, environment: dict[str, str]
) -> Iterator[None]:
    """Run `forewarn WORDS` with settings, from the time when it accepts connections at a port."""
    config = directory / f"{port}.toml"
    config.write_text(text)
    config.chmod(0o600)
    command = [sys.executable, "-m", "forewarn_server.cli.main", *words, "--config", str(config)]
    process = subprocess.Popen(command, env=dict(os.environ) | environment)
    try:
        ends = time.perf_counter() + START_S_MAX
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
            assert process.poll() is None, f"{words[0]} has ended"
            assert time.perf_counter() < ends, f"{words[0]} does not start"
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(START_S_MAX)


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def slowed(directory: Path) -> dict[str, str]:
    """Return the environment of a program whose disk is slow; empty without a C compiler."""
    library, delay = directory / "slow_sync.so", directory / "delay"
    delay.write_text("0")
    try:
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    except FileNotFoundError:
        return {}
    return {"LD_PRELOAD": str(library), "SYNC_DELAY": str(delay)}


@contextlib.contextmanager
def storing(engine: str, directory: Path, environment: dict[str, str]) -> Iterator[str]:
    """Yield the URL of a new store."""
    if engine == "SQLite":
        with tempfile.TemporaryDirectory(dir=directory) as folder:
            yield f"sqlite:///{folder}/forewarn.db"
        return
    with (
        running_postgres(on_disk=True, environment=environment) as server,
        server.database() as address,
    ):
        for _ in range(SEGMENTS):  # a server that has run for a while has log files to use again
            server.run("SELECT pg_logical_emit_message(true, '', 'x')")
            server.run("SELECT pg_switch_wal()")
        server.run("CHECKPOINT")
        yield address


def announced(count: int, ports: tuple[int, int], per_host: int) -> dict[Vm, bytes]:
    """Announce work to every VM; return the VMs with their approvals."""
    addresses = [f"127.1.{number // 250}.{number % 250 + 1}" for number in range(count)]
    names = [f"v{number}" for number in range(count)]
    hosts = [f"h{number // per_host}" for number in range(count)]
    fleet = {
        "hosts": {host: {} for host in hosts},
        "groups": {name: {} for name in names},
        "vms": {
            name: {"host": host, "group": name, "addresses": [address]}
            for name, host, address in zip(names, hosts, addresses, strict=True)
        },
    }
    insist(ports[0], call("PUT", "/v1/topology", fleet))
    vms = [Vm(name, each, ports[1]) for name, each in zip(names, addresses, strict=True)]
    at_once(dict.fromkeys(vms, POLL))
    hosts = list(dict.fromkeys(hosts))
    for part in range(0, len(hosts), TARGETS_MAX):
        work = {"cause": "host-reboot", "targets": hosts[part : part + TARGETS_MAX]}
        insist(ports[0], call("POST", "/v1/operations", work))
    approvals: dict[Vm, bytes] = {}
    while len(approvals) < count:
        for vm, _, _, body in at_once(dict.fromkeys(vms, POLL)):
            for event in json.loads(body)["Events"]:
                approvals[vm] = approval(event["EventId"])
    return approvals


def insist(port: int, request: bytes) -> None:
    """Make an operator's call until it is accepted."""
    for _ in range(TRIES_MAX):
        try:
            Line(port).ask(request)
        except AssertionError:
            time.sleep(0.5)
        else:
            return
    raise AssertionError(request[:100])


def rush(approvals: dict[Vm, bytes], operator_port: int) -> Rush:
    """Send the approvals of all VMs at once."""
    calls = Calls(operator_port)
    answers = at_once(approvals)
    times_s = calls.stop()
    for vm in approvals:
        vm.socket.close()
    accepted = sorted(taken_s for _, taken_s, status, _ in answers if status == 200)
    return Rush(accepted, len(answers) - len(accepted), times_s, calls.refused)


def share(found: Sequence[float], part: float) -> str:
    """Return the value below which a part of sorted values lies, in seconds."""
    return f"{found[min(int(len(found) * part), len(found) - 1)]:.2f}" if found else "-"


def measure(
    engine: str, delay_ms: int, count: int, per_host: int, parent: Path, *, follower: bool = False
) -> Rush:
    """Run one rush on a store of its own; `follower`: through a node that follows a follower."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=parent))).resolve()
        directory.chmod(0o755)  # PostgreSQL runs as another user
        environment = slowed(directory) if delay_ms else {}
        store = stack.enter_context(storing(engine, directory, environment))
        hosts = [f"h{number}" for number in range(-(-count // per_host))]
        services = (
            behind_follower(directory, store, environment, hosts)
            if follower
            else serving(directory, store, environment)
        )
        ports = stack.enter_context(services)
        approvals = announced(count, ports, per_host)
        if environment:
            (directory / "delay").write_text(str(delay_ms * 1000))
        return rush(approvals, ports[0])


def table(
    count: int,
    engines: Sequence[str],
    delays_ms: Sequence[int],
    parent: Path,
    *,
    follower: bool = False,
) -> None:
    """Print a row for each store and each delay."""
    where = ", at a node of a follower" if follower else ""
    print(f"{count} VMs approve at once{where}, {VMS_PER_HOST} on each host; seconds\n")
    columns = ("store", "fsync", "p50", "p99", "worst", "refused", "call p50", "worst", "refused")
    print(f"| {' | '.join(columns)} |")
    print("|---" * len(columns) + "|")
    for engine in engines:
        for delay_ms in delays_ms:
            one = measure(engine, delay_ms, count, VMS_PER_HOST, parent, follower=follower)
            cells = [engine, f"+{delay_ms} ms"]
            cells += [share(one.approved_s, part) for part in (0.5, 0.99, 1.0)]
            cells += [str(one.refused)]
            cells += [share(one.called_s, part) for part in (0.5, 1.0)]
            print(f"| {' | '.join(cells)} | {one.calls_refused} |", flush=True)


def main() -> int:
    """Measure and print a table."""
    parser = Parser("bench.latency.rush", __doc__)
    parser.add_size("--vms", VMS, 500, 20, "number of VMs")
    parser.add_size("--delays-ms", DELAYS_MS, (0, 20), (0,), "delays of an fsync, in milliseconds")
    parser.add_argument("--engines", nargs="*", default=ENGINES)
    parser.add_argument("--directory", type=Path, help="directory of the store (default: .build)")
    parser.add_argument("--follower", action="store_true", help="at a node of a follower")
    asked = parser.sized()
    parent = asked.directory or Path(".build")
    parent.mkdir(parents=True, exist_ok=True)
    print(f"Python {platform.python_version()}, {platform.platform()}, {os.cpu_count()} cores")
    engines = ("PostgreSQL",) if asked.follower else asked.engines
    table(asked.vms, engines, asked.delays_ms, parent, follower=asked.follower)
    return 0


if __name__ == "__main__":
    sys.exit(main())
