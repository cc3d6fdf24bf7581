"""Plans and carries out a firmware update of all nodes of a cluster, in virtual time.

    python -m bench.trace DIRECTORY [--quick] [--smoke]

DIRECTORY has the files `nodes.csv` and `tasks.csv` of the trace (see `cluster.py`); without it, a
small made-up cluster is used. The real control plane and planner run under a clock that jumps; each
VM approves two minutes after its notice, and deletes itself when its task has ended.
"""

from __future__ import annotations

import heapq
import os
import platform
import random
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

from bench.sizes import Parser
from bench.trace.cluster import (
    Cluster,
    placed,
    quantile_s,
    read_nodes,
    read_tasks,
    small,
    update_s,
)
from forewarn_base.errors import CallerError
from forewarn_base.ids import Ids
from forewarn_base.values import value
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.refusals import FleetBusy
from forewarn_core.fleet.step import StepResult
from forewarn_core.fleet.stimulus import (
    ChangeTopology,
    CreateMaintenance,
    DriverBegun,
    DriverDone,
    Enable,
    GroupsPolled,
    NoticeShown,
    PlaneStimulus,
    Proceed,
    StartMaintenance,
    Tick,
)
from forewarn_core.planning.policy import Budget, MaintenancePolicy, Scope
from forewarn_core.requests import ApprovalRequest
from forewarn_core.rules.local_time import Window
from forewarn_server.control.plane import ControlPlane
from forewarn_server.control.planning import plan_made, planner_task
from forewarn_store import open_store

START_MS = 1_800_000_000_000
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
#: Time that the moves from a host may take, in seconds, and the time that they take.
MOVE_S, MOVING_MS = 1800, 5 * MINUTE_MS
#: At night one node in 20 is disturbed at a time, and a fifth of an owner's VMs.
POLICY = MaintenancePolicy(
    budgets=(Budget(Scope.FLEET, 5, percent=True), Budget(Scope.OWNER, 20, percent=True)),
    windows=(Window("night", "Asia/Shanghai", tuple(range(7)), 22 * 60, 6 * 60),),
    pause_s=0,
)


@value
class Way:
    """One way to carry the update out."""

    name: str
    moves: bool = False
    #: Duration for which each host is asked, in seconds.
    asked_s: int = 0


@value
class Result:
    """What a run showed."""

    way: Way
    waves: int
    bound: int
    plan_s: float
    #: Time for which hosts are offline, in host-hours.
    offline_h: float
    #: The same with the time that was asked for, which capacity planning must assume.
    reserved_h: float
    disturbed: int
    moved: int
    ended_before: int
    overruns: int
    last_h: float
    processor_s: float

    @property
    def row(self) -> str:
        """The result as a row of a table."""
        shown = (
            f"{self.way.name}, {self.way.asked_s // 60} min",
            f"{self.waves} ({self.bound})",
            f"{self.last_h:.1f}",
            f"{self.offline_h:.0f} ({self.reserved_h:.0f})",
            f"{self.disturbed:,}",
            f"{self.moved:,}",
            f"{self.ended_before:,}",
            f"{self.overruns:,}",
            f"{self.plan_s:.1f}",
            f"{self.processor_s:.0f}",
        )
        return f"| {' | '.join(shown)} |"


HEAD = (
    "| way, and time for a host | waves (bound) | hours to the last host | host-hours offline"
    " (asked for) | VMs disturbed | VMs moved | tasks that ended before | overruns | plan, s |"
    " processor, s |\n|---|---|---|---|---|---|---|---|---|---|"
)


