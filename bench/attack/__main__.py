"""Measures the effect of floods on other callers: `make bench-attack` or `python -m bench.attack`.

One service with its usual limits and 1,024 file descriptors, on loopback. Twenty VMs poll twice a
second each, half of them on new connections, and an operator calls four times a second: before a
flood, while it lasts, and from a second after its end. Every process and connection is its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bench.attack.bystanders import TOKEN, VMS, Bystanders, Phase
from bench.attack.floods import FLOODS, VM, Flood
from bench.attack.requests import OPERATOR, OWN_VM, OWNER, VIEWER, Requests
from bench.sizes import Parser
from forewarn_base.openssl import make_certificate
from forewarn_core.access.roles import Role
from tests.access import seed_token

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

START_S_MAX = 120.0
#: Hosts or VMs of one request, which is then smaller than its limit.
PART = 20_000
#: Default limit of a process's open files.
FDS = 1024
#: Limit of other VMs' poll times during a flood.
P99_S_MAX = 0.050
SERVER_CORE, LOAD_CORE = 0, 1
#: Floods that show that the benchmark runs.
SMOKE = (
    "quotes and backslashes in an owner's body",
    "spaces in a viewer's Resource Graph query",
    "a node that reports polls without end",
    "a node that asks for its part without end",
)
SETTINGS = """
[listen]
metadata = ["127.0.0.1:{metadata}"]
operator = "127.0.0.1:{operator}"
[azure]
listen = "127.0.0.1:{azure}"
certificate = "{certificate}"
key = "{key}"
[feed]
listen = "127.0.0.1:{feed}"
[store]
url = "sqlite:///{store}"
[log]
level = "warning"
"""


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def prepare() -> None:
    """Bind the service to its core, and set the default limit of files."""
    os.sched_setaffinity(0, {SERVER_CORE % (os.cpu_count() or 1)})
    resource.setrlimit(resource.RLIMIT_NOFILE, (FDS, FDS))


@contextlib.contextmanager
def serving(directory: Path, flood: Flood | Requests) -> Iterator[dict[str, int]]:
    """Run a service with a VM at each address; yield its ports."""
    ports = {port: free_port() for port in ("metadata", "operator", "azure", "feed")}
    made = make_certificate(directory)
    config = directory / "forewarn.toml"
    text = SETTINGS.format(
        **ports,
        store=directory / "forewarn.db",
        certificate=made.path,
        key=made.key,
    )
    if flood.port == "TLS feed":
        text = text.replace("[feed]", f'[feed]\ncertificate = "{made.path}"\nkey = "{made.key}"')
    config.write_text(text)
    seed_token(directory / "forewarn.db", "bench", Role.ADMIN)
    seed_token(directory / "forewarn.db", "h-0", Role.NODE)
    seed_token(directory / "forewarn.db", OPERATOR, Role.OPERATOR)
    seed_token(directory / "forewarn.db", VIEWER, Role.VIEWER)
    seed_token(directory / "forewarn.db", OWNER, Role.OWNER, OWNER)
    ports |= {"Azure port": ports["azure"], "TLS feed": ports["feed"]}
    command = [sys.executable, "-m", "forewarn_server.cli.main", "serve", "--config", str(config)]
    process = subprocess.Popen(command, preexec_fn=prepare)  # noqa: PLW1509  one thread
    try:
        ends = time.perf_counter() + START_S_MAX
        while not _put_fleet(ports["operator"], flood.hosts):
            assert process.poll() is None, "the service has ended"
            assert time.perf_counter() < ends, "the service does not start"
            time.sleep(0.05)
        yield ports
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(START_S_MAX)


def _put_fleet(operator: int, hosts: int) -> bool:
    """Apply the fleet in parts; return False while the service does not listen."""
    names = [f"h-{n}" for n in range(hosts)]
    vms: dict[str, dict[str, object]] = {
        f"vm-{n}": {"host": "h-0", "addresses": [address]} for n, address in enumerate((*VMS, *VM))
    }
    vms[OWN_VM]["group"] = OWN_VM
    vms |= {f"more-{n}": {"host": f"h-{n}"} for n in range(1, hosts - len(vms))}
    parts: list[dict[str, object]] = [{"groups": {OWN_VM: {"owner": OWNER}}}]
    parts += [{"hosts": {name: {} for name in part}} for part in batched(names)]
    parts += [{"vms": dict(part)} for part in batched(list(vms.items()))]
    return all(_put_topology(operator, part) for part in parts)


def batched(values: list[T]) -> Iterator[list[T]]:
    """Yield values in the parts of one request."""
    for start in range(0, len(values), PART):
        yield values[start : start + PART]


def _put_topology(operator: int, part: dict[str, object]) -> bool:
    request = urllib.request.Request(
        f"http://127.0.0.1:{operator}/v1/topology",
        json.dumps(part).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"},
        method="PUT",
    )
    try:
        urllib.request.urlopen(request, timeout=START_S_MAX).close()
    except ConnectionError:
        return False
    except urllib.error.URLError as error:
        if isinstance(error.reason, ConnectionError):
            return False
        raise
    return True


async def attack(name: str, ports: dict[str, int], seconds: float) -> dict[str, Phase]:
    """Return other callers' results before, during and after one flood."""
    port = ports[FLOODS[name].port]
    others = Bystanders(ports["metadata"], ports["operator"])
    others.start()
    phases: dict[str, Phase] = {}

    async def see(what: str, seconds: float) -> None:
        phases[what] = others.phase = Phase()
        await asyncio.sleep(seconds)

    await asyncio.sleep(1)
    await see("before", seconds / 2)
    command = ["-m", "bench.attack.floods", name, "--port", str(port), "--seconds", str(seconds)]
    flood = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE
    )
    await see("during", seconds + 0.5)
    said, _ = await flood.communicate()
    assert flood.returncode == 0, f"{name}: the flood failed"
    print(f"{name}: {said.decode().strip()}", file=sys.stderr, flush=True)
    await see("a second", 1.0)
    await see("after", seconds / 2)
    await others.stop()
    del phases["a second"]
    return phases


