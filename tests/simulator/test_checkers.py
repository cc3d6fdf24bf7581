"""Checkers hold the service to the contract, and to no more than that."""

import ast
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from forewarn_base.protocol.documents import Document
from forewarn_base.values import replace
from forewarn_core.fleet.impact import Cause, Impact
from forewarn_core.fleet.lifecycle import OperationState, with_execution
from forewarn_core.fleet.maintenance import Maintenance, Target, TargetState
from forewarn_core.fleet.state import Changes
from forewarn_core.fleet.step import StepResult, step
from forewarn_core.fleet.stimulus import (
    ApplyPolicy,
    Cancel,
    ChangeTopology,
    Enable,
    NoticeShown,
    NotShown,
    PlaneStimulus,
    RequestMaintenance,
)
from forewarn_core.fleet.topology import Group, Host, Vm
from forewarn_core.planning.policy import Budget, MaintenancePolicy, Scope
from forewarn_metadata.replication.messages import Caller, DocumentChange, Publication
from tests.core.maintenance import MaintenanceRig
from tests.core.rig import DAY_MS, MINUTE_MS, small
from tests.core.test_host_orders import declare, shared
from tests.core.test_host_orders import name as name_first
from tests.core.test_moving import begun
from tests.simulator.checkers.contract import obstacle
from tests.simulator.checkers.declaration_checker import DeclarationChecker
from tests.simulator.checkers.host_order_checker import untested
from tests.simulator.checkers.maintenance_checker import MaintenanceChecker
from tests.simulator.checkers.node_checker import NodeChecker
from tests.simulator.checkers.node_notice import SHOWN_AGAIN_MS
from tests.simulator.checkers.state_checker import StateChecker
from tests.simulator.world.crash_points import Violation
from tests.simulator.world.event_queue import START_MS, EventQueue
from tests.simulator.world.side_work import SAME_PLANS_MAX, SideWork


@dataclass
class CheckedRig(MaintenanceRig):
    """A core whose steps the checker of maintenances follows."""

    checker: MaintenanceChecker = field(init=False)

    def __post_init__(self) -> None:
        declarations = DeclarationChecker(self.state, self.policy.maintenance, Counter())
        self.checker = MaintenanceChecker(
            self.state,
            self.policy,
            Counter(),
            events=self.events,
            declarations=declarations,
        )

    def _tell(self, stimulus: PlaneStimulus) -> StepResult:
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


def test_wave_waits_where_its_hosts_together_exceed_a_budget() -> None:
    """Each host alone would have room; which hosts share a wave is the planner's choice. F-4."""
    rig = CheckedRig(plans_made=False)
    rig.tell(ChangeTopology(hosts=tuple(Host(f"h{n}") for n in range(3))))
    rig.tell(ApplyPolicy(MaintenancePolicy((Budget(Scope.FLEET, 2),))))
    work = rig.ask(Cause.HOST_UPDATE, "h2", not_before_ms=rig.now_ms + DAY_MS)
    number = rig.start("h0", "h1")
    rig.make_plan(number)
    maintenance = rig.maintenance(number)
    assert rig.checker.may_announce(maintenance, rig.now_ms) == ""
    rig.tell(Cancel(work.number))
    assert rig.checker.may_announce(maintenance, rig.now_ms) == "h0, h1"


def test_move_is_withdrawn_for_vms_that_their_user_has_moved_there() -> None:
    """A redeployment takes room at its destination as a move does. Source: F-3, F-6."""
    rig = CheckedRig(plans_made=False)
    hosts = tuple(Host(f"h{n}", n, n, memory_mib=1024) for n in range(3))
    vms = (Vm("v0", "h0", "a", memory_mib=1024), Vm("v1", "h1", "b", memory_mib=1024))
    layout = ChangeTopology(hosts=hosts, groups=(Group("a"), Group("b")), vms=vms)
    rig.tell(layout, Enable("a"), Enable("b"))
    number = rig.start("h0", move_s=600)
    rig.make_plan(number)
    [move] = rig.working(number).values()
    assert move.destinations == ("h2",)
    rig.ask(Cause.REDEPLOY, "v1", destination="h2")
    assert rig.now(move).state is OperationState.CANCELLED


