"""A fleet drawn from a seed, its service and its machines; nothing is asked and nothing fails yet.

No fault may be drawn here (`faults.py`), and no promise checked (`invariants.py`).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import cast

from forewarn_base.protocol.versions import VERSIONS
from forewarn_base.settings import MetadataSettings
from forewarn_base.values import value
from forewarn_core.fleet.impact import Impact
from forewarn_core.fleet.lifecycle import Operation
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.state import Changes
from forewarn_core.fleet.stimulus import ChangeTopology as FleetChange
from forewarn_core.fleet.topology import Group, GroupKind, Host, Vm
from forewarn_metadata.replication.access import NodeAccess
from forewarn_metadata.replication.messages import DocumentChange
from forewarn_server.control.gate_checks import Gate, make_gates
from tests.simulator.checkers.coordination_checker import PLACES
from tests.simulator.checkers.state_checker import RATE_PPM_MAX
from tests.simulator.world.agent_habits import GOOD, HABITS, AgentHabits
from tests.simulator.world.control_process import SimulatedControl
from tests.simulator.world.deployment import Deployment
from tests.simulator.world.dice import Dice
from tests.simulator.world.driver import SimDriver
from tests.simulator.world.event_queue import HOUR_MS, MINUTE_MS, START_MS
from tests.simulator.world.failover import Failover
from tests.simulator.world.far_node import FarNode, Hypervisor
from tests.simulator.world.machine import Machine
from tests.simulator.world.machine_profile import MachineProfile
from tests.simulator.world.maintainers import DECLARING, GATE, POLLS
from tests.simulator.world.metadata_node import SimulatedNode
from tests.simulator.world.network import BURST
from tests.simulator.world.node_disk import NodeDisk
from tests.simulator.world.node_faults import NodeFaults
from tests.simulator.world.own_node import FeedTerms
from tests.simulator.world.side_work import SideWork
from tests.simulator.world.vm_places import VmPlaces

#: How many groups in a thousand approve only when all their named VMs are prepared.
TOGETHER_PERMILLE = 300
#: Steps in a simulated minute for each VM, besides the usual bound: it boots, polls, prepares.
STEPS_PER_VM = 20
FAULT_DOMAINS = 3
UPDATE_DOMAINS = 5
ZONES = ("1", "2", "3")
RACK_HOSTS = 4
#: Label of each third host, whose work a gate validates. Source: T-7.
VALIDATED, VALIDATED_EVERY = ("validation", GATE), 3
#: How often in a thousand a gate finds that the work does harm.
GATE_FAILS_PERMILLE = 120
#: Users' work that may be scheduled for an owner: few enough to be met now and then.
USER_OPERATIONS_MAX = 4
#: How long the first answer to a group is held.
ENABLE_DELAYS_S = (0, 5, 30)
#: Open connections of a node: fewer than any machine's file descriptors allow.
CONNECTIONS_MAX = 400
#: Nodes of a world, the service's own among them: where all serve everything, and by host.
NODES, NODES_BY_HOST = 3, 4
#: How often in a thousand nodes away from the service serve some hosts each. Source: M-1.
BY_HOST_PERMILLE = 500
#: Memory of hosts for each VM, in MiB, which takes 1200 on average: they are at 75 %.
MEMORY_MIB = 1600
#: How many approvals a node may accept on its own. Source: M-3.
SPOOLS_MAX = (0, 2, 1000)


@value
class WorldPlan:
    """What a world is made of. `days` are hurt days; healing comes after them."""

    seed: int
    hosts: int = 20
    vms: int = 200
    days: float = 7
    #: Kinds of faults and activities to leave out.
    without: frozenset[str] = frozenset()
    #: How many times as often as usual everything happens.
    rate: int = 1


class RandomFleet(Deployment):
    """One simulated fleet and the service that looks after it."""

    gates: Mapping[str, Gate] = MappingProxyType(
        make_gates({GATE: {"command": ["drawn"]}, POLLS: {"polls": True, "tries": 1}})
    )

    def __init__(self, plan: WorldPlan) -> None:
        """Join the parts; nothing is started and nobody is there."""
        self.driver = SimDriver(Dice(plan.seed, "driver"))
        self._clock_dice = Dice(plan.seed, "clock over a restart")
        self._runs_true = "clock" in plan.without
        policy = NoticePolicy(
            notice_margin_ms=500,
            max_user_operations=USER_OPERATIONS_MAX,
            unscheduled_drivers=frozenset({self.driver.name}),
            maintenance=DECLARING,
        )
        drivers = {self.driver.name: self.driver}
        super().__init__(plan.seed, policy, nodes=self._draw_nodes(plan), drivers=drivers)
        self.checker.clients.polls_are_marked = True
        self.checker.clients.enable_delay_ms = int(self.settings.enable_delay_s * 1000)
        #: The nodes that serve some hosts each.
        far = cast("tuple[FarNode, ...]", tuple(self.nodes[1:]))
        self.nodes_by_host = far if self.by_host else ()
        self.places = VmPlaces(self, self.driver)
        self.driver.connect(self.queue, self.crash_point, self.machines)
        self.driver.begins = self.begun
        self.driver.aborts = lambda operation, heard: self.checker.aborts(operation, heard=heard)
        self.driver.reported = self.checker.reported
        self.queue.steps_max += STEPS_PER_VM * plan.vms
        self.plan = plan
        self.healing = False
        #: (kind of fault, what it did) -> how often, for what no part of the world counts itself.
        self.fault_counts: Counter[tuple[str, str]] = Counter()
        self.node_faults = NodeFaults(self, self.fault_counts)
        self._dice = Dice(plan.seed, "world")
        self._side_dice = Dice(plan.seed, "plans and gates")
        self._memory_dice = Dice(plan.seed, "memory")
        self._label_dice = Dice(plan.seed, "labels of groups")
        self._restart_planned = False
        self.failover: Failover | None = None
        self.wanted: dict[str, Vm] = {}
        self._versions: dict[str, str] = {}
        self.habit_counts: Counter[str] = Counter()

    # ---- nodes ---------------------------------------------------------------------------------

    def _draw_nodes(self, plan: WorldPlan) -> int:
        """Draw how nodes serve, and how many there are."""
        delay_s = Dice(plan.seed, "enabling").pick(ENABLE_DELAYS_S)
        self.settings = MetadataSettings(
            enable_delay_s=delay_s, max_connections=CONNECTIONS_MAX, rate_burst=BURST
        )
        dice = self._node_dice = Dice(plan.seed, "nodes by host")
        #: Whether nodes away from the service serve some hosts each, and keep what they show.
        self.by_host = dice.chance(BY_HOST_PERMILLE) and plan.hosts > 1
        count = min(NODES_BY_HOST, plan.hosts) if self.by_host else NODES
        self._hosts_of = {
            f"node-{n}": frozenset(f"h{host}" for host in range(n, plan.hosts, count))
            for n in range(1, count)
        }
        access = None
        if self.by_host:
            access = NodeAccess(
                [f"{name}={','.join(sorted(served))}" for name, served in self._hosts_of.items()],
                lambda name, token: token == _token(name),
            )
        self.terms = FeedTerms(access)
        return count

    def hypervisor(self, name: str) -> Hypervisor | None:
        """Return what a node of some hosts has there."""
        if not self.by_host:
            return None
        return Hypervisor(
            self._hosts_of[name],
            _token(name),
            NodeDisk(Dice(self.seed, f"disk of {name}")),
            self._node_dice.pick(SPOOLS_MAX),
            self.node_died,
        )

    def node_died(self, node: FarNode) -> None:
        """A node's process ended in the middle of what it wrote."""
        self.node_faults.dies(node)

    def node_of_host(self, host: str) -> SimulatedNode:
        """Return the node that VMs reach from a host."""
        return self.nodes[int(host.removeprefix("h")) % len(self.nodes)]

    # ---- the fleet -----------------------------------------------------------------------------

    def populate(self) -> None:
        """Draw hosts, groups and VMs, and have the service know them."""
        hosts = tuple(
            Host(
                f"h{n}",
                fault_domain=n % FAULT_DOMAINS,
                update_domain=n % UPDATE_DOMAINS,
                zone=ZONES[n // FAULT_DOMAINS % len(ZONES)],
                labels=(
                    ("rack", f"r{n // RACK_HOSTS}"),
                    ("row", ("even", "odd")[n % 2]),
                    *((VALIDATED,) if n % VALIDATED_EVERY == 1 else ()),
                ),
                memory_mib=MEMORY_MIB * self.plan.vms // self.plan.hosts,
            )
            for n in range(self.plan.hosts)
        )
        groups: list[Group] = []
        vms: list[Vm] = []
        while len(vms) < self.plan.vms:
            group = self._draw_group(len(groups))
            groups.append(group)
            lone = group.kind is GroupKind.LONE
            size = 1 if lone else self._dice.between(2, 9)
            vms += [
                self._draw_vm(f"{group.name}_{n}", group)
                for n in range(min(size, self.plan.vms - len(vms)))
            ]
        self.wanted = {vm.name: vm for vm in vms}
        self.service.submit(FleetChange(hosts, tuple(groups), tuple(vms)), "operator").result()

    def _draw_group(self, number: int) -> Group:
        dice, keeps = self._dice, self._label_dice
        kind = dice.pick((*(GroupKind.AVAILABILITY_SET, GroupKind.SCALE_SET) * 3, GroupKind.LONE))
        return Group(
            f"g{number}",
            kind,
            owner=f"owner-{dice.below(5)}",
            fault_domain_count=dice.pick((0, 0, 1, 5)) if kind is GroupKind.SCALE_SET else 0,
            strict_approval=dice.chance(120),
            automatic_approval=frozenset({Impact.REBOOT} if dice.chance(150) else ()),
            terminate_notice_s=dice.pick((0, 300, 600, 900)),
            reimage_notice=dice.chance(400),
            keep_apart=("rack",) if keeps.chance(200) else (),
            keep_together=("row",) if keeps.chance(200) else (),
        )

    def _draw_vm(self, name: str, group: Group) -> Vm:
        dice = self._dice
        number = len(self.wanted) + dice.below(1)
        return Vm(
            name,
            host=f"h{dice.below(self.plan.hosts)}",
            group=group.name,
            size=dice.pick(("Standard_D4", "Standard_D4", "Standard_NC6", "Standard_G5", "")),
            spot=dice.chance(200),
            memory_mib=self._memory_dice.pick((512, 1024, 1024, 2048, 1024, 1024, 512, 2048)),
            addresses=(f"vm-{name}-{number}",),
        )

    def moved(self, vm: Vm, host: str) -> FleetChange:
        """The change that moves a VM."""
        return FleetChange(vms=(replace(vm, host=host),))

    def regrouped(self, name: str, dice: Dice) -> FleetChange:
        """The change that gives a group other options."""
        group = self.topology.groups[name]
        option = dice.below(3)
        if option == 0:
            group = replace(group, strict_approval=not group.strict_approval)
        elif option == 1:
            group = replace(group, terminate_notice_s=dice.pick((0, 300, 900)))
        elif group.kind is GroupKind.SCALE_SET:
            group = replace(group, fault_domain_count=dice.pick((0, 1)))
        return FleetChange(groups=(group,))

    def mute(self, group: str) -> None:
        """Let no VM of a group poll."""
        for name in self.topology.vms_in(group):
            self.machines[name].muted = True

    def unmute(self, group: str) -> None:
        """Let the VMs of a group poll again."""
        for name in self.topology.vms_in(group):
            machine = self.machines[name]
            machine.muted = False
            machine.plan_poll()

    # ---- the service ---------------------------------------------------------------------------

    def start_service(self) -> None:
        """Start the control plane; try again later if it cannot."""
        self._restart_planned = False
        service = self.service
        if service.up:
            return
        self._trouble_clock(service)
        started = service.start()
        if not started and not self._restart_planned:
            self._plan_restart()
        elif not started:
            self.fault_counts["crash", "in recovery"] += 1
        if started and self.disk_fault_rates.permille == 0:
            self.audit()

    def _trouble_clock(self, service: SimulatedControl) -> None:
        """A time server has put the machine's clock right meanwhile, or people wrong."""
        dice = self._clock_dice
        service.set_wall(dice.between(-200, 200))
        if dice.chance(150):
            service.set_wall(dice.pick((-6, -1, 1, 6)) * HOUR_MS)
            self.fault_counts["clock", "stepped while down"] += self.queue.now_ms > START_MS
        if dice.chance(100):
            service.boot = f"{service.boot}, again"

    def _plan_restart(self) -> None:
        self._restart_planned = True
        slow = self._dice.chance(100)
        high_ms = HOUR_MS if slow else MINUTE_MS
        self.queue.after(self._dice.between(1000, high_ms), self.start_service)

    def new_service(self) -> SimulatedControl:
        """A process on a machine whose clocks are off, and run too fast or too slow."""
        service = super().new_service()
        if not self._runs_true:
            dice = self._clock_dice
            service.run_at(dice.between(-RATE_PPM_MAX, RATE_PPM_MAX))
            service.set_wall(HOUR_MS if dice.chance(50) else dice.between(-2000, 2000))
        return service

    def new_executor(self, service: SimulatedControl) -> SideWork:
        """Return where a process has plans made and gates checked: what they find is drawn."""
        return SideWork(service, self.queue, dice=self._side_dice, findings=self)

    def gate_finds(self) -> str:
        """Return what a gate finds that nothing else decides: why it fails, or nothing."""
        fails = not self.healing and self._side_dice.chance(GATE_FAILS_PERMILLE)
        return "the smoke test fails" if fails else ""

    def gate_answers(
        self, service: SimulatedControl, number: int, gate: Gate, *, passes: bool
    ) -> None:
        """A gate is about to say what it found."""
        if service is self.service:
            self.checker.gate_answers(number, passes=passes, polls=gate.kind == "polls")

    def validated(self, operation: Operation) -> None:
        """A host has passed its validation, and is about to be reported."""
        self.checker.validated.add((operation.number, operation.execution.attempt))

    def fail_over(self, *, cut: bool, back_ms: int) -> bool:
        """Let a standby contend for the store, and the old writer come back after that time.

        Returns:
            whether it could: one contest at a time, of a service that is up.
        """
        busy = self.replaced_writer is not None or (
            self.failover is not None and not self.failover.over
        )
        if busy or not self.service.up:
            return False
        failover = self.failover = Failover(self, cut=cut)
        self.queue.after(back_ms, failover.back)
        return True

    def durable(self, changes: Changes) -> None:
        """A change is durable: machines come and go, and who was silent for a day is disabled."""
        super().durable(changes)
        if self.by_host:
            self.places.follow()
        gone = [group for group, enrolment in changes.enrolments.items() if enrolment is None]
        self.fault_counts["silence", "disabled"] += len(gone)

    def begun(self, operation: Operation) -> None:
        """A driver begins an operation."""
        self.checker.begins(operation)
        if self.by_host:
            self.places.begun(operation)

    def replaced(self, why: str | None) -> None:
        """A standby is the writer now, or the old one has ended."""
        super().replaced(why)
        self.fault_counts["failover", "taken over"] += why is None

    def process_ended(self, why: str) -> None:
        """The process ended; its supervisor starts it again."""
        super().process_ended(why)
        self.node_faults.service_ended()
        self.crashed()
        if not self._restart_planned:
            self._plan_restart()

    def apply(self, node: SimulatedNode, change: DocumentChange) -> None:
        """Have a node show a change; something may happen to it then."""
        super().apply(node, change)
        if self.by_host:
            self.node_faults.shows(node, change)

    def crashed(self) -> None:
        """The process has just ended."""

    def build_machine(self, vm: Vm) -> None:
        """Draw how the new machine and its people behave."""
        dice = self._dice
        profile = MachineProfile(
            vm.name,
            vm.addresses[0],
            self._version_of(vm.group),
            self._draw_habit(),
            skew_ms=dice.pick((0, 0, -30_000, 30_000)),
            phase_ms=dice.below(1000),
            rate_ppm=0 if self._runs_true else dice.between(-RATE_PPM_MAX, RATE_PPM_MAX),
            place=self._place_of(vm.group),
        )
        own = Dice(self.seed, f"machine/{vm.name}")
        machine = Machine(profile, self.queue, network=self.network, peers=self.peers, dice=own)
        machine.habit_counts = self.habit_counts
        machine.fault_counts = self.fault_counts
        self.machines[vm.name] = machine
        if self.by_host:
            self.places.build(vm)
        else:
            self.network.connect(vm.name, self.node_of_host(vm.host))
        self.queue.after(dice.between(1, 60_000), machine.boot)

    def _version_of(self, group: str) -> str:
        """The api-version a group's VMs speak: one image, one client."""
        found = self._versions.get(group)
        if found is None:
            newest = (VERSIONS[-1],) * len(VERSIONS)
            found = self._versions[group] = self._dice.pick((*newest, *VERSIONS))
        return found

    def _place_of(self, group: str) -> str:
        """Where the VMs of a group that approves together meet; empty for the others."""
        dice = Dice(self.seed, f"together/{group}")
        return dice.pick(PLACES) if dice.chance(TOGETHER_PERMILLE) else ""

    def _draw_habit(self) -> AgentHabits:
        drawn = self._dice.below(sum(habit.weight for habit in HABITS))
        for habit in HABITS:
            drawn -= habit.weight
            if drawn < 0:
                return habit
        return GOOD

    def audit(self) -> None:
        """Hold history, state and durable records against each other."""
        if self.is_calm():
            self.checker.audit(self.store, self.service)

    def is_calm(self) -> bool:
        """Whether the service can be expected to have done what it should."""
        failing_over = self.failover is not None and not self.failover.over
        return self.disk_fault_rates.permille == 0 and not failing_over


def _token(name: str) -> str:
    return f"the-token-of-{name}"
