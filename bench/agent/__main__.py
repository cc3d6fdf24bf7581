"""`make bench-agent`: memory, processor time, growth, start and reaction of the agent, beside Go.

The agent is the file of dist/agent, started with its unit's command. The service and the Go poller
are one Go program. `--quick` shortens every measurement and gives less accurate figures.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from bench.sizes import Parser
from tests.serving import HttpServer

ROOT = Path(__file__).resolve().parents[2]
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

CONFIG = """
[agent]
endpoint = "{endpoint}"
interval_s = {interval_s}
wait_s = {wait_s}
state_dir = "{directory}/state"
hooks_dir = "{directory}/hooks"
{extra}
[step.stamp]
prepare = ["{program}", "stamp", "{directory}/stamp"]
recover = ["true"]
"""

#: Program that runs the agent at rates that its configuration refuses.
DRIVER = """
import sys
sys.path.insert(0, sys.argv[1])
from forewarn.agent.startup import load
from forewarn.agent.log import Log
from forewarn.agent.runner import Runner
from forewarn_base.clock import SystemClock
from forewarn_base.ids import Ids
settings = load(sys.argv[2])
settings.interval_s = float(sys.argv[3])
Runner(settings, clock=SystemClock(), ids=Ids(), log=Log()).run()
"""

#: Program that prints the largest resident memory of a command, in KiB.
#:
#: A process counts that of its parent at its start, and this parent is small.
LAUNCHER = """
import os, sys
process = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(process, 0)
print(usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""


class Bench:
    """A scratch directory with the programs, and the service."""

    def __init__(self, directory: Path) -> None:
        """Build the programs."""
        self.directory = directory
        self.program = directory / "agentbench"
        self.archive = directory / "forewarn-agent.pyz"
        go = ["go", "build", "-o", str(self.program), "."]
        subprocess.run(go, cwd=ROOT / "bench/agent/go", check=True)
        build = [sys.executable, str(ROOT / "dist/agent/build.py"), str(self.archive)]
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
        self.endpoint = ""

    @contextlib.contextmanager
    def service(self) -> Iterator[None]:
        """Run the service."""
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{one.getsockname()[1]}"
        self.endpoint = f"http://{address}"
        with started([str(self.program), "serve", address]):
            until(lambda: self.ask("/count") is not None)
            yield

    def ask(self, path: str) -> str | None:
        """Send a request to the service; return None without an answer."""
        try:
            with urllib.request.urlopen(self.endpoint + path) as answer:
                text: str = answer.read().decode()
                return text
        except OSError:
            return None

    def count(self) -> int:
        """Return the number of polls."""
        return int(self.ask("/count") or 0)

    def agent(self, *, interval_s: float = 1.0, wait_s: float = 0, extra: str = "") -> list[str]:
        """Return the command of an agent with a fresh state."""
        scratch = Path(tempfile.mkdtemp(dir=self.directory))
        config = scratch / "agent.toml"
        fields = {"endpoint": self.endpoint, "program": self.program, "directory": scratch}
        shown_s = max(interval_s, 0.05)
        text = CONFIG.format(interval_s=shown_s, wait_s=wait_s, extra=extra, **fields)
        config.write_text(text)
        python = [sys.executable, "-S", "-I"]
        if interval_s >= 0.05:
            return [*python, str(self.archive), "run", "--config", str(config)]
        return [*python, "-c", DRIVER, str(self.archive), str(config), str(interval_s)]

    def poller(self, *, interval_s: float = 1.0) -> list[str]:
        """Return the command of the Go poller."""
        stamp = str(self.directory / "go-stamp")
        hook = [str(self.program), "stamp", stamp]
        return [str(self.program), "poll", self.endpoint, f"{interval_s}s", *hook]


@contextlib.contextmanager
def started(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program without output, and end it at the end of the block."""
    silent = subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=silent, stderr=silent, stdin=silent)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def until(true: object, limit_s: float = 120) -> None:
    """Wait until a function returns true."""
    assert callable(true)
    ends_s = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < ends_s, "it takes too long"
        time.sleep(0.001)


def memory_kib(pid: int) -> dict[str, int]:
    """Return the resident and proportional memory of a process, in KiB."""
    found = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(("Rss:", "Pss:")):
            found[line[:3]] = int(line.split()[1])
    return found


def processor_s(pid: int) -> float:
    """Return the processor time of a process without its children, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def memory_after(bench: Bench, command: list[str], *, polls: int) -> dict[str, int]:
    """Return the memory of a poller after an event."""
    with started(command) as process:
        first = bench.count()
        until(lambda: bench.count() >= first + 3)
        bench.ask("/show?id=E1")
        until(lambda: bench.count() >= first + 6)
        bench.ask("/show")
        until(lambda: bench.count() >= first + polls)
        return memory_kib(process.pid)


def processor_ms_per_1000(bench: Bench, command: list[str], *, polls: int) -> float:
    """Return the processor time of a thousand polls, in ms."""
    with started(command) as process:
        first = bench.count()
        until(lambda: bench.count() >= first + 50)
        count, used_s = bench.count(), processor_s(process.pid)
        until(lambda: bench.count() >= count + polls)
        done = bench.count() - count
        return (processor_s(process.pid) - used_s) * 1000 / done * 1000


def growth_kib(bench: Bench, command: list[str], *, polls: int) -> dict[str, int]:
    """Return memory after the first hundredth of many polls, and after all of them."""
    with started(command) as process:
        first = bench.count()
        until(lambda: bench.count() >= first + polls // 100)
        before = memory_kib(process.pid)["Rss"]
        until(lambda: bench.count() >= first + polls, limit_s=600)
        return {"early": before, "late": memory_kib(process.pid)["Rss"]}


def first_poll_ms(bench: Bench, *, times: int) -> float:
    """Return the median time from the start of the agent to its first poll, in ms."""
    taken = []
    for _ in range(times):
        command, first = bench.agent(), bench.count()
        begun_s = time.monotonic()
        with started(command):
            until(lambda first=first: bench.count() > first)
            taken.append((time.monotonic() - begun_s) * 1000)
    return statistics.median(taken)


def reactions_ms(
    bench: Bench, command: list[str], stamp: Path, *, times: int, just_missed: bool = False
) -> list[float]:
    """Return the times from an event's publication to the start of its hook, in ms.

    With `just_missed` each event is published right after a poll, the worst case of a poller.
    """
    taken = []
    with started(command):
        first = bench.count()
        until(lambda: bench.count() >= first + 2)
        time.sleep(1)
        for number in range(times):
            stamp.unlink(missing_ok=True)
            if just_missed:
                polls = bench.count()
                until(lambda polls=polls: bench.count() > polls)
            shown_ns = int(bench.ask(f"/show?id=R{number}-{os.getpid()}-{stamp.parent.name}") or 0)
            until(lambda: stamp.exists() and stamp.stat().st_size > 0)
            taken.append((int(stamp.read_text()) - shown_ns) / 1e6)
            bench.ask("/show")
            time.sleep(0.37 if times > 20 else 0.61)
    return sorted(taken)


def stamp_of(command: list[str]) -> Path:
    """Return the path of the file with the hook's time."""
    return Path(next(word for word in command if word.endswith(".toml"))).parent / "stamp"


def tls_extra(directory: Path) -> str:
    """Return the settings of a status endpoint with TLS and a new certificate."""
    key, cert = directory / "key.pem", directory / "cert.pem"
    if not cert.exists():
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        command += ["-subj", "/CN=localhost", "-keyout", str(key), "-out", str(cert)]
        subprocess.run(command, check=True, capture_output=True)
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    return f'[status]\nlisten = "127.0.0.1:{port}"\ncert = "{cert}"\nkey = "{key}"\n'


@contextlib.contextmanager
def api_server(directory: Path) -> Iterator[dict[str, str]]:
    """Answer as an API server over TLS; give the settings of the agent's node there."""
    tls_extra(directory)
    (directory / "token").write_text("secret")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(directory / "cert.pem", directory / "key.pem")
    node = json.dumps({"metadata": {"name": "h1"}, "status": {"conditions": []}}).encode()
    with HttpServer(lambda _: (200, node, {}), tls=tls) as server:
        yield {
            "server": f"https://localhost:{server.port}",
            "node": "h1",
            "token_file": str(directory / "token"),
            "ca_file": str(directory / "cert.pem"),
        }


def node_job_kib(bench: Bench, settings: dict[str, str]) -> int:
    """Return the largest resident memory of the process that marks the node for the agent."""
    far_ms = 4_000_000_000_000
    event = {
        "event_id": "E1",
        "event_type": "Reboot",
        "status": "Scheduled",
        "source": "Platform",
        "not_before_ms": far_ms,
        "duration_s": 60,
    }
    notice = {"facts": ["planned"], "event": event, "deadline_ms": far_ms}
    python = [sys.executable, "-S", "-I"]
    command = [*python, "-c", LAUNCHER, *python, str(bench.archive), "do", "node"]
    form = json.dumps({"settings": settings, "notice": notice})
    done = subprocess.run(command, input=form, capture_output=True, text=True, check=True)
    return int(done.stdout.splitlines()[-1])


def measure(bench: Bench, asked: Namespace) -> dict[str, object]:
    """Return every figure."""
    polls, many, times, few = asked.polls, asked.many, asked.reactions, asked.few
    long_poll = bench.agent(wait_s=60)
    paced = bench.agent()
    held = reactions_ms(bench, long_poll, stamp_of(long_poll), times=times)
    polled = reactions_ms(bench, paced, stamp_of(paced), times=times, just_missed=True)
    tls = bench.agent(interval_s=0.05, extra=tls_extra(bench.directory))
    with api_server(bench.directory) as settings:
        lines = "".join(f'{name} = "{text}"\n' for name, text in settings.items())
        extra = f"[kubernetes]\nconditions = true\n{lines}"
        marking = bench.agent(interval_s=0.05, extra=extra)
        node_kib = memory_after(bench, marking, polls=few)
        job_kib = node_job_kib(bench, settings)
    return {
        "memory_kib": {
            "agent that marks a Kubernetes node over TLS": node_kib,
            "its process that marks the node, at most": job_kib,
            "agent": memory_after(bench, bench.agent(interval_s=0.05), polls=few),
            "agent with status and TLS": memory_after(bench, tls, polls=few),
            "go": memory_after(bench, bench.poller(interval_s=0.05), polls=few),
        },
        "processor_ms_per_1000_polls": {
            "agent": processor_ms_per_1000(bench, bench.agent(interval_s=0.01), polls=polls),
            "go": processor_ms_per_1000(bench, bench.poller(interval_s=0.01), polls=polls),
        },
        "memory_over_many_polls_kib": {
            "polls": many,
            "agent": growth_kib(bench, bench.agent(interval_s=0), polls=many),
            "go": growth_kib(bench, bench.poller(interval_s=0), polls=many),
        },
        "start_to_first_poll_ms": first_poll_ms(bench, times=asked.starts),
        "reaction_ms": {
            "long poll, median": statistics.median(held),
            "long poll, p99": held[min(len(held) - 1, int(len(held) * 0.99))],
            "1 s polling, just missed, median": statistics.median(polled),
            "1 s polling, just missed, worst": polled[-1],
        },
    }


def main() -> int:
    """Measure and print."""
    parser = Parser("bench.agent", __doc__)
    parser.add_size("--polls", 2000, 300, 50, "number of polls whose processor time is measured")
    parser.add_size("--few", 60, 60, 8, "number of polls before memory is measured")
    parser.add_size("--many", 100_000, 10_000, 200, "number of polls over which memory may grow")
    parser.add_size("--reactions", 100, 20, 1, "number of measured reactions")
    parser.add_size("--starts", 21, 5, 1, "number of measured starts")
    options = parser.sized()
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(Path(scratch))
        with bench.service():
            print(json.dumps(measure(bench, options), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