def test_work_waits_for_vms_that_are_leaving_another_host_for_its_host() -> None:
    """The work is not late: it may not be announced while VMs are to arrive. Source: L-1, F-3."""
    rig = CheckedRig(plans_made=False)
    hosts = tuple(Host(f"h{n}", n, n, memory_mib=1024) for n in range(2))
    layout = ChangeTopology(hosts, (Group("a"),), (Vm("v0", "h0", "a", memory_mib=1024),))
    rig.tell(layout, Enable("a"))
    number = rig.start("h0", move_s=600)
    rig.make_plan(number)
    move = rig.working(number)["h0"]
    work = rig.ask(Cause.HOST_UPDATE, "h1", queue=True)
    assert work.state is OperationState.PLANNED
    assert obstacle(work, move, rig.state.topology)
    assert obstacle(move, work, rig.state.topology)


def test_work_on_a_host_begins_once_its_vms_leave() -> None:
    """It follows on the empty host if the clock was put back; no other work does. F-1, N-4."""
    rig = CheckedRig(plans_made=False)
    hosts = tuple(Host(f"h{n}", n, n, memory_mib=1024) for n in range(2))
    layout = ChangeTopology(hosts, (Group("a"),), (Vm("v0", "h0", "a", memory_mib=1024),))
    rig.tell(layout, Enable("a"))
    earliest_ms = rig.now_ms + DAY_MS
    number = rig.start("h0", move_s=600, earliest_ms=earliest_ms)
    rig.wait(DAY_MS)
    rig.make_plan(number)
    move = begun(rig, "h0", "v0", number)
    rig.now_ms = earliest_ms - 30 * MINUTE_MS
    other = with_execution(replace(move, number=99, host="h1"), started_ms=rig.now_ms)
    with pytest.raises(Violation, match="F-3"):
        rig.checker.durable(Changes(last_number=99, operations={99: other}), rig.now_ms, 0)
    rig.finish(move)
    assert rig.working(number)["h0"].state is OperationState.RUNNING


def test_host_that_fails_while_its_vms_return_counts() -> None:
    """Its service has ended; a service that forgot to count it is noticed. Source: F-5."""
    rig = CheckedRig(plans_made=False)
    hosts = tuple(Host(f"h{n}", n, n, memory_mib=1024) for n in range(2))
    rig.tell(ChangeTopology(hosts, (Group("a"),), (Vm("v0", "h0", "a", memory_mib=1024),)))
    rig.tell(Enable("a"))
    number = rig.start("h0", move_s=600, return_vms=True)
    rig.make_plan(number)
    rig.finish(begun(rig, "h0", "v0", number))
    rig.finish(rig.working(number)["h0"])
    [returns] = rig.state.operations.values()
    assert returns.is_return
    target = rig.state.targets["1/h0"]
    struck = step(
        rig.state,
        RequestMaintenance(cause=Cause.HARDWARE_FAILURE, targets=("h0",)),
        now_ms=rig.now_ms,
        terms=rig.terms(),
    )
    assert rig.state.targets["1/h0"].reason
    rig.state.targets["1/h0"] = target
    with pytest.raises(Violation, match="F-5"):
        rig.checker.durable(struck.changes, rig.now_ms, 0)


def moving() -> tuple[CheckedRig, int]:
    """Hosts h0 and h1 with a VM each, h2 and h3 empty; a maintenance empties one at a time."""
    rig = CheckedRig(plans_made=False)
    hosts = tuple(Host(f"h{n}", n, n, memory_mib=2048) for n in range(4))
    vms = (Vm("v0", "h0", "a", memory_mib=1024), Vm("v1", "h1", "b", memory_mib=1024))
    rig.tell(ChangeTopology(hosts, (Group("a"), Group("b")), vms), Enable("a"), Enable("b"))
    number = rig.start("h0", "h1", move_s=600, budgets=(Budget(Scope.FLEET, 1),))
    rig.make_plan(number)
    return rig, number


def test_work_on_an_empty_host_waits_for_room_when_it_starts() -> None:
    """The host has had its place since the move; its budget does not bind others. Source: F-3."""
    rig, number = moving()
    move = begun(rig, "h0", "v0", number)
    other = rig.start("h3")
    rig.make_plan(other)
    rig.show()
    rig.wait(20 * MINUTE_MS)
    rig.finish(move)
    work = rig.working(number)["h0"]
    assert work.state is OperationState.ANNOUNCED
    running = replace(work, state=OperationState.RUNNING, execution=move.execution)
    beyond = Changes(last_number=rig.state.last_number, operations={work.number: running})
    with pytest.raises(Violation, match="starts beyond the budget of fleet"):
        rig.checker._check_beside_running(running, beyond)
    rig.finish(rig.working(other)["h3"])
    assert rig.now(work).state is OperationState.RUNNING


