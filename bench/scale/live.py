"""Measures a service with a large fleet: applying, starting, and the waits of VMs.

A real `forewarn serve` on a SQLite file, durable to the disk. The fleet is applied by `forewarn
topology apply`. The service is stopped and started again; then VMs of some blocks poll and approve
at a fixed pace: alone; while thousands of hosts elsewhere are ordered at once and all of them have
their turn; and while a maintenance of as many others is planned and its first wave announced. Only
loopback.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.latency.client import SETTINGS, Line, approval, call, poll
from bench.sizes import Parser

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

#: Number of VMs on a host, and of hosts in a block; a group has a VM on each host of a block.
VMS_A_HOST, BLOCK, DOMAIN_HOSTS = 10, 20, 4
#: Polls and approvals per second of VMs in the watched blocks.
POLLS, APPROVALS = 200, 20
#: Start of the ordered work.
NOT_BEFORE = "+1h"
START_S_MAX, ANSWER_S_MAX = 300.0, 600.0


def fleet(vms: int) -> dict[str, dict[str, object]]:
    """Return a fleet in the form of a topology file."""
    hosts = range(vms // VMS_A_HOST)
    return {
        "hosts": {
            f"h{n}": {"fault_domain": n % BLOCK // DOMAIN_HOSTS, "update_domain": n % BLOCK}
            for n in hosts
        },
        "groups": {group_of(n, place): {} for n in hosts[::BLOCK] for place in range(VMS_A_HOST)},
        "vms": {
            vm_of(n, place): {
                "host": f"h{n}",
                "group": group_of(n, place),
                "size": "Standard_D4s_v5",
                "addresses": [f"10.{n >> 8 & 255}.{n & 255}.{place + (n >> 16) * 16}"],
            }
            for n in hosts
            for place in range(VMS_A_HOST)
        },
    }


def group_of(host: int, place: int) -> str:
    """Return the group of a VM."""
    return f"g{host // BLOCK * VMS_A_HOST + place}"


def vm_of(host: int, place: int) -> str:
    """Return the name of a VM."""
    return f"vm-{host * VMS_A_HOST + place}"


class Service:
    """A `forewarn serve` that can restart with its store."""

    def __init__(self, folder: Path) -> None:
        """Write the settings of the service."""
        self.metadata_port, self.operator_port = free_port(), free_port()
        self._config = folder / "forewarn.toml"
        self._config.write_text(
            SETTINGS.format(
                metadata=self.metadata_port,
                operator=self.operator_port,
                store=folder / "forewarn.db",
            )
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Start the service; return the seconds until it answers a VM and an operator."""
        command = [sys.executable, "-m", "forewarn_server.cli.main", "serve", "--config"]
        begun = time.perf_counter()
        self._process = subprocess.Popen([*command, str(self._config)])
        while True:
            assert self._process.poll() is None, "the service has ended"
            assert time.perf_counter() - begun < START_S_MAX, "the service does not start"
            try:
                socket.create_connection(("127.0.0.1", self.metadata_port)).close()
                Line(self.operator_port).ask(call("GET", "/v1/operations?limit=1"))
            except ConnectionError:
                time.sleep(0.05)
            else:
                return time.perf_counter() - begun

    def stop(self) -> None:
        """Stop the service."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(ANSWER_S_MAX)

    def resident_mib(self) -> float:
        """Return the service's memory, in MiB."""
        assert self._process is not None
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text("ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def processor_s(self) -> float:
        """Return the service's processor time since its start, in seconds."""
        assert self._process is not None
        stat = Path(f"/proc/{self._process.pid}/stat").read_text("ascii")
        taken = stat.rpartition(")")[2].split()[11:13]
        return sum(map(int, taken)) / os.sysconf("SC_CLK_TCK")

    def apply(self, topology: Path) -> float:
        """Apply a fleet with the command; return the duration in seconds."""
        words = ("topology", "apply", str(topology), "--json")
        url = f"http://127.0.0.1:{self.operator_port}"
        begun = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "forewarn_server.cli.main", *words],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "FOREWARN_SERVER": url},
        )
        return time.perf_counter() - begun


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


#: Maximum number of hosts in a request for work.
TARGETS_MAX = 100


class Watched:
    """VMs that poll and approve at a fixed rate, with their waits in ms."""

    def __init__(self, service: Service, hosts: list[int]) -> None:
        """Watch the VMs of some hosts, each in another group."""
        self._service, self._hosts = service, hosts
        self._vms = [vm_of(n, place) for n in hosts for place in range(VMS_A_HOST)]
        self.polls: list[float] = []
        self.approvals: list[float] = []
        self._unapproved = iter(self._vms)

    def announce(self) -> None:
        """Poll for every group, then announce work on each host."""
        vm = Line(self._service.metadata_port)
        for name in self._vms:
            vm.ask(poll(name))
        operator = Line(
            self._service.operator_port
        )  # connect late, because the service closes silent connections
        targets = [f"h{n}" for n in self._hosts]
        for start in range(0, len(targets), TARGETS_MAX):
            part = targets[start : start + TARGETS_MAX]
            operator.ask(call("POST", "/v1/operations", {"cause": "host-update", "targets": part}))

    def notices(self) -> dict[str, tuple[str, str]]:
        """Return the id and the start of each group's event."""
        vm = Line(self._service.metadata_port)
        found = {}
        for name in self._vms:
            for event in vm.ask(poll(name))["Events"]:
                if event["EventStatus"] == "Scheduled":
                    found[name] = (event["EventId"], event["NotBefore"])
        return found

    def all_notices(self) -> dict[str, tuple[str, str]]:
        """Return the id and the start of each group's event, once all events are published."""
        begun = time.perf_counter()
        while len(found := self.notices()) < len(self._vms):
            assert time.perf_counter() - begun < ANSWER_S_MAX, "not everything is announced"
            time.sleep(0.2)
        return found

    async def live(self, events: dict[str, tuple[str, str]], seconds: float) -> None:
        """Poll and approve for some seconds."""
        await asyncio.gather(
            self._paced(self.polls, POLLS, seconds, map(poll, cycle(self._vms))),
            self._paced(
                self.approvals,
                APPROVALS,
                seconds,
                (approval(name, events[name][0]) for name in self._unapproved),
            ),
        )

    async def _paced(self, times: list[float], rate: int, seconds: float, requests: Any) -> None:  # noqa: ANN401 - any iterator of bytes
        begun = time.perf_counter()
        asked: set[asyncio.Task[None]] = set()
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, begun + number / rate - time.perf_counter()))
            asked.add(asyncio.create_task(self._ask(times, next(requests))))
        await asyncio.gather(*asked)

    async def _ask(self, times: list[float], request: bytes) -> None:
        begun = time.perf_counter()
        port = self._service.metadata_port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        times.append((time.perf_counter() - begun) * 1000)
        assert head.startswith(b"HTTP/1.1 200"), head
        writer.close()


