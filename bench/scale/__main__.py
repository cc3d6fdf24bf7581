"""Measures the cost of each use case for growing fleets; the ratio is the result.

For each size a store is filled by one process and opened by another, which then takes orders,
approvals, reports and changes one after another: the real control plane on SQLite, on one core,
each step committed. A host has 10 VMs, a group 20 on as many hosts, in 5 fault domains; 1 VM in 50
has an operation, a quarter of these only planned, since others are in their way.
"""

from __future__ import annotations

import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import SUPPRESS
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bench.sizes import Parser
from forewarn_base.ids import Ids
from forewarn_base.values import replace
from forewarn_core.fleet.document import Enrolment, fresh
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.state import Changes
from forewarn_core.fleet.step import StepResult, joined, take
from forewarn_core.fleet.stimulus import (
    ChangeTopology,
    DriverBegun,
    DriverDone,
    NoticeShown,
    PlaneStimulus,
    RequestMaintenance,
)
from forewarn_core.fleet.topology import Group, Host, Vm
from forewarn_core.requests import ApprovalRequest
from forewarn_server.control.plane import ControlPlane
from forewarn_store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


_T = TypeVar("_T")

VMS_A_HOST = 10
#: Number of hosts in a block; a group has a VM on each host of a block.
BLOCK = 20
#: Hosts of a block with announced work, and a host of another fault domain with planned work.
ANNOUNCED, PLANNED = (0, 1, 2), 4
#: The host of a block with the measured work.
MEASURED = 3
NOW_MS = 1_790_000_000_000
CHUNK = 50_000
TARGETS = 500
#: The measured use cases, in the order of the table.
CASES = ("approve", "driver done", "order for one host", "change of one VM", "next deadline")


