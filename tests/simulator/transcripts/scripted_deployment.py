"""The deployment of transcripts: idle machines, a driver that waits for orders.

No command is done in here (`commands.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial
from types import MappingProxyType
from typing import cast

from forewarn_base.protocol.versions import VERSIONS
from forewarn_core.fleet.lifecycle import Operation
from forewarn_core.fleet.maintenance import Maintenance
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.stimulus import GateFailed, GatePassed
from forewarn_core.fleet.topology import Vm
from forewarn_drivers import Progress, Task
from forewarn_server.control.driver_calls import Executor
from forewarn_server.control.gate_checks import make_gates
from forewarn_server.control.planner_host import PlannerHost
from tests.simulator.checkers.maintenance_checker import MaintenanceChecker
from tests.simulator.world.agent_habits import AgentHabits
from tests.simulator.world.control_process import SimulatedControl
from tests.simulator.world.crash_points import NeverReturns, Violation
from tests.simulator.world.deployment import Deployment
from tests.simulator.world.dice import Dice
from tests.simulator.world.driver import DriverBroken
from tests.simulator.world.far_node import FarNode
from tests.simulator.world.machine import Machine
from tests.simulator.world.machine_profile import MachineProfile
from tests.simulator.world.network import KEEPS
from tests.simulator.world.side_work import InlineExecutor

#: The driver of hosts that name none, and the other one.
BY_HAND, BY_PROXY = "by-hand", "by-proxy"
#: How soon the driver wants to be asked again.
ASK_MS = 20_000
#: Users' work that may be scheduled for an owner, as in the preview of 2017. Source: O-1.
USER_OPERATIONS_MAX = 10
#: The gate that always passes.
PASSES = "passes"
STEADY = AgentHabits("steady", 1, hook_s=(60, 60), hook_fails=0)


class ScriptedDriver:
    """A driver that does what the script says, and nothing else."""

    def __init__(self, name: str = BY_HAND) -> None:
        """Begin well."""
        self.name = name
        #: How often begin and abort were called, for each.
        self.begun: dict[str, int] = {}
        self.aborted: dict[str, int] = {}
        self.refuses = ""
        #: Whether the next call does not return.
        self.hangs = False
        #: Called at each beginning and each end, before it has any effect.
        self.begins: Callable[[Operation], None] = lambda _: None
        self.aborts: Callable[[Operation], None] = lambda _: None
        #: Called with the point of its work it reaches; a process can end there.
        self.passes: Callable[[str], None] = lambda _: None

    def begin(self, task: Task) -> None:
        """Note it, or refuse once if the script says so."""
        operation = task.operation
        self.passes("before begin")
        self.begins(operation)
        self._hang()
        if self.refuses:
            reason, self.refuses = self.refuses, ""
            raise DriverBroken(reason)
        _count(self.begun, self._attempt(operation))
        self.passes("after begin")

    def progress(self, task: Task, now_ms: int) -> Progress:
        """Say nothing yet of what was begun; the script will.

        Raises:
            Violation: it never was.
        """
        self._hang()
        attempt = self._attempt(task.operation)
        if attempt not in self.begun:
            raise Violation("9", f"the driver is asked after {attempt}, which it never began")
        return Progress(again_ms=now_ms + ASK_MS)

    def abort(self, task: Task) -> None:
        """Note it."""
        operation = task.operation
        self.passes("before abort")
        self.aborts(operation)
        self._hang()
        _count(self.aborted, self._attempt(operation))
        self.passes("after abort")

    def also(self, name: str) -> ScriptedDriver:
        """Return another driver that is moved by the same commands."""
        other = copy(self)
        other.name = name
        return other

    def _hang(self) -> None:
        if self.hangs:
            self.hangs = False
            raise NeverReturns

    def _attempt(self, operation: Operation) -> str:
        by = "" if self.name == BY_HAND else f" {self.name}"
        return f"{operation.id} attempt {operation.execution.attempt}{by}"


class GateAnswers(InlineExecutor):
    """Makes each call and plan at once; a gate finds what its name says."""

    def __init__(self, service: SimulatedControl, checker: MaintenanceChecker) -> None:
        """Answer a service, and show the checker what is answered."""
        self._service, self._checker = service, checker

    def submit(self, work: Callable[[], None]) -> None:
        """Do some work."""
        host = getattr(getattr(work, "func", None), "__self__", None)
        if not isinstance(host, PlannerHost) or not isinstance(work, partial):
            super().submit(work)
            return
        number, name = work.args
        if isinstance(number, Maintenance):  # for which a plan is made
            super().submit(work)
            return
        self._checker.gate_answers(number, passes=name == PASSES)
        loop = self._service.loop
        assert loop is not None
        failed = GateFailed(number, f"gate {name}: it was asked to")
        loop.bring(GatePassed(number) if name == PASSES else failed)


class SteadyDice(Dice):
    """Draws that nothing takes time, and that nothing that is only likely happens."""

    def __init__(self) -> None:
        """Begin."""
        super().__init__(1, "steady")

    def between(self, low: int, high: int) -> int:  # noqa: ARG002 - no time
        """Return nothing."""
        return 0

    def chance(self, permille: int) -> bool:  # noqa: ARG002 - never
        """Return that it does not happen."""
        return False


class ScriptedDeployment(Deployment):
    """A deployment whose machines do nothing of themselves."""

    clients = (KEEPS,)
    gates = MappingProxyType(make_gates({name: {"command": [name]} for name in (PASSES, "fails")}))

    def __init__(self, *drivers: ScriptedDriver) -> None:
        """Begin with an empty fleet and a running service, with no node but its own."""
        policy = NoticePolicy(max_user_operations=USER_OPERATIONS_MAX)
        super().__init__(1, policy, nodes=1, drivers={each.name: each for each in drivers})
        self.far: set[str] = set()
        #: Every VM there is or was.
        self.ever: set[str] = set()
        #: Group -> where its VMs announce to each other that they are prepared.
        self.places: dict[str, str] = {}
        #: What became of the service's processes since it was last asked.
        self.news: list[str] = []
        self.service.start()

    def new_executor(self, service: SimulatedControl) -> Executor:
        """Return where a process has plans made and gates checked."""
        return GateAnswers(service, self.checker.maintenance)

    def build_machine(self, vm: Vm) -> None:
        """A machine without an agent, until the script starts one."""
        self.ever.add(vm.name)
        place = self.places.get(vm.group, "")
        profile = MachineProfile(vm.name, vm.addresses[0], VERSIONS[-1], STEADY, place=place)
        self.machines[vm.name] = Machine(
            profile, self.queue, network=self.network, peers=self.peers, dice=Dice(1, vm.name)
        )
        self.network.connect(vm.name, self.follower() if vm.name in self.far else self.nodes[0])

    def follower(self) -> FarNode:
        """Return the node away from the service, which follows it; start it if it is not there."""
        if len(self.nodes) == 1:
            self.add_far_node("node-1")
        return cast("FarNode", self.nodes[1])

    def wire_dice(self, name: str) -> Dice:  # noqa: ARG002 - chance decides nothing here
        """Return what carries the feed: at once, and whole."""
        return SteadyDice()

    def process_ended(self, why: str) -> None:
        """Remember how it died."""
        super().process_ended(why)
        self.news.append(f"the service dies: {why}")

    def replaced(self, why: str | None) -> None:
        """Remember that there is another writer, and how the old one ended."""
        super().replaced(why)
        text = "a standby takes over" if why is None else f"the old writer ends: {why}"
        self.news.append(text)


def call_counts(counts: dict[str, int]) -> str:
    """What a driver was called for, and how often: only the first call has an effect."""
    return ", ".join(
        attempt if count == 1 else f"{attempt} (called {_times(count)}, done once)"
        for attempt, count in counts.items()
    )


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"


def _count(counts: dict[str, int], attempt: str) -> None:
    counts[attempt] = counts.get(attempt, 0) + 1
