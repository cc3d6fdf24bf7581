"""Large work in portions: approvals in between, notice from what was shown, and crashes."""

from collections.abc import Iterator

import pytest

from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import Operation, OperationState
from forewarn_core.fleet.step import PORTION_MAX
from forewarn_core.fleet.stimulus import ChangeTopology, Enable, RequestMaintenance
from forewarn_core.fleet.topology import Group, GroupKind, Host, Vm
from forewarn_core.requests import ApprovalRequest
from tests.control.rig import Running
from tests.waiting import LIMIT_S

#: Hosts of an order that takes several portions.
HOSTS = 5 * PORTION_MAX + 3


@pytest.fixture
def running() -> Iterator[Running]:
    """A run loop with many hosts, a lone VM that polls on each."""
    made = Running()
    names = [f"n{n}" for n in range(HOSTS)]
    made.ask(
        ChangeTopology(
            tuple(Host(name) for name in names),
            tuple(Group(f"g-{name}", GroupKind.LONE) for name in names),
            tuple(Vm(f"v-{name}", name, f"g-{name}") for name in names),
        )
    )
    for name in names:
        made.ask(Enable(f"g-{name}"))
    yield made
    made.loop.stop()
    made.store.close()


def ordered(running: Running) -> tuple[Operation, ...]:
    """Order work on all the hosts."""
    targets = tuple(f"n{n}" for n in range(HOSTS))
    asked = RequestMaintenance(cause=Cause.HOST_REBOOT, targets=targets)
    return running.ask(asked).operations


def states(running: Running) -> list[OperationState]:
    """The states of all live operations."""
    read = running.loop.read(lambda plane: [o.state for o in plane.state.operations.values()])
    return read.result(LIMIT_S)


def finish(running: Running) -> None:
    """Let the loop come to rest."""
    while running.loop.read(lambda _: bool(running.loop._remaining)).result(LIMIT_S):
        running.settle()
    running.settle()


def test_large_order_is_announced_in_portions(running: Running) -> None:
    """Its answer names all of its operations; each commit announces a few. Source: L-7."""
    publications = len(running.publisher.changes)
    operations = ordered(running)
    assert len(operations) == HOSTS
    announced = [each for each in operations if each.state is OperationState.ANNOUNCED]
    assert len(announced) == PORTION_MAX
    finish(running)
    started = states(running)
    assert started.count(OperationState.PLANNED) == 0
    assert len(started) == HOSTS
    assert all(len(c.publications) <= PORTION_MAX for c in running.publisher.changes[publications:])


def test_approval_is_answered_between_the_portions(running: Running) -> None:
    """What VMs ask waits for one commit of a large order, not for all of them. Source: A-6."""
    other = running.announce()
    running.settle()
    targets = tuple(f"n{n}" for n in range(HOSTS))
    order = RequestMaintenance(cause=Cause.HOST_REBOOT, targets=targets)
    asked = running.loop.submit(order, "test")
    approval = running.loop.submit(ApprovalRequest("v", other.events, ""), "vm v")
    left = running.loop.read(lambda plane: [o.state for o in plane.state.operations.values()])
    asked.result(LIMIT_S)
    approval.result(LIMIT_S)
    assert left.result(LIMIT_S).count(OperationState.PLANNED) >= HOSTS - 3 * PORTION_MAX


def test_large_order_renews_no_notice(running: Running) -> None:
    """Each notice counts from its own commit, not from the order. Source: N-1."""
    actions: list[str] = []
    running.loop.on_committed.add(lambda done: actions.extend(each.action for each in done.entries))
    ordered(running)
    finish(running)
    assert "operation.renewed" not in actions
    assert actions.count("operation.shown") == HOSTS


def test_order_goes_on_after_a_crash_in_the_middle(running: Running) -> None:
    """What was planned and not yet announced is announced after the restart. Source: L-7."""
    ordered(running)
    running.restart(1000)
    finish(running)
    assert states(running).count(OperationState.ANNOUNCED) == HOSTS


def test_many_that_fall_due_at_once_start_in_portions(running: Running) -> None:
    """A tick in which hundreds fall due starts all of them, a few in each commit. Source: L-1."""
    ordered(running)
    finish(running)
    sizes: list[int] = []
    running.loop.on_committed.add(lambda done: sizes.append(len(done.begin)))
    running.pass_time(16 * 60_000)
    finish(running)
    assert states(running).count(OperationState.RUNNING) == HOSTS
    assert sum(sizes) == HOSTS
    assert max(sizes) <= PORTION_MAX
