"""The fault campaign: `make chaos`.

Three control planes, metadata nodes and a database live in network namespaces. VMs poll and
approve, operators ask for work through all three, and one fault after the other strikes: processes
are killed or stopped, cables cut, clocks set wrong, disks filled, the database killed or moved.
A checker then judges everything that clients saw.

The run puts itself into namespaces of its own (processes, mounts, network), so whatever it has
started ends with it.
"""

import argparse
import contextlib
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.checker import Evidence, begun_of, violations
from tests.chaos.clients import (
    POLL_S,
    PROBE_S,
    Evictions,
    Operators,
    Probes,
    Record,
    Rush,
    VirtualMachine,
    Worker,
    gap_ms,
    now_ms,
)
from tests.chaos.faults import FAULTS, HANG_S, QUICK, Fault, faults_of
from tests.chaos.scene import NODES, PLANES, SPOT_HOSTS, VMS, Scene
from tests.e2e.cloud import run
from tests.waiting import wait_until

INSIDE = "FOREWARN_CHAOS_INSIDE"
#: Variable with the path of the run's control group.
GROUP = "FOREWARN_CHAOS_GROUP"
NAMESPACES = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
NEEDED = ("ip", "unshare", "setpriv", "openssl", "mount")
NEEDED_BY = {
    "patroni": ("patroni", "etcd"),
    "asynchronous": ("patroni", "etcd"),
    "pooler": ("pgbouncer",),
}
#: Longest time after a fault until everything works again, in seconds.
RECOVERED_S_MAX = 90.0
#: How many times as long that may take on a busy machine, where a process takes minutes to start.
BUSY_TIMES = 5
#: Longest time at the end until all work has ended, in seconds.
SETTLED_S_MAX = 150.0
#: Longest wait for an answer at the end, in seconds; without it nothing could be judged.
ANSWERED_S_MAX = 600.0
#: How often a second fault strikes before the first has healed.
DOUBLE_CHANCE = 0.2
#: How long each fault of the short form stays, in seconds.
SHORT_HOLD_S = 0.3
OPERATE_S, EVICT_S = 0.5, 0.5
#: Fields of `Gap` with a bound.
GAPS = ("polls_ms", "leader_ms")
#: Share of faults of a kind that may exceed their bound.
OVER_SHARE = 0.05
#: Share of the time in which a process of the run waited for a processor, beyond which times say
#: more about the machine than about the service.
STALLED_SHARE_MAX = 0.2
#: Where Linux mounts the second version of control groups.
CONTROL_GROUPS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
#: Problems that are printed.
PROBLEMS_MAX = 50
KEPT = Path(".build/chaos")


@dataclass(frozen=True)
class Gap:
    """What one fault interrupted, in milliseconds."""

    polls_ms: int
    leader_ms: int
    #: Whether the machine was too busy for this to be judged.
    overloaded: bool = False


class Pressure:
    """How much of the time the run's own processes want a processor and have none.

    The kernel counts it for the control group that holds the run and all that it starts. Other
    work on the machine then counts only as far as it delays the run: a run with priority can
    be judged beside other work. Without such a group, the whole machine is counted.
    """

    def __init__(self) -> None:
        """Begin to count."""
        group = os.environ.get(GROUP)
        self._file = Path(group, "cpu.pressure") if group else Path("/proc/pressure/cpu")
        self._stalled_us, self._at_s = self._read(), time.monotonic()

    def _read(self) -> int:
        """Return the microseconds in which some process waited for a processor."""
        with contextlib.suppress(OSError):
            return int(self._file.read_text().splitlines()[0].rpartition("total=")[2])
        return 0

    def share(self) -> float:
        """Return the share of the time since the last call, 0 to 1."""
        stalled_us, at_s = self._read(), time.monotonic()
        share = (stalled_us - self._stalled_us) / 1e6 / max(at_s - self._at_s, 1e-3)
        self._stalled_us, self._at_s = stalled_us, at_s
        return share


def late(name: str, bound_s: float, gaps: Sequence[Gap]) -> list[str]:
    """Return how a kind of fault broke its bound.

    Few may exceed it, because the machine may be slow for a moment; none may exceed it twice.
    """
    judged = [each for each in gaps if not each.overloaded]
    polls, leads = ([getattr(each, of) / 1000 for each in judged] for of in GAPS)
    problems = []
    over = [each for each in polls if each > bound_s]
    if len(over) > max(1, OVER_SHARE * len(judged)) or max(over, default=0) > 2 * bound_s:
        times = ", ".join(f"{each:.1f}" for each in over)
        problems.append(f"{name}: polls unanswered for more than {bound_s:g} s: {times} s")
    if max(leads, default=0) > HANG_S:
        problems.append(f"{name}: no leader for {max(leads):.1f} s, more than {HANG_S:g}")
    return problems