def test_wave_that_has_begun_makes_no_new_pause() -> None:
    """A new policy with a longer pause came between its announcement and its work. Source: F-3."""
    rig, number = moving()
    rig.finish(begun(rig, "h0", "v0", number))
    rig.finish(rig.working(number)["h0"])
    rig.make_plan(number)
    move = begun(rig, "h1", "v1", number)
    rig.tell(ApplyPolicy(MaintenancePolicy(pause_s=3600)))
    rig.make_plan(number)
    rig.finish(move)
    assert rig.working(number)["h1"].state is OperationState.RUNNING


@dataclass(eq=False)
class Node:
    """A metadata node away from the service, which nothing happens to."""

    name: str
    hosts: frozenset[str]
    up: bool = True
    since_ms: int = 0
    serves: bool = True
    may_come_back_empty: bool = False
    spooled: list[bytes] = field(default_factory=list)


class Nodes:
    """Two nodes with a host each, and a VM on the first host."""

    def __init__(self) -> None:
        self.old, self.new = Node("n0", frozenset(("h0",))), Node("n1", frozenset(("h1",)))
        self.states = StateChecker(EventQueue())
        self.checker = NodeChecker(self.states, lambda *_: True)
        self.checker.far = (self.old, self.new)
        groups: dict[str, Group | None] = {"g": Group("g")}
        self.commit(
            Changes(last_number=0, hosts={"h0": Host("h0"), "h1": Host("h1")}, groups=groups)
        )
        self.put(Vm("v0", "h0", "g"))
        self.checker.look(self.new)

    def commit(self, changes: Changes) -> None:
        """Make a change durable a minute later."""
        self.states.queue.now_ms += 60_000
        self.states.durable(changes)
        self.checker.durable(changes)

    def put(self, vm: Vm | None) -> None:
        """Add, move or remove the VM."""
        self.commit(Changes(last_number=0, vms={"v0": vm}))


def test_vm_leaves_its_old_node_once_the_new_one_has_it() -> None:
    """One that was removed and added again is another VM, and has not moved. Source: M-1."""
    nodes, gone = Nodes(), DocumentChange(1, gone=("v0",))
    nodes.put(Vm("v0", "h1", "g"))
    with pytest.raises(Violation, match="M-1"):
        nodes.checker.takes(nodes.old, gone)
    nodes.put(None)
    nodes.put(Vm("v0", "h1", "g"))
    nodes.checker.takes(nodes.old, gone)


def test_vm_leaves_its_old_node_for_a_host_without_a_node() -> None:
    """It moved on since, to a host whose node does not have it yet. Source: M-1."""
    nodes = Nodes()
    nodes.commit(Changes(last_number=0, hosts={"h2": Host("h2")}))
    nodes.put(Vm("v0", "h2", "g"))
    nodes.put(Vm("v0", "h1", "g"))
    nodes.checker.takes(nodes.old, DocumentChange(1, gone=("v0",)))


def test_node_serves_a_vm_from_the_commit_that_brings_it_on() -> None:
    """Work that another commit started in that millisecond was shown elsewhere. Source: M-4."""
    nodes = Nodes()
    nodes.put(Vm("v0", "h1", "g"))
    arrived_ms = nodes.states.queue.now_ms
    assert not nodes.checker.serves(nodes.new, "g", arrived_ms)
    assert nodes.checker.serves(nodes.new, "g", arrived_ms + 1)


@pytest.mark.parametrize("shows", [True, False])
def test_vm_sees_work_in_the_document_that_it_still_reads(*, shows: bool) -> None:
    """The change of its group's kind has not reached its node yet. Source: H-7."""
    rig = small()
    rig.now_ms += MINUTE_MS
    operation = rig.ask(Cause.EVICTION, "web_0")
    states, node = StateChecker(EventQueue(), rig.state), Node("n0", frozenset(("h0",)))
    states.events.update(rig.events)
    states.announced_ms[operation.number] = states.queue.now_ms + MINUTE_MS
    nodes = NodeChecker(states, lambda *_: True)
    nodes.far = (node,)
    nodes.durable(Changes(last_number=0, vms={"web_0": rig.state.topology.vms["web_0"]}))
    read = Caller("web_0", "web", "web/web_0", host="h0")
    document = rig.state.views["web"].document if shows else Document(1, ())
    shown = Publication(read.view, enabled=True, document=document)
    nodes.takes(node, DocumentChange(1, whole=True, callers=(read,), publications=(shown,)))
    rig.tell(ApplyPolicy(MaintenancePolicy(wait_until_shown=("Preempt",))))
    noticed = rig.tell(NoticeShown((operation.number,)))
    with nullcontext() if shows else pytest.raises(Violation, match="H-7"):
        nodes.notice.durable(noticed.changes)


