"""Compares plans of designed and generated fleets with `hroller`; prints waves and seconds.

`hroller` reads each fleet from a file in its own format. Its time includes reading the file, and
our time includes creating a fleet from the same description. Every plan passes the independent
checker.
"""

from __future__ import annotations

import gc
import platform
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.planner.exact import fewest_waves, solver
from bench.planner.fleets import POLICY, everyone, loaded, mixed, paired
from bench.planner.ganeti import Cluster
from bench.sizes import Parser
from forewarn_core.planning.checker import check
from forewarn_core.planning.fleet import Fleet
from forewarn_core.planning.plan import FleetState, Plan
from forewarn_core.planning.planner import plan
from forewarn_core.planning.policy import MaintenancePolicy

#: Maximum number of hosts in a node group of the largest designed fleet.
GROUP_OF = {2000: 50}
STEPS = 100_000
#: Time of the plans: Wednesday, 2026-07-01 00:00 UTC.
NOW_MS = 1_782_864_000_000


def planned(fleet: Fleet, policy: MaintenancePolicy, steps: int) -> Plan:
    """Plan all hosts of a fleet."""
    state, request = everyone(fleet, steps)
    return plan(fleet, state, policy, now_ms=NOW_MS, request=request)


def judged(found: Plan, fleet: Fleet, policy: MaintenancePolicy) -> Plan:
    """Return a plan after a check by the independent checker."""
    state, _ = everyone(fleet, 0)
    findings = check(found, fleet, state=state, policy=policy)
    assert not findings, findings[:3]
    return found


def ours(cluster: Cluster, steps: int) -> tuple[int, int, float]:
    """Return waves, their bound, and seconds."""
    begun = time.perf_counter()
    fleet = cluster.fleet()
    found = planned(fleet, MaintenancePolicy(), steps)
    took_s = time.perf_counter() - begun
    judged(found, fleet, MaintenancePolicy())
    assert not found.blocked, found.blocked[:3]
    return len(found.waves), found.bound.waves, took_s


def theirs(cluster: Cluster, limit_s: float) -> tuple[int, float]:
    """Return hroller's reboot groups and seconds; 0 groups if hroller is missing or too slow."""
    if not shutil.which("hroller"):
        return 0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "cluster.data")
        path.write_text(cluster.text(), "utf-8")
        command = ["hroller", "--force", "--no-headers", "-t", str(path)]
        begun = time.perf_counter()
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=True, timeout=limit_s
            )
        except subprocess.TimeoutExpired:
            return 0, limit_s
        took_s = time.perf_counter() - begun
    waves = [line.split(",") for line in done.stdout.splitlines() if line]
    assert sum(map(len, waves)) == len(cluster.nodes), done.stdout[-200:]
    return len(waves), took_s


def designed(sizes: Sequence[int], limit_s: float) -> None:
    """Compare both planners on designed fleets."""
    print(f"{'hosts':>7} {'group of':>9} {'hroller':>16} {'Forewarn':>16} {'bound':>6}")
    for hosts in sizes:
        per_group = GROUP_OF.get(hosts, hosts)
        cluster = paired(hosts, per_group, 1)
        waves, bound, took_s = ours(cluster, STEPS)
        rival, rival_s = theirs(cluster, limit_s)
        print(
            f"{hosts:>7} {per_group:>9} {rival:>6} {rival_s:>7.2f} s"
            f" {waves:>6} {took_s:>7.2f} s {bound:>6}",
            flush=True,
        )