def row(name: str, what: str, phase: Phase) -> str:
    """Return one line of the table, in milliseconds."""

    def of(times_s: list[float]) -> str:
        if len(times_s) < 2:
            return f"{'-':>9}{'-':>9}{'-':>9}"
        p99 = percentile(times_s, 99)
        shown = (statistics.median(times_s), p99, max(times_s))
        return "".join(f"{each * 1000:>9.1f}" for each in shown)

    return (
        f"{name:58}{what:8}{len(phase.polls_s):>7}{of(phase.polls_s)}{phase.failed_polls:>8}"
        f"{of(phase.calls_s)}{phase.failed_calls:>8}"
    )


def percentile(times_s: list[float], of_hundred: int) -> float:
    """Return a percentile of times."""
    return sorted(times_s)[min(len(times_s) - 1, len(times_s) * of_hundred // 100)]


def broken(name: str, phases: dict[str, Phase]) -> list[str]:
    """Return a sentence for each broken limit, with the yardstick of the same run."""
    found = []
    before = phases["before"].polls_s
    yardstick = f"{percentile(before, 99) * 1000:.0f} ms before it" if before else "none before it"
    for what in ("during", "after"):
        phase = phases[what]
        if phase.failed_polls:
            found.append(f"{name}: {phase.failed_polls} polls failed {what} it")
        if not phase.polls_s or percentile(phase.polls_s, 99) > P99_S_MAX:
            limit = f"{P99_S_MAX * 1000:.0f} ms {what} it"
            found.append(f"{name}: polls' p99 is above {limit}; {yardstick}")
        if phase.failed_calls:
            found.append(f"{name}: {phase.failed_calls} operator calls failed {what} it")
    return found


async def measure(options: Namespace) -> dict[str, dict[str, Phase]]:
    """Run one flood after the other, each against a new service."""
    figures = {}
    floods = [(name, flood) for name, flood in FLOODS.items() if options.only in name]
    if options.smoke:
        floods = [(name, FLOODS[name]) for name in SMOKE]
    for name, flood in floods[:: 2 if options.quick else 1]:
        with tempfile.TemporaryDirectory() as directory, serving(Path(directory), flood) as ports:
            figures[name] = await attack(name, ports, options.seconds)
    return figures


def main() -> int:
    """Run all floods and print other callers' results."""
    parser = Parser("bench.attack", __doc__)
    parser.add_size("--seconds", 10.0, 3.0, 0.5, "duration of each flood, in seconds")
    parser.add_argument("--only", default="", help="run only floods whose name contains this text")
    options = parser.sized()
    os.sched_setaffinity(0, {LOAD_CORE % (os.cpu_count() or 1)})
    figures = asyncio.run(measure(options))
    print(f"{platform.platform()}, Python {platform.python_version()}; milliseconds")
    heads = "".join(f"{head:>9}" for head in ("p50", "p99", "max"))
    print(f"{'flood':58}{'':8}{'polls':>7}{heads}{'failed':>8}{heads}{'failed':>8}  (calls)")
    for name, phases in figures.items():
        for what, phase in phases.items():
            print(row(name, what, phase))
    problems = [each for name, phases in figures.items() for each in broken(name, phases)]
    print("\n".join(problems) or "Every limit was kept.")
    return 1 if problems and not options.smoke else 0


if __name__ == "__main__":
    sys.exit(main())