def fill(folder: Path, vms: int) -> None:
    """Create a store with a fleet, enabled groups and work."""
    hosts = vms // VMS_A_HOST
    groups = [f"g{n}" for n in range(hosts // BLOCK * VMS_A_HOST)]
    store = open_store(str(folder / "scale.db"))
    store.load()
    for numbers in _parts(range(hosts)):
        changes = Changes(last_number=0)
        changes.hosts.update((f"h{n}", Host(f"h{n}", n % BLOCK // 4, n % BLOCK)) for n in numbers)
        store.commit(changes)
    for names in _parts(groups):
        changes = Changes(last_number=0)
        for name in names:
            changes.groups[name] = Group(name, owner=f"owner-{len(name)}")
            changes.enrolments[name] = Enrolment(name, NOW_MS, NOW_MS)
            changes.views[name] = fresh(name, name)
        store.commit(changes)
    for numbers in _parts(range(hosts)):
        machines = [_vm(host, place) for host in numbers for place in range(VMS_A_HOST)]
        store.commit(Changes(last_number=0, vms={vm.name: vm for vm in machines}))
    store.close()
    plane = _plane(folder)
    for wanted in (ANNOUNCED, (PLANNED,)):
        for part in _parts([f"h{n}" for n in range(hosts) if n % BLOCK in wanted], TARGETS):
            told = _tell(plane, RequestMaintenance(cause=Cause.HOST_UPDATE, targets=tuple(part)))
            if told.announced:
                _tell(plane, NoticeShown(told.announced))
    plane.store.close()


def _parts(things: Sequence[_T], count: int = CHUNK) -> Iterator[Sequence[_T]]:
    for first in range(0, len(things), count):
        yield things[first : first + count]


def _vm(host: int, place: int) -> Vm:
    number = host * VMS_A_HOST + place
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    return Vm(
        f"vm-{number}",
        f"h{host}",
        f"g{host // BLOCK * VMS_A_HOST + place}",
        size="Standard_D4s_v5",
        addresses=(address,),
        location="north",
        resource_group=f"rg-{host // BLOCK}",
        subscription="9c4c2f1e-7a55-4d1b-9d0e-0c0f7f5f0b11",
    )


def _plane(folder: Path) -> ControlPlane:
    ids = Ids(random.randrange(2**32))
    store = open_store(str(folder / "scale.db"))
    return ControlPlane(store, NoticePolicy(), lambda: ids.guid("event"))


def _tell(plane: ControlPlane, stimulus: PlaneStimulus) -> StepResult:
    return plane.commit(stimulus, actor="bench", now_ms=NOW_MS)


class StepTimes:
    """The time that functions of the core take, added up, without the commit."""

    def __init__(self) -> None:
        """Begin at zero, and time the functions that the control plane calls."""
        self.total_s = 0.0
        plane = vars(sys.modules[ControlPlane.__module__])
        for function in (take, joined):
            plane[function.__name__] = self._timed(function)

    def _timed(self, function: Callable[..., _T]) -> Callable[..., _T]:
        def timed(*given: object, **named: object) -> _T:
            begun = time.perf_counter()
            try:
                return function(*given, **named)
            finally:
                self.total_s += time.perf_counter() - begun

        return timed


class Measured:
    """Total times and step times of each use case, in ms."""

    def __init__(self, plane: ControlPlane) -> None:
        """Observe the steps of a control plane."""
        self._plane = plane
        self.whole: defaultdict[str, list[float]] = defaultdict(list)
        self.step: defaultdict[str, list[float]] = defaultdict(list)
        self._times = StepTimes()

    def tell(self, case: str, stimulus: PlaneStimulus) -> StepResult:
        """Send a stimulus to the control plane, and record its duration."""
        self._times.total_s = 0.0
        begun = time.perf_counter()
        told = _tell(self._plane, stimulus)
        self.whole[case].append((time.perf_counter() - begun) * 1000)
        self.step[case].append(self._times.total_s * 1000)
        return told

    def ask(self, case: str, query: Callable[[], object]) -> None:
        """Record the duration of a query."""
        begun = time.perf_counter()
        query()
        took_ms = (time.perf_counter() - begun) * 1000
        self.whole[case].append(took_ms)
        self.step[case].append(took_ms)


def measure(folder: Path, vms: int, rounds: int) -> dict[str, Any]:
    """Open a store, and run work on one host after another."""
    begun = time.perf_counter()
    plane = _plane(folder)
    loaded_s = time.perf_counter() - begun
    plane.recover(NOW_MS)
    started_s = time.perf_counter() - begun
    loaded_mib = _resident_mib()
    measured = Measured(plane)
    blocks = random.Random(1).sample(range(vms // VMS_A_HOST // BLOCK), rounds)
    for block in blocks:
        _work_on(plane, measured, block * BLOCK + MEASURED)
    found = {
        case: [
            statistics.median(measured.whole[case]),
            statistics.quantiles(measured.whole[case], n=100)[98],
            statistics.median(measured.step[case]),
            statistics.quantiles(measured.step[case], n=100)[98],
        ]
        for case in CASES
    }
    return {
        "cases": found,
        "load_s": loaded_s,
        "start_s": started_s,
        "resident_mib": loaded_mib,
        "operations": len(plane.state.operations),
    }


def _work_on(plane: ControlPlane, measured: Measured, host: int) -> None:
    """Run work on one host from order to end, and change a VM on another host."""
    ask = RequestMaintenance(cause=Cause.HOST_UPDATE, targets=(f"h{host}",))
    told = measured.tell("order for one host", ask)
    [operation] = told.operations
    _tell(plane, NoticeShown(told.announced))
    for event_id in operation.events:
        name = plane.state.events[event_id].resources[0]
        measured.tell("approve", ApprovalRequest(name, (event_id,), ""))
    _tell(plane, DriverBegun(operation.number, 1))
    measured.tell("driver done", DriverDone(operation.number, 1))
    vm = plane.state.topology.vms[f"vm-{(host + BLOCK // 2) * VMS_A_HOST}"]
    measured.tell("change of one VM", ChangeTopology(vms=(replace(vm, size="Standard_D8s_v5"),)))
    measured.ask("next deadline", lambda: plane.next_deadline_ms(NOW_MS))


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _cell(median: float, high: float, step_median: float, step_high: float) -> str:
    return f"{median:.3f} / {high:.3f} ({step_median:.3f} / {step_high:.3f})"


def report(found: dict[int, dict[str, Any]]) -> None:
    """Print the tables of the page, and the ratio between the largest and the smallest size."""
    sizes = sorted(found)
    print("\n| use case | " + " | ".join(f"{size:,} VMs" for size in sizes) + " | ratio |")
    print("|---|" + "---|" * (len(sizes) + 1))
    for case in CASES:
        cells = [_cell(*found[size]["cases"][case]) for size in sizes]
        first, last = (found[size]["cases"][case][0] for size in (sizes[0], sizes[-1]))
        print(f"| {case} | {' | '.join(cells)} | {last / first:.2f} |")
    for name, text in (
        ("operations", "live operations"),
        ("load_s", "state loaded, s"),
        ("start_s", "start to ready, s"),
        ("resident_mib", "resident, MiB"),
    ):
        cells = [f"{found[size][name]:,.1f}".removesuffix(".0") for size in sizes]
        print(f"| {text} | {' | '.join(cells)} | |")


def main() -> None:
    """Measure each size in a separate process."""
    parser = Parser("bench.scale", __doc__)
    sizes, quick = (10_000, 100_000, 1_000_000), (10_000, 100_000)
    parser.add_size("--sizes", sizes, quick, (400, 800), "numbers of VMs")
    parser.add_size("--rounds", 40, 40, 2, "number of hosts with work")
    parser.add_argument("--folder", type=Path, help="directory of the stores")
    parser.add_argument("--part", default="", help=SUPPRESS)
    given = parser.sized()
    if given.part:
        part, vms = given.part.split(":")
        if part == "fill":
            fill(given.folder, int(vms))
        else:
            print(json.dumps(measure(given.folder, int(vms), given.rounds)))
        return
    found = {}
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores")
    print("In ms: median / 99th percentile with commit (of the step alone).")
    for vms in given.sizes:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            more = ("--folder", folder, "--rounds", str(given.rounds))
            _run(f"fill:{vms}", *more)
            found[vms] = json.loads(_run(f"measure:{vms}", *more))
    report(found)


def _run(part: str, *more: str) -> str:
    command = [sys.executable, "-m", "bench.scale", "--part", part, *more]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