def seeded(count: int, limit_s: float) -> None:
    """Count the small fleets on which one planner needs fewer waves than the other."""
    fewer = same = more = 0
    seconds: list[tuple[float, float]] = []
    for seed in range(count):
        hosts = 8 + seed % 53
        cluster = paired(hosts, hosts if seed % 3 else 20, seed, vms=2 + seed % 9)
        waves, _, took_s = ours(cluster, STEPS // 10)
        rival, rival_s = theirs(cluster, limit_s)
        seconds.append((took_s, rival_s))
        fewer, same, more = fewer + (waves < rival), same + (waves == rival), more + (waves > rival)
    middle = [statistics.median(each) * 1000 for each in zip(*seconds, strict=True)]
    print(
        f"\n{count} seeded fleets of 8 to 60 hosts: fewer waves than hroller on {fewer},"
        f" as many on {same}, more on {more}; median {middle[0]:.1f} ms, hroller {middle[1]:.1f} ms"
    )


def optimal(count: int) -> None:
    """Count the small fleets on which a plan has the minimum number of waves."""
    known = solver()
    if known is None:
        print("\nno OR-tools: nothing is compared with the exact optimum")
        return
    more, solved = Counter[int](), 0
    for seed in range(count):
        hosts = 8 + seed % 33
        cluster = paired(hosts, hosts, seed, vms=1 + seed % 5)
        waves, _, _ = ours(cluster, STEPS // 10)
        fewest = fewest_waves(known, cluster.fleet(), waves)
        solved += fewest > 0
        more[waves - fewest] += fewest > 0
    told = ", ".join(f"{n} more on {more[n]}" for n in sorted(more) if n and more[n])
    print(
        f"\n{solved} of {count} seeded fleets of 8 to 40 hosts solved exactly by OR-tools:"
        f" as few waves as there can be on {more[0]}, {told or 'more on none'}",
        flush=True,
    )


def large(hosts: int, steps: int) -> None:
    """Plan a large fleet of mixed shapes with windows and budgets."""
    fleet = mixed(hosts, hosts // 2, 1)
    gc.collect()
    begun = time.perf_counter()
    found = planned(fleet, POLICY, steps)
    took_s = time.perf_counter() - begun
    most_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    begun = time.perf_counter()
    judged(found, fleet, POLICY)
    checked_s = time.perf_counter() - begun
    print(
        f"\n{hosts:,} hosts, {len(fleet.vm_hosts):,} VMs, {len(fleet.groups):,} groups:"
        f" {len(found.waves)} waves, bound {found.bound.waves}"
        f" ({len(found.waves) / found.bound.waves:.2f}), {len(found.blocked)} hosts blocked,"
        f" {took_s:.1f} s, {most_gib:.2f} GiB; the checker {checked_s:.1f} s"
    )


def moving(hosts: int) -> None:
    """Plan hosts at 80 % of their capacity whose VMs move before the work."""
    fleet = loaded(hosts, 1)
    _, request = everyone(fleet, 0)
    begun = time.perf_counter()
    request, policy = replace(request, move_s=1800), MaintenancePolicy()
    found = plan(fleet, FleetState(), policy, now_ms=NOW_MS, request=request)
    took_s = time.perf_counter() - begun
    begun = time.perf_counter()
    findings = check(found, fleet, state=FleetState(), policy=policy)
    checked_s = time.perf_counter() - begun
    assert not findings, findings[:3]
    moves = sum(len(entry.moves) for entry in found.entries)
    print(
        f"\n{hosts:,} hosts at 80 %, {len(fleet.vm_hosts):,} VMs: {moves:,} moves"
        f" in {len(found.waves)} waves, {len(found.blocked)} hosts blocked,"
        f" {took_s:.1f} s; the checker {checked_s:.1f} s"
    )


def hroller_version() -> str:
    """Return the first line of `hroller --version`."""
    if not shutil.which("hroller"):
        return "no hroller"
    command = ["hroller", "--version"]
    version = subprocess.run(command, capture_output=True, text=True, check=True)
    return version.stdout.splitlines()[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = Parser("bench.planner", __doc__)
    every = (200, 500, 1000, 2000)
    parser.add_size("--designed", every, (200, 500, 2000), (40,), "hosts of the designed fleets")
    parser.add_size("--fleets", 1000, 50, 3, "number of seeded fleets")
    parser.add_size("--exact", 100, 20, 2, "number of fleets for the exact solver")
    parser.add_size("--moving", 2000, 2000, 40, "hosts of the fleet whose VMs move")
    parser.add_size("--large", 100_000, 10_000, 400, "hosts of the large fleet")
    parser.add_size("--hroller-s", 600.0, 20.0, 20.0, "time limit of each run of hroller, in s")
    chosen = parser.sized(arguments)
    print(f"Python {platform.python_version()} on {platform.machine()}, one core")
    print(f"{hroller_version()}\n", flush=True)
    designed(chosen.designed, chosen.hroller_s)
    seeded(chosen.fleets, chosen.hroller_s)
    optimal(chosen.exact)
    moving(chosen.moving)
    large(chosen.large, 0)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
