"""Measures the service's cost of a whole fleet's plan: planning, and each later commit.

The figures are this process's processor time and written bytes. `portion.py` defines the fleet.
"""

from __future__ import annotations

import gc
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bench.scale.portion import NOW_MS, fleet
from bench.sizes import Parser
from forewarn_base.ids import Ids
from forewarn_core.fleet import stimulus as stimuli
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.planning.policy import Budget, MaintenancePolicy, Scope
from forewarn_server.control.plane import ControlPlane
from forewarn_server.control.planner_host import PlannerProcess
from forewarn_server.control.planning import made, plan_made, planner_task
from forewarn_store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator


def written() -> int:
    """Return the bytes that this process has written to files."""
    lines = Path("/proc/self/io").read_text("ascii").splitlines()
    return int(next(line for line in lines if line.startswith("wchar")).split()[1])


@contextmanager
def measured(what: str) -> Iterator[None]:
    """Print the cost of a piece of work."""
    gc.collect()
    begun, before = time.process_time(), written()
    yield
    took_ms = (time.process_time() - begun) * 1000
    print(f"{what:40} {took_ms:8.1f} ms {(written() - before) / 1024:8.0f} KB written")


def measure(hosts: int, folder: Path) -> None:
    """Plan a maintenance of a whole fleet on a thread and in a process, and commit it."""
    ids = Ids(1)
    budgets = (Budget(Scope.FLEET, hosts // 10), Budget(Scope.RACK, 8))
    policy = NoticePolicy(maintenance=MaintenancePolicy(budgets=budgets))
    plane = ControlPlane(open_store(str(folder / "s.db")), policy, lambda: ids.guid("event"))

    def commit(what: str, stimulus: object) -> None:
        with measured(what):
            plane.commit(stimulus, actor="bench", now_ms=NOW_MS)  # type: ignore[arg-type]

    commit("the fleet is taken", fleet(hosts))
    names = tuple(sorted(plane.state.topology.hosts))
    commit("the maintenance is described", stimuli.CreateMaintenance(Cause.HOST_REBOOT, names, 600))
    [number] = plane.state.maintenances
    commit("it is started", stimuli.StartMaintenance(number))
    with measured("the fleet is read"):
        maintenance = plane.state.maintenances[number]
        task = planner_task(plane.state, maintenance, policy=policy, now_ms=NOW_MS)
    with measured("a plan is made on a thread"):
        made(task)
    with measured("a plan is made in a process"):
        plan = plan_made(task, PlannerProcess())
    commit("it takes force", plan)
    commit("the maintenance is paused", stimuli.PauseMaintenance(number, "", keep_announced=True))
    plane.store.close()


def main() -> None:
    """Measure, and print."""
    parser = Parser("bench.scale.planned", __doc__)
    parser.add_size("--hosts", 20_000, 5000, 40, "number of hosts of the maintenance")
    with tempfile.TemporaryDirectory() as folder:
        measure(parser.sized().hosts, Path(folder))


if __name__ == "__main__":
    main()
