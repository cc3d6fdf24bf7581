"""Measures a declared maintenance with many choices: its plan, the openings, and one more choice.

Each host has VMs of several owners, who all choose the same start; hosts of one fault domain share
a start. Times are this process's processor time; a choice is committed to a store on disk.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.scale.portion import NOW_MS
from bench.sizes import Parser
from forewarn_base.ids import Ids
from forewarn_core.fleet import stimulus as stimuli
from forewarn_core.fleet.draft import Draft, Terms
from forewarn_core.fleet.hand_back import owners_on
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.openings import Openings
from forewarn_core.fleet.owner_choices import Decision
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.topology import Group, Host, Vm
from forewarn_core.planning.policy import Budget, MaintenancePolicy, Scope
from forewarn_core.rules.hand_back import Severity
from forewarn_server.api.declaration_routes import OPENING
from forewarn_server.control.plane import ControlPlane
from forewarn_server.control.planning import plan_made, planner_task
from forewarn_store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

#: Owners with a VM on each host; hosts that share a start; hosts in a rack; fault domains.
OWNERS_ON_HOST, TOGETHER, RACK, FAULT_DOMAINS = 5, 4, 20, 5
#: Time between two chosen starts: the work, its notice and some minutes.
EVERY_MS = 35 * 60_000
SAMPLES = 20


def fleet(hosts: int, owners: int) -> stimuli.ChangeTopology:
    """Return hosts with one VM each of several owners; each owner has one group."""
    return stimuli.ChangeTopology(
        hosts=tuple(
            Host(f"h{n}", n // RACK % FAULT_DOMAINS, n % 1000, labels=(("rack", f"r{n // RACK}"),))
            for n in range(hosts)
        ),
        groups=tuple(Group(f"g{n}", owner=f"o{n}") for n in range(owners)),
        vms=tuple(
            Vm(f"v{n}-{place}", f"h{n}", f"g{(n // RACK + 7 * place) % owners}")
            for n in range(hosts)
            for place in range(OWNERS_ON_HOST)
        ),
    )


class Declared:
    """One declared maintenance of a fleet, in a control plane with a store on disk."""

    def __init__(self, hosts: int, owners: int, folder: Path) -> None:
        """Declare it; nothing is chosen."""
        ids = Ids(1)
        budgets = (Budget(Scope.FLEET, max(hosts // 10, TOGETHER)), Budget(Scope.RACK, TOGETHER))
        self._policy = NoticePolicy(maintenance=MaintenancePolicy(budgets=budgets))
        store = open_store(str(folder / "s.db"))
        self.plane = ControlPlane(store, self._policy, lambda: ids.guid("event"))
        self.commit(fleet(hosts, owners))
        self.hosts = [f"h{n}" for n in range(hosts)]
        names = tuple(sorted(self.hosts))
        self.commit(stimuli.CreateMaintenance(Cause.HOST_REBOOT, names, 600))
        [self.number] = self.plane.state.maintenances
        self.commit(stimuli.DeclareMaintenance(self.number, Severity.ROUTINE))
        self.first_ms = NOW_MS + 2 * EVERY_MS

    def commit(self, stimulus: stimuli.PlaneStimulus) -> None:
        """Decide on a stimulus, and store it."""
        self.plane.commit(stimulus, actor="bench", now_ms=NOW_MS)

    def choose(self, hosts: list[str], start_ms: int) -> int:
        """Choose a start for every owner on some hosts; return how many choices that are."""
        choices = tuple(
            stimuli.HostChoice(host, owner, Decision.AT, start_ms)
            for host in hosts
            for owner in owners_on(self.plane.state, host)
        )
        self.commit(stimuli.ChooseStarts(self.number, choices, "bench"))
        return len(choices)

    def plan(self) -> None:
        """Make the plan and put it in force."""
        maintenance = self.plane.state.maintenances[self.number]
        task = planner_task(self.plane.state, maintenance, policy=self._policy, now_ms=NOW_MS)
        self.commit(plan_made(task))

    def openings(self, host: str) -> int:
        """Return how many openings a host has, as the API answers them."""
        state, terms = self.plane.state, Terms(self._policy, "bench", lambda: "")
        maintenance = state.maintenances[self.number]
        openings = Openings(Draft(state, NOW_MS, terms), maintenance)
        return len(OPENING.each(openings.of(host)))


def took_ms(act: Callable[[], object]) -> float:
    """Return the processor time of an act."""
    gc.collect()
    begun = time.process_time()
    act()
    return (time.process_time() - begun) * 1000


def report(what: str, times_ms: list[float]) -> None:
    """Print one line of figures."""
    print(f"{what:44} {statistics.median(times_ms):8.1f} ms median {max(times_ms):8.1f} ms most")


def measure(hosts: int, owners: int, folder: Path) -> None:
    """Choose for every host, then measure."""
    declared = Declared(hosts, owners, folder)
    names = declared.hosts
    blocks = [names[n : n + TOGETHER] for n in range(0, hosts, TOGETHER)]
    filled = [
        took_ms(partial(declared.choose, block, declared.first_ms + n * EVERY_MS))
        for n, block in enumerate(blocks)
    ]
    state = declared.plane.state
    print(f"{hosts:,} hosts, {owners:,} owners, {len(state.choices):,} choices")
    report(f"{TOGETHER * OWNERS_ON_HOST} choices in one request, while filling", filled)
    report("the plan of all choices, in force", [took_ms(declared.plan)])
    kept = sum(1 for each in state.choices.values() if not each.displaced_ms)
    print(f"{kept:,} choices are kept by the plan")
    some = names[:: max(1, hosts // SAMPLES)]
    report("the openings of a host", [took_ms(partial(declared.openings, host)) for host in some])
    free_ms = declared.first_ms + len(blocks) * EVERY_MS
    again = [
        took_ms(partial(declared.choose, [host], free_ms + n * EVERY_MS))
        for n, host in enumerate(some)
    ]
    report("another choice of a host's owners, stored", again)
    report("the plan after that", [took_ms(declared.plan)])
    declared.plane.store.close()


def main() -> None:
    """Measure, and print."""
    parser = Parser("bench.scale.declared", __doc__)
    parser.add_size("--hosts", 2_000, 1_000, 40, "number of hosts of the maintenance")
    parser.add_size("--owners", 300, 150, 12, "number of owners of VMs")
    sizes = parser.sized()
    with tempfile.TemporaryDirectory() as folder:
        measure(sizes.hosts, sizes.owners, Path(folder))


if __name__ == "__main__":
    main()