class VirtualFleet:
    """A control plane whose drivers, owners and tasks are events of a queue."""

    def __init__(self, cluster: Cluster, way: Way, seed: int) -> None:
        """Apply the fleet, and enable its groups."""
        self.cluster, self.way = cluster, way
        self.now_ms = START_MS
        self._draw = random.Random(seed)
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._plane = ControlPlane(
            open_store(":memory:"),
            NoticePolicy(maintenance=POLICY),
            partial(Ids(seed).guid, "event"),
        )
        self._plane.recover(self.now_ms)
        self.plan_s, self.waves, self.bound = 0.0, 0, 0
        self.offline_ms = self.reserved_ms = 0
        self.overruns = self.moved = self.ended_before = 0
        self.disturbed: set[str] = set()
        self.last_ms = self.now_ms
        self.commit(ChangeTopology(cluster.hosts, cluster.groups, cluster.vms))
        for group in cluster.groups:
            self.commit(Enable(group.name))
        for vm, ends_ms in cluster.ends_ms.items():
            self._at(START_MS + ends_ms, partial(self._end_task, vm))
        self._poll()

    def run(self) -> None:
        """Update every host."""
        hosts = tuple(host.name for host in self.cluster.hosts)
        wanted = CreateMaintenance(
            Cause.HOST_REBOOT,
            hosts,
            self.way.asked_s,
            move_s=MOVE_S if self.way.moves else 0,
            max_failures=len(hosts),
        )
        made = self.commit(wanted).maintenance
        assert made is not None
        self.commit(StartMaintenance(made.number))
        while made.number in self._plane.state.maintenances:
            due_ms = self._plane.next_deadline_ms(self.now_ms)
            queued_ms = self._queue[0][0] if self._queue else None
            assert due_ms is not None or queued_ms is not None, "the maintenance waits for nothing"
            if due_ms is not None and (queued_ms is None or due_ms <= queued_ms):
                self.now_ms = max(self.now_ms, due_ms)
                self.commit(Tick())
            else:
                queued_ms, _, act = heapq.heappop(self._queue)
                self.now_ms = max(self.now_ms, queued_ms)
                act()
        self._plane.store.close()

    def commit(self, stimulus: PlaneStimulus, actor: str = "bench") -> StepResult:
        """Commit a stimulus, and let its effects follow."""
        committed = self._plane.commit(stimulus, actor=actor, now_ms=self.now_ms)
        if committed.announced:
            self.commit(NoticeShown(committed.announced))
            for number in committed.announced:
                self._at(self.now_ms + 2 * MINUTE_MS, partial(self._approve, number))
        for operation in committed.begin:
            self._begin(operation.number)
        if committed.remaining:
            self.commit(Proceed(committed.remaining))
        for number in committed.to_plan:
            self._plan(number)
        return committed

    def _at(self, at_ms: int, act: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (at_ms, next(self._order), act))

    def _poll(self) -> None:
        groups = frozenset(self._plane.state.enrolments)
        self.commit(GroupsPolled(groups), "metadata")
        self._at(self.now_ms + 12 * HOUR_MS, self._poll)

    def _plan(self, number: int) -> None:
        maintenance = self._plane.state.maintenances.get(number)
        if maintenance is None or not maintenance.plan_wanted:
            return
        began_s = time.perf_counter()
        task = planner_task(
            self._plane.state, maintenance, policy=self._plane.policy, now_ms=self.now_ms
        )
        report = plan_made(task)
        self.plan_s = max(self.plan_s, time.perf_counter() - began_s)
        if not self.waves:
            self.waves, self.bound = len(report.plan.waves), report.plan.body.bound.waves
        self.commit(report, "planner")

    def _approve(self, number: int) -> None:
        operation = self._plane.state.operations.get(number)
        for event_id in operation.events if operation else ():
            event = self._plane.state.events.get(event_id)
            if event is not None and event.resources:
                try:
                    self.commit(ApprovalRequest(event.resources[0], (event_id,), ""), "vm")
                except CallerError:  # the event has started, or has gone
                    continue

    def _begin(self, number: int) -> None:
        operation = self._plane.state.operations[number]
        attempt = operation.execution.attempt
        self.commit(DriverBegun(number, attempt), "simulated")
        operation = self._plane.state.operations[number]
        if operation.cause is Cause.LIVE_MIGRATION:
            self.moved += len(operation.vms)
            self.disturbed.update(operation.vms)
            self._at(self.now_ms + MOVING_MS, partial(self._done, number, attempt))
            return
        self.disturbed.update(self._plane.state.topology.vms_on(operation.host))
        took_ms = update_s(self.cluster.models[operation.host], self._draw) * 1000
        self.offline_ms += took_ms
        self.reserved_ms += max(took_ms, self.way.asked_s * 1000)
        self.overruns += took_ms > self.way.asked_s * 1000
        self._at(self.now_ms + took_ms, partial(self._done, number, attempt))
        self.last_ms = max(self.last_ms, self.now_ms + took_ms)

    def _done(self, number: int, attempt: int) -> None:
        self.commit(DriverDone(number, attempt), "simulated")

    def _end_task(self, vm: str) -> None:
        """Delete a VM whose task has ended; one that work involves leaves after it."""
        try:
            self.commit(ChangeTopology(removed=(("vm", vm), ("group", vm))))
        except FleetBusy:
            self._at(self.now_ms + 5 * MINUTE_MS, partial(self._end_task, vm))
        else:
            self.ended_before += vm not in self.disturbed


def carried_out(cluster: Cluster, way: Way, seed: int) -> Result:
    """Return what a run shows."""
    began_s = time.process_time()
    fleet = VirtualFleet(cluster, way, seed)
    fleet.run()
    return Result(
        way,
        fleet.waves,
        fleet.bound,
        fleet.plan_s,
        fleet.offline_ms / HOUR_MS,
        fleet.reserved_ms / HOUR_MS,
        len(fleet.disturbed),
        fleet.moved,
        fleet.ended_before,
        fleet.overruns,
        (fleet.last_ms - START_MS) / HOUR_MS,
        time.process_time() - began_s,
    )


def main() -> None:
    """Run each way, and print a table."""
    parser = Parser("bench.trace", __doc__.splitlines()[0])
    parser.add_argument("directory", nargs="?", type=Path, help="directory of the trace")
    parser.add_size("--nodes", 1523, 300, 40, "number of nodes, from the first")
    parser.add_size("--seed", 1, 1, 1, "seed of what the trace lacks")
    chosen = parser.sized()
    print(f"Python {platform.python_version()}, {os.cpu_count()} processors")
    nodes, tasks = small(chosen.nodes)
    if chosen.directory:
        nodes = read_nodes(chosen.directory / "nodes.csv")[: chosen.nodes]
        tasks = read_tasks(chosen.directory / "tasks.csv")
    cluster = placed(nodes, tasks, chosen.seed)
    print(f"{len(cluster.hosts):,} nodes, {len(cluster.vms):,} of {len(tasks):,} tasks placed\n")
    models = list(cluster.models.values())
    fixed_s = 4 * 3600
    quantiles = {share: quantile_s(share, models, chosen.seed + 1) for share in (0.5, 0.9, 0.99)}
    print(HEAD)
    for moves in (False, True):
        what = "moves" if moves else "stay"
        ways = [Way(f"{what}, fixed", moves, fixed_s)]
        ways += [
            Way(f"{what}, quantile {share:g}", moves, asked_s)
            for share, asked_s in quantiles.items()
        ]
        for way in ways:
            print(carried_out(cluster, way, chosen.seed).row, flush=True)


if __name__ == "__main__":
    main()
