"""Every benchmark runs to its end in its smallest size and prints its figures."""

import os
import re
import sys
from pathlib import Path

import pytest

from bench.sizes import Parser
from tests.agent.programs import program, running
from tests.waiting import LIMIT_S, wait_until

ROOT = Path(__file__).resolve().parents[2]
#: Benchmark -> what it prints at the end.
FIGURES = {
    "access": r"permission check: [\d.]+ us(.|\n)*audit of [\d,]+ records: [\d.]+ s",
    "agent": r'"reaction_ms": {\s+"long poll, median": [\d.]+',
    "growth": r"\n +0\.1 +[\d,]+ +[\d.]+ +[\d.]+",
    "latency": r"last approval to Started +\| +[\d.]+",
    "latency.rush": r"PostgreSQL \| \+0 ms \| [\d.]+ \| [\d.]+ \| [\d.]+ \| 0",
    "lost_work": r"900 s, notice and consent \| [\d.]+, [\d.]+ \| [-+]\d+%",
    "maintenance": r"approvals: [\d.]+ ms median(.|\n)*promises broken: 0",
    "metadata": r"keep-alive per_s +[\d,.]+(.|\n)*idle connection_kib +[\d,.]+",
    "nodes": r"400 VMs over 40 nodes, 2 control planes, mutual TLS: all nodes follow",
    "nodes.region": r"400 VMs over 40 nodes, 2 control planes, mutual TLS: all nodes follow",
    "page": r'"dragging_named_cells_frames_a_second": [\d.]+',
    "planner": r"400 hosts, [\d,]+ VMs, [\d,]+ groups: \d+ waves",
    "scale": r"resident, MiB \| [\d.]+ \| [\d.]+",
    "scale.declared": r"choice of a host.s owners, stored +[\d.]+ ms(.|\n)*the plan after that",
    "scale.live": r"while 20 hosts are planned \([\d.]+ s\) and announced \| [\d.]+",
    "scale.planned": r"the maintenance is paused +[\d.]+ ms",
    "scale.portion": r"a portion: [\d.]+ ms median",
    "start": r"start to first answer +median +\d+ ms",
    "start.takeover": r"takeover after SIGKILL: [\d.]+ s(.|\n)*all nodes follow [\d.]+ s later",
    "store.run": r"commit: PostgreSQL, Unix socket +[\d,]+",
    "trace": r"moves, quantile 0\.99, \d+ min \| \d+ \(\d+\) \| [\d.]+",
    "telemetry": r"a scrape under that load +\d+ ms",
}
#: Run by the tests of hostile texts, which look closer at what it prints.
ELSEWHERE = {"attack"}
#: Nine tenths of the time of all; mypy checks their calls of the product before each change.
LONG = (
    *("agent", "growth", "latency.rush", "nodes", "nodes.region", "page", "scale"),
    *("scale.declared", "scale.live", "start.takeover", "store.run", "trace"),
)
#: Other programs of a benchmark; without one, its test is skipped.
PROGRAMS = {
    "agent": ("go", "openssl"),
    "metadata": ("go", "nginx", "wrk"),
    "page": ("chromium",),
    "telemetry": ("wrk",),
}
POSTGRES = ("latency.rush", "start.takeover", "store.run")
#: Time limit of a benchmark, which waits for several processes in turn.
LIMITS_S = 15 * LIMIT_S


def case(name: str) -> object:
    """Return a parameter, with the markers of its database and its time."""
    marks = [pytest.mark.postgres] if name in POSTGRES else []
    return pytest.param(name, marks=[*marks, pytest.mark.nightly] if name in LONG else marks)


@pytest.mark.slow
@pytest.mark.parametrize("name", [case(each) for each in FIGURES])
def test_a_benchmark_prints_its_figures(name: str, tmp_path: Path) -> None:
    """A benchmark that does not follow a change of the core fails here, not at a release."""
    found = {str(Path(program(each)).parent) for each in PROGRAMS.get(name, ())}
    path = os.pathsep.join([os.environ["PATH"], *found])
    log = tmp_path / "output"
    command = (sys.executable, "-m", f"bench.{name}", "--smoke")
    env = {"PATH": path, "PYTHONPATH": str(ROOT)}
    with running(*command, log=log, env=env) as process:
        wait_until(lambda: process.poll() is not None, what=name, limit_s=LIMITS_S, every_s=0.1)
    printed = log.read_text("utf-8")
    assert process.returncode == 0, printed
    assert re.search(FIGURES[name], printed), printed


def test_each_benchmark_has_a_smoke_size() -> None:
    """Benchmarks are found by the package's files and the commands of the Makefile."""
    commands = re.findall(r"python -m bench\.([\w.]+)", (ROOT / "Makefile").read_text("utf-8"))
    packages = [path.parent.name for path in (ROOT / "bench").glob("*/__main__.py")]
    assert {*commands, *packages} <= set(FIGURES) | ELSEWHERE


@pytest.mark.parametrize(
    ("options", "rounds", "hosts"),
    [([], 9, (9, 8)), (["--quick"], 3, (3,)), (["--smoke", "--rounds", "7"], 7, (1,))],
)
def test_an_option_overrides_a_size(options: list[str], rounds: int, hosts: object) -> None:
    """`--quick` and `--smoke` only change defaults."""
    parser = Parser("bench.x", None)
    parser.add_size("--rounds", 9, 3, 1, "rounds")
    parser.add_size("--hosts", (9, 8), (3,), (1,), "hosts")
    chosen = parser.sized(options)
    assert (chosen.rounds, chosen.hosts) == (rounds, hosts)