@dataclass
class Campaign:
    """Faults on one scene, and what comes of them."""

    scene: Scene
    seed: int
    record: Record = field(default_factory=Record)
    #: Whether each quick fault strikes once, for a moment only.
    short: bool = False
    #: Name of the only fault; empty: every fault.
    only: str = ""
    pressure: Pressure = field(default_factory=Pressure)
    gaps: dict[str, list[Gap]] = field(default_factory=lambda: defaultdict(list))
    problems: list[str] = field(default_factory=list)
    #: Never set: faults stay for as long as it is waited for.
    _hold: threading.Event = field(default_factory=threading.Event)

    def play(self, count: int) -> None:
        """Strike this many times, settle, and judge."""
        chance = random.Random(self.seed)
        scene = self.scene
        vms = [
            VirtualMachine(name, host, self.record, random.Random(f"{self.seed} {name}"))
            for name, host in VMS.items()
        ]
        operators = Operators(scene, self.record, random.Random(self.seed + 1))
        # Their notice of 30 s would outlast a short run.
        hosts = () if self.short else SPOT_HOSTS
        scene.rush = Rush(operators, self.record, self.seed).go
        evictions = [Evictions(operators, self.record, host, self.seed) for host in hosts]
        if not scene.await_ready(RECOVERED_S_MAX):
            raise AssertionError("the scene did not start")
        probes = Probes(self.record)
        pollers = [Worker(vm.live, POLL_S) for vm in vms]
        askers = [Worker(operators.work, OPERATE_S)]
        askers += [Worker(each.go_on, EVICT_S) for each in evictions]
        number = 0
        for chosen in self._drawn(chance, count):
            number += len(chosen)
            self._strike(f"{number}/{count}", chosen, chance)
        for machine in (*PLANES, *NODES):
            scene.skew(machine, 0)
        for each in askers:
            each.stop()
        for vm in vms:
            vm.approves = 1.0
        try:
            busy = self.pressure.share() > STALLED_SHARE_MAX
            limit_s = SETTLED_S_MAX * (BUSY_TIMES if busy else 1)
            wait_until(operators.settled, what="the end of all work", limit_s=limit_s, every_s=0.5)
        except AssertionError as error:
            self.problems.append(str(error))
        for poller in pollers:
            poller.stop()
        for eviction in evictions:
            eviction.stop()
        probes.stop()
        self.problems += scene.problems
        self.problems += violations(self._evidence(operators))
        self.problems += self._late()

    def _drawn(self, chance: random.Random, count: int) -> Iterator[list[Fault]]:
        """Yield the faults that strike together, one or two, until there were `count`."""
        faults = [each for each in faults_of(self.scene.kind) if self.only in {"", each.name}]
        if self.short:
            quick = [each for each in faults if each.name in QUICK]
            chance.shuffle(quick)
            yield from ([each] for each in quick[:count])
            return
        weights = [each.weight for each in faults]
        while count > 0:
            together = min(count, 2 if chance.random() < DOUBLE_CHANCE else 1)
            chosen = chance.choices(faults, weights, k=together)
            chosen = next(([each] for each in chosen if each.alone), chosen)
            yield chosen
            count -= len(chosen)

    def _strike(self, number: str, faults: Sequence[Fault], chance: random.Random) -> None:
        begin_ms = now_ms()
        heals = []
        words = []
        for fault in faults:
            what, heal = fault.strike(self.scene, chance)
            words.append(f"{fault.name}: {what}".rstrip(": "))
            heals.append((fault, heal))
        for fault, heal in heals:
            self._hold.wait(SHORT_HOLD_S if self.short else chance.uniform(*fault.hold_s))
            heal()
        recovered = self._recovers()
        self._hold.wait(3 * PROBE_S)  # the probes see it, too
        end_ms = now_ms()
        polls_ms = gap_ms(self.record.polled_ms, begin_ms, end_ms)
        leads_ms = gap_ms(self.record.led_ms, begin_ms, end_ms)
        name = " + ".join(sorted(fault.name for fault in faults))
        share = self.pressure.share()
        self.gaps[name].append(Gap(polls_ms, leads_ms, share > STALLED_SHARE_MAX))
        times = f"polls {polls_ms / 1000:5.1f} s, leader {leads_ms / 1000:5.1f} s"
        times += f", stalled {share:4.0%}"
        at = time.strftime("%H:%M:%S", time.gmtime(begin_ms / 1000))
        print(f"{at} {number:>9}  {'; '.join(words):<62} {times}", flush=True)
        if not recovered:
            self.problems.append(f"not whole {RECOVERED_S_MAX:g} s after {'; '.join(words)}")

    def _recovers(self) -> bool:
        """Wait until everything works again, for longer on a busy machine; whether it does."""
        for _ in range(BUSY_TIMES):
            if self.scene.await_ready(RECOVERED_S_MAX):
                return True
            if self.pressure.share() <= STALLED_SHARE_MAX:
                break
        return False

    def _evidence(self, operators: Operators) -> Evidence:
        operations = {}
        before = ""
        while True:
            page = _insist(operators, f"/v1/operations?limit=100{before}")
            for each in page["operations"]:
                operations[each["id"]] = _insist(operators, f"/v1/operations/{each['id']}")
            if page["next"] is None:
                break
            before = f"&before={page['next']}"
        history: list[dict[str, Any]] = []
        after = 0
        while entries := _insist(operators, f"/v1/history?limit=500&after={after}")["entries"]:
            history += entries
            after = entries[-1]["sequence"]
        return Evidence(
            self.record,
            begun_of(self.scene.begins.read_text().splitlines()),
            operations,
            history,
            frozenset(NODES),
            self.scene.lost_ms,
        )

    def _late(self) -> list[str]:
        """Return which bounds were broken; the short form has too few faults to judge that."""
        bounds = {each.name: each.bound_s for each in FAULTS if each.bound_s and not self.short}
        return [
            problem
            for name, bound_s in bounds.items()
            for problem in late(name, bound_s, self.gaps[name])
        ]

    def table(self) -> str:
        """Return the times without answers for each kind of fault."""
        lines = [f"{'fault':<46}{'times':>6}{'polls: median':>15}{'worst':>8}{'leader: worst':>15}"]
        bounds = {each.name: each.bound_s for each in FAULTS}
        for name, gaps in sorted(self.gaps.items()):
            if " + " in name or not gaps:
                continue
            polls, leads = ([getattr(each, of) / 1000 for each in gaps] for of in GAPS)
            bound = f"   at most {bounds[name]:g} s" if bounds[name] else ""
            lines.append(
                f"{name:<46}{len(gaps):>6}{statistics.median(polls):>13.1f} s{max(polls):>6.1f} s"
                f"{max(leads):>13.1f} s{bound}"
            )
        alone = [each for name, gaps in self.gaps.items() if " + " not in name for each in gaps]
        judged = sum(not each.overloaded for each in alone)
        lines.append(f"time limits judged for {judged} of {len(alone)} faults (machine not busy)")
        log = self.record.log
        lines.append(
            f"{len(log.reads)} documents read, {len(log.approvals)} approvals,"
            f" {len(self.record.requests)} changes by operators"
        )
        return "\n".join(lines)