def shown(times: list[float]) -> str:
    """Return the median and the 99th percentile."""
    return f"{statistics.median(times):.1f} / {statistics.quantiles(times, n=100)[98]:.1f}"


def asker(service: Service) -> Callable[..., Coroutine[Any, Any, dict[str, Any]]]:
    """Return a function that calls the operator API on a thread."""
    line = Line(service.operator_port)
    line.socket.settimeout(ANSWER_S_MAX)

    async def ask(method: str, path: str, form: object = None) -> dict[str, Any]:
        found: dict[str, Any] = await asyncio.to_thread(line.ask, call(method, path, form))
        return found

    return ask


async def maintain(service: Service, hosts: list[int]) -> str:
    """Start a maintenance of many hosts; return the time until its plan was in force."""
    ask = asker(service)
    begun = time.perf_counter()
    targets = [f"h{n}" for n in hosts]
    form = {"cause": "network-update", "hosts": targets, "duration": "PT10M"}
    name = (await ask("POST", "/v1/maintenances", form))["maintenance"]["id"]
    await ask("POST", f"/v1/maintenances/{name}/start", {})
    told: dict[str, Any] = {}
    while not told.get("wave"):
        told = (await ask("GET", f"/v1/maintenances/{name}"))["maintenance"]
        await asyncio.sleep(0.2)
    took_s = time.perf_counter() - begun
    return f"while {len(hosts):,} hosts are planned ({took_s:.1f} s) and announced"


async def measure(service: Service, vms: int, *, seconds: float, maintained: int) -> None:
    """Print the waits of VMs, without other work and while a large maintenance starts."""
    hosts = vms // VMS_A_HOST
    blocks = list(range(hosts // BLOCK))
    random.Random(1).shuffle(blocks)
    # Approve each event of a watched block while the maintenance starts.
    watched_blocks = min(-(-3 * APPROVALS * int(seconds) // VMS_A_HOST), len(blocks) // 2)
    blocks, free = blocks[:watched_blocks], blocks[watched_blocks:]
    watched = Watched(service, [block * BLOCK for block in blocks])
    watched.announce()
    before = watched.all_notices()
    await watched.live(before, seconds)
    print(f"| alone | {shown(watched.polls)} | {shown(watched.approvals)} |", flush=True)
    watched.polls, watched.approvals = [], []
    every = (block * BLOCK + n for n in range(BLOCK) for block in free)
    many = list(islice(every, maintained))
    case, _ = await asyncio.gather(maintain(service, many), watched.live(before, seconds))
    print(f"| {case} | {shown(watched.polls)} | {shown(watched.approvals)} |", flush=True)
    after = watched.notices()
    renewed = sum(after[name] != told for name, told in before.items() if name in after)
    print(f"notices renewed by then: {renewed} of {len(after)} events", flush=True)


def main() -> None:
    """Apply the fleet, restart the service, and measure."""
    parser = Parser("bench.scale.live", __doc__)
    parser.add_size("--vms", 1_000_000, 50_000, 2000, "number of VMs")
    parser.add_size("--seconds", 40.0, 10.0, 1.0, "seconds of polls and of approvals")
    parser.add_size("--hosts", 20_000, 20_000, 20, "number of hosts of the maintenance")
    parser.add_argument("--folder", type=Path, help="directory of the store")
    given = parser.sized()
    vms = given.vms
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        topology = Path(folder) / "fleet.json"
        topology.write_text(json.dumps(fleet(vms)))
        service = Service(Path(folder))
        try:
            service.start()
            before_s, command_s = service.processor_s(), sum(os.times()[2:4])
            took_s = service.apply(topology)
            taken_s = service.processor_s() - before_s, sum(os.times()[2:4]) - command_s
            print(f"{vms:,} VMs applied in {took_s:.1f} s", flush=True)
            print("processor: {:.1f} s in the service, {:.1f} s in the command".format(*taken_s))
            print(f"resident: {service.resident_mib():,.0f} MiB", flush=True)
            service.stop()
            begun = time.perf_counter()
            service.start()
            Line(service.metadata_port).ask(poll(vm_of(0, 0)))
            took_s = time.perf_counter() - begun
            print(f"start to the first poll answered: {took_s:.1f} s")
            print(f"processor: {service.processor_s():.1f} s")
            print(f"resident: {service.resident_mib():,.0f} MiB\n")
            print("| ms, median / p99 | poll | approval |\n|---|---|---|", flush=True)
            asyncio.run(measure(service, vms, seconds=given.seconds, maintained=given.hosts))
        finally:
            service.stop()


if __name__ == "__main__":
    main()
