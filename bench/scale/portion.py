"""Measures the writer's cost of a portion of a large wave, with 2,000 disturbed hosts.

The figure is the time of the pure step without planning and commit. A host has 10
VMs of as many groups; budgets hold for the fleet, each rack and each owner.
"""

from __future__ import annotations

import statistics
import time
from itertools import islice
from typing import TYPE_CHECKING

from bench.sizes import Parser
from forewarn_base.ids import Ids
from forewarn_core.fleet import stimulus as stimuli
from forewarn_core.fleet.draft import Terms
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.state import State
from forewarn_core.fleet.step import PORTION_MAX, StepResult, step
from forewarn_core.fleet.stimulus import ChangeTopology, Proceed
from forewarn_core.fleet.topology import Group, Host, Vm
from forewarn_core.planning.policy import Budget, MaintenancePolicy, Scope
from forewarn_server.control.planning import plan_made, planner_task

if TYPE_CHECKING:
    from forewarn_core.fleet.stimulus import PlaneStimulus

NOW_MS = 1_790_000_000_000
VMS_A_HOST = 10
#: Number of hosts in a rack, and of groups of an owner.
RACK_HOSTS, OWNER_GROUPS = 40, 100


def fleet(hosts: int) -> ChangeTopology:
    """Return hosts in racks; each group has VMs on two hosts of one fault domain."""
    groups = hosts * VMS_A_HOST // 2
    return ChangeTopology(
        hosts=tuple(
            Host(f"h{n}", n * 2 // hosts, labels=(("rack", f"r{n // RACK_HOSTS}"),))
            for n in range(hosts)
        ),
        groups=tuple(Group(f"g{n}", owner=f"o{n // OWNER_GROUPS}") for n in range(groups)),
        vms=tuple(Vm(f"v{n}", f"h{n // VMS_A_HOST}", f"g{n % groups}") for n in range(groups * 2)),
    )


def portions_ms(hosts: int, at_once: int) -> list[float]:
    """Return the processor time of each portion of the first wave of a whole fleet, in ms."""
    budgets = (Budget(Scope.FLEET, at_once), Budget(Scope.RACK, 30), Budget(Scope.OWNER, 900))
    policy = NoticePolicy(maintenance=MaintenancePolicy(budgets=budgets))
    ids = Ids(1)
    terms = Terms(policy, "bench", lambda: ids.guid("event"))
    state = State()

    def told(stimulus: PlaneStimulus) -> StepResult:
        outcome = step(state, stimulus, now_ms=NOW_MS, terms=terms)
        state.keep()
        return outcome

    told(fleet(hosts))
    names = tuple(f"h{n}" for n in range(hosts))
    [number] = told(stimuli.CreateMaintenance(Cause.HOST_REBOOT, names, 600)).numbers
    told(stimuli.StartMaintenance(number))
    maintenance = state.maintenances[number]
    task = planner_task(state, maintenance, policy=policy, now_ms=NOW_MS)
    rest = dict.fromkeys(told(plan_made(task)).remaining)
    found = []
    while rest:
        portion = tuple(islice(rest, PORTION_MAX))
        for each in portion:
            del rest[each]
        before = time.process_time()
        rest.update(dict.fromkeys(told(Proceed(portion)).remaining))
        found.append((time.process_time() - before) * 1000)
    announced = len(state.progress(number).working)
    print(f"{hosts} hosts, {announced} announced in {len(found) + 1} portions of {PORTION_MAX}")
    return found


def main() -> None:
    """Measure, and print the median and the maximum of the last quarter of the portions."""
    parser = Parser("bench.scale.portion", __doc__)
    parser.add_size("--hosts", 20_000, 5000, 200, "number of hosts of the fleet")
    parser.add_size("--at-once", 2000, 500, 40, "maximum number of disturbed hosts")
    arguments = parser.sized()
    found = portions_ms(arguments.hosts, arguments.at_once)
    last = found[-max(len(found) // 4, 1) :]
    print(f"a portion: {statistics.median(last):.1f} ms median, {max(last):.1f} ms at worst")


if __name__ == "__main__":
    main()