def _insist(operators: Operators, path: str) -> dict[str, Any]:
    """Read something, however long nobody answers."""
    answer: dict[str, Any] = {}

    def answered() -> bool:
        answer.update(operators.read(path))
        return bool(answer)

    wait_until(answered, what=path, limit_s=ANSWERED_S_MAX)
    return answer


def missing(kinds: Sequence[str]) -> str:
    """Name what the run needs and does not find; empty: nothing."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    wanted = [*NEEDED, *(name for kind in kinds for name in NEEDED_BY.get(kind, ()))]
    absent = [each for each in wanted if not shutil.which(each, path=path)]
    if os.geteuid() != 0:
        return "chaos needs root: it makes network namespaces"
    return f"chaos needs {', '.join(absent)}" if absent else ""


def play(kind: str, count: int, seed: int, *, short: bool = False, only: str = "") -> list[str]:
    """Play one campaign with one kind of database; return what went wrong."""
    directory = Path(tempfile.mkdtemp(prefix="forewarn-chaos-"))
    run("mount", "-t", "tmpfs", "-o", "mode=755", "none", str(directory))
    scene = Scene(directory, kind)
    campaign = Campaign(scene, seed, short=short, only=only)
    whole = False
    try:
        began_s = time.monotonic()
        scene.start()
        print(f"{kind}: {count} faults, seed {seed}; ready", flush=True)
        campaign.play(count)
        print(f"{campaign.table()}\n{time.monotonic() - began_s:.0f} s", flush=True)
        whole = not campaign.problems
    finally:
        scene.stop()
        if not whole:
            _keep_logs(scene, kind)
        run("umount", "--recursive", "--lazy", str(directory))
        directory.rmdir()
    return campaign.problems


def _keep_logs(scene: Scene, kind: str) -> None:
    folder = KEPT / kind
    folder.mkdir(parents=True, exist_ok=True)
    for log in (
        *scene.directory.glob("**/c?.log"),
        *scene.directory.glob("*.log"),
        *scene.database.directory.glob("*.log"),
    ):
        shutil.copy(log, folder)
    if scene.begins.exists():
        shutil.copy(scene.begins, folder)
    print(f"logs: {folder}", flush=True)


def main() -> int:
    """Play campaigns; status 1: something went wrong."""
    parser = argparse.ArgumentParser(prog="make chaos ARGS=")
    parser.add_argument("--faults", type=int, default=90, help="(default: 90)")
    parser.add_argument("--seed", type=int, default=1, help="(default: 1)")
    parser.add_argument(
        "--databases",
        default="patroni,asynchronous,pooler",
        help="of single, pooler, patroni and asynchronous (Patroni, whose replicas may lack"
        " commits), with commas",
    )
    parser.add_argument(
        "--short", action="store_true", help="each quick fault once, with a single PostgreSQL"
    )
    parser.add_argument("--only", default="", help="name of the only fault")
    arguments = parser.parse_args()
    if arguments.short:
        arguments.databases, arguments.faults = "single", len(QUICK)
    kinds = arguments.databases.split(",")
    if lacks := missing(kinds):
        print(lacks)
        return 1
    if len(kinds) == 1 and os.environ.get(INSIDE):
        enter_namespaces()
        how = {"short": arguments.short, "only": arguments.only}
        problems = play(kinds[0], arguments.faults, arguments.seed, **how)
        for each in problems[:PROBLEMS_MAX]:
            print(f"WRONG: {each}")
        count = f"{len(problems)} violations" if problems else "nothing lost, doubled, early or old"
        print(f"{kinds[0]}: {count}", flush=True)
        return 1 if problems else 0
    status = 0
    shares = [arguments.faults // len(kinds)] * len(kinds)
    shares[0] += arguments.faults - sum(shares)
    for kind, share in zip(kinds, shares, strict=True):
        words = ["--databases", kind, "--faults", str(share), "--seed", str(arguments.seed)]
        words += ["--short"] if arguments.short else []
        words += ["--only", arguments.only] if arguments.only else []
        status |= inside("tests.chaos", *words).returncode
    return status


def inside(module: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a module in namespaces and a control group of its own, which end with it."""
    # The shell collects processes whose parent has ended.
    shell = ("sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-m", module, *words)
    command = ["unshare", *NAMESPACES, *shell]
    environment = {**os.environ, INSIDE: "1"}
    with control_group() as group:
        if group:
            environment[GROUP] = str(group)
            command = ["sh", "-c", 'echo $$ >"$0/cgroup.procs"; exec "$@"', str(group), *command]
        return subprocess.run(command, env=environment, text=True, check=False)


@contextlib.contextmanager
def control_group() -> Iterator[Path | None]:
    """Make a control group of the second version; None where the machine has none to write to."""
    for mount in CONTROL_GROUPS:
        group = mount / f"forewarn-chaos-{os.getpid()}"
        with contextlib.suppress(OSError):
            if (mount / "cgroup.procs").exists() and (mount / "cgroup.controllers").exists():
                group.mkdir()
                break
    else:
        yield None
        return
    try:
        yield group
    finally:
        with contextlib.suppress(OSError):  # something in it has not ended yet
            group.rmdir()


def enter_namespaces() -> None:
    """Hide the network namespaces of the machine: those of the run take their names."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    Path("/run/netns").mkdir(exist_ok=True)
    run("mount", "-t", "tmpfs", "none", "/run/netns")


if __name__ == "__main__":
    sys.exit(main())
