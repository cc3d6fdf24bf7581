"""The core with a planner beside it: plans are made at once, as the engine has them made."""

from dataclasses import dataclass, field

from forewarn_core.fleet import stimulus as words
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import Operation, OperationState
from forewarn_core.fleet.maintenance import Checking, Maintenance, MaintenancePlan, Target
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.step import StepResult, next_deadline_ms
from forewarn_core.fleet.stimulus import ChangeTopology, Enable, PlaneStimulus, Tick
from forewarn_core.fleet.topology import Group, Host, Vm
from forewarn_core.fleet.why import why_host, why_maintenance
from forewarn_core.rules.blockers import Blocker
from forewarn_server.control.planning import plan_made, planner_task
from tests.core.rig import Rig


@dataclass
class MaintenanceRig(Rig):
    """A core whose plans are made as soon as they are wanted."""

    maintenances: dict[int, Maintenance] = field(default_factory=dict)
    plans: dict[str, MaintenancePlan] = field(default_factory=dict)
    targets: dict[str, Target] = field(default_factory=dict)
    #: Maintenances whose gate was to be checked, in order; the test says what it finds.
    gates: list[int] = field(default_factory=list)
    #: Whether plans are made.
    plans_made: bool = True

    def _tell(self, stimulus: PlaneStimulus) -> StepResult:
        outcome = super()._tell(stimulus)
        self.maintenances.update(outcome.changes.maintenances)
        self.plans.update(outcome.changes.plans)
        for number in outcome.to_plan if self.plans_made else ():
            if isinstance(self.state.maintenances[number].phase, Checking):
                self.gates.append(number)
                continue
            self.make_plan(number)
        return outcome

    def make_plan(self, number: int) -> None:
        """Make a plan from what is true now, and have it take force."""
        self._tell_all(self.planned(number))

    def planned(self, number: int) -> words.PlanMade:
        """Make a plan from what is true now."""
        maintenance = self.state.maintenances[number]
        return plan_made(
            planner_task(self.state, maintenance, policy=self.policy, now_ms=self.now_ms)
        )

    def create(self, *hosts: str, cause: Cause = Cause.HOST_REBOOT, **more: object) -> int:
        """Describe a maintenance; return its number."""
        asked = words.CreateMaintenance(cause, hosts, 600, **more)  # type: ignore[arg-type]
        return self.tell(asked).numbers[0]

    def start(self, *hosts: str, **more: object) -> int:
        """Describe a maintenance and have it begin; return its number."""
        number = self.create(*hosts, **more)  # type: ignore[arg-type]
        self.tell(words.StartMaintenance(number))
        return number

    def due_ms(self, number: int) -> int:
        """When a maintenance goes on by time alone, ms since the epoch UTC."""
        due_ms = self.maintenance(number).due_ms
        assert due_ms is not None, number
        return due_ms

    def maintenance(self, number: int) -> Maintenance:
        """A maintenance as it is now, ended or not."""
        return self.maintenances[number]

    def waits(self, number: int, host: str = "") -> Blocker:
        """What a maintenance, or one of its hosts, waits for first."""
        draft = Draft(self.state, self.now_ms, self.terms())
        maintenance = self.state.maintenances[number]
        found = why_host(draft, maintenance, host) if host else why_maintenance(draft, maintenance)
        assert found is not None
        assert found.sentence(host)
        return found

    def working(self, number: int) -> dict[str, Operation]:
        """The hosts that a maintenance works on, with their operations."""
        found = [each for each in self.state.operations.values() if each.maintenance == number]
        return {each.host: each for each in found}

    def run(self, *, limit: int = 200) -> list[set[str]]:
        """Let time pass and drivers finish until nothing is due; return who ran together."""
        waves: list[set[str]] = []
        for _ in range(limit):
            self.show()
            running = [
                each
                for each in self.state.operations.values()
                if each.state is OperationState.RUNNING
            ]
            if running:
                waves.append({each.host for each in running})
                for each in running:
                    self.finish(each)
                continue
            next_ms = next_deadline_ms(self.state, self.policy, self.now_ms)
            if next_ms is None or not any(each.live for each in self.maintenances.values()):
                break
            self.now_ms = next_ms
            self.tell(Tick())
        return waves


def fleet(hosts: int = 6, domains: int = 3, policy: NoticePolicy | None = None) -> MaintenanceRig:
    """Hosts in turn in each fault domain; one group with a VM on each, and it is enabled."""
    layout = ChangeTopology(
        hosts=tuple(Host(f"h{n}", n % domains, n % 1000) for n in range(hosts)),
        groups=(Group("web"),),
        vms=tuple(Vm(f"web_{n}", f"h{n}", "web") for n in range(hosts)),
    )
    rig = MaintenanceRig(policy=policy or NoticePolicy())
    rig.tell(layout, Enable("web"))
    return rig
