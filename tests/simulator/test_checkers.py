"""Checkers hold the service to the contract, and to no more than that."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forewarn.core.stimulus import ApplyPolicy, ChangeTopology, Enable
from forewarn.core.topology import Group, Host, Vm
from forewarn.planning.policy import MaintenancePolicy
from tests.core.maintenance import MaintenanceRig
from tests.core.rig import MINUTE_MS
from tests.core.test_moving import begun
from tests.simulator.checkers.maintenance_checker import MaintenanceChecker

if TYPE_CHECKING:
    from forewarn.core.step import StepResult
    from forewarn.core.stimulus import Stimulus


@dataclass
class CheckedRig(MaintenanceRig):
    """A core whose steps the checker of maintenances follows."""

    checker: MaintenanceChecker = field(init=False)

    def __post_init__(self) -> None:
        self.checker = MaintenanceChecker(self.state, self.policy, Counter(), self.events)

    def _tell(self, stimulus: Stimulus) -> StepResult:
        outcome = super()._tell(stimulus)
        self.checker.durable(outcome.changes, self.now_ms, 0)
        return outcome


def test_owner_rests_from_the_last_work_on_its_vms() -> None:
    """VMs of others may still return to the host then. Source: F-3."""
    rig = CheckedRig(plans_made=False)
    hosts = tuple(Host(f"h{n}", n, n, memory_mib=2048) for n in range(2))
    groups = (Group("a", owner="ann"), Group("b", owner="bob"), Group("c", owner="ann"))
    vms = (("v0", "h0", "a"), ("w0", "h0", "b"), ("v1", "h1", "c"))
    layout = ChangeTopology(hosts, groups, tuple(Vm(*vm, memory_mib=512) for vm in vms))
    rig.tell(layout, *(Enable(each.name) for each in groups))
    rig.tell(ApplyPolicy(MaintenancePolicy(owner_rest_s=1800)))
    number = rig.start("h0", "h1", move_s=600, return_vms=True)
    rig.make_plan(number)
    move = begun(rig, "h0", "v0", number)
    rig.approve("w0", move)
    rig.finish(move)
    rig.finish(rig.working(number)["h0"])
    rig.show()
    returns = {each.target: each for each in rig.state.operations.values()}
    rig.approve("v0", returns["v0"])
    rig.finish(returns["v0"])
    disturbed_ms = rig.now_ms
    rig.approve("w0", returns["w0"])
    rig.wait(14 * MINUTE_MS)
    rig.finish(returns["w0"])
    rig.make_plan(number)
    move = begun(rig, "h1", "v1", number)
    rig.wait(20 * MINUTE_MS)
    assert rig.now(move).execution.started_ms == disturbed_ms + 30 * MINUTE_MS