def test_work_waits_for_unseen_vms_by_the_policy_in_force() -> None:
    """History named them while another policy let such work go on. Source: H-7."""
    rig = small()
    operation = rig.ask(Cause.EVICTION, "web_0")
    states = StateChecker(EventQueue(), rig.state)
    states.sound_since_ms = lambda _: states.queue.now_ms
    nodes = NodeChecker(states, lambda *_: True)
    nodes.far = (Node("n0", frozenset(("h0",))),)
    outcome = rig.tell(NotShown((operation.number,), ("n0",), ("h0",)))
    nodes.notice.durable(outcome.changes)
    for impacts in (("Preempt",), ("Reboot",)):
        rig.tell(ApplyPolicy(MaintenancePolicy(wait_until_shown=impacts)))
        assert nodes.notice.waits(rig.now(operation)) is ("Preempt" in impacts)


def test_work_waits_a_little_longer_for_a_vm_that_has_left_its_node() -> None:
    """A redeploy that was announced before moved it; it is shown the work again. Source: H-7."""
    rig = small()
    rig.tell(ApplyPolicy(MaintenancePolicy(wait_until_shown=("Preempt",))))
    operation = rig.ask(Cause.EVICTION, "web_0")
    states = StateChecker(EventQueue(), rig.state)
    nodes = NodeChecker(states, lambda *_: True)
    nodes.notice.durable(rig.tell(NotShown((operation.number,), ("n0",), ("h0",))).changes)
    nodes.notice.durable(Changes(last_number=0, vms={"web_0": Vm("web_0", "h1", "web")}))
    states.queue.now_ms += SHOWN_AGAIN_MS - 1
    assert nodes.notice.waits(rig.now(operation))
    states.queue.now_ms += 1
    assert not nodes.notice.waits(rig.now(operation))


def test_maintenance_that_waits_is_planned_again_for_hours() -> None:
    """Plans in a hurry are those that take no force. Source: F-2."""
    queue = EventQueue()
    work = SideWork(None, queue, dice=None, findings=None)  # type: ignore[arg-type]
    waits = Maintenance(1, Cause.HOST_REBOOT, Impact.REBOOT, ("h0",), START_MS, "operator", 600)
    for _ in range(SAME_PLANS_MAX + 1):
        queue.now_ms += 60_000
        work.note_plan(waits, None)
    for _ in range(SAME_PLANS_MAX - 1):
        queue.now_ms += 1000
        work.note_plan(waits, None)
    with pytest.raises(Violation, match="F-2"):
        work.note_plan(waits, None)


def test_checker_sees_work_before_the_test_of_an_owner() -> None:
    """Until the test is over and observed; then nobody waits for it. Source: T-8."""
    rig = shared()
    number = declare(rig)
    name_first(rig, number)
    maintenance, topology = rig.state.maintenances[number], rig.state.topology
    ended = Target(f"{number}/h2", number, "h2", 1, 9, TargetState.DONE, START_MS)
    observed_ms = START_MS + 86_400_000
    for targets, start_ms, expected in (
        ({}, observed_ms, "the test of shop"),
        ({ended.key: ended}, observed_ms - 1, "the test of shop"),
        ({ended.key: ended}, observed_ms, ""),
    ):
        assert untested(targets, maintenance, "h0", topology, start_ms) == expected
        assert untested(targets, maintenance, "h2", topology, start_ms) == ""


CHECKERS = sorted((Path(__file__).parent / "checkers").glob("*.py"))


@pytest.mark.parametrize("path", CHECKERS, ids=lambda path: path.stem)
def test_checkers_judge_without_the_rules(path: Path) -> None:
    """A second opinion shares the codes of blockers with the rules, and none of their functions."""
    imported = [
        node.module or ""
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom)
    ]
    rules = {each for each in imported if each.startswith("forewarn_core.rules")}
    assert rules <= {"forewarn_core.rules.blockers"}
