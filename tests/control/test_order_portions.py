"""Orders of many hosts in a run loop: approvals in between, crashes, a full disk, a lost writer."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from forewarn.core.impact import Cause
from forewarn.core.lifecycle import OperationState
from forewarn.core.refusals import AlreadyOrdered, WrongState
from forewarn.core.step import PORTION_MAX
from forewarn.core.stimulus import (
    Approve,
    CancelOrder,
    ChangeTopology,
    Complete,
    Enable,
    PlaceOrder,
    RequestMaintenance,
)
from forewarn.core.topology import Group, GroupKind, Host, Vm
from forewarn.store.errors import StoreFull, StoreLost
from tests.control.rig import WAIT_S, Running, refuses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from forewarn.control.plane import Committed
    from forewarn.core.order import Order
    from forewarn.core.state import Changes

    Commit = Callable[[Changes], int]

#: Hosts of an order that takes several portions.
HOSTS = 5 * PORTION_MAX + 3
NAMES = tuple(f"n{n}" for n in range(HOSTS))
WORK = RequestMaintenance(cause=Cause.HOST_REBOOT, targets=NAMES)
S = OperationState


@pytest.fixture
def running() -> Iterator[Running]:
    """A run loop with many hosts, a lone VM that polls on each."""
    made = Running()
    made.ask(
        ChangeTopology(
            tuple(Host(name) for name in NAMES),
            tuple(Group(f"g-{name}", GroupKind.LONE) for name in NAMES),
            tuple(Vm(f"v-{name}", name, f"g-{name}") for name in NAMES),
        )
    )
    for name in NAMES:
        made.ask(Enable(f"g-{name}"))
    yield made
    made.loop.stop()
    made.store.close()


def finish(running: Running) -> None:
    """Let the loop come to rest."""
    while running.loop.read(lambda _: bool(running.loop._rest)).result(WAIT_S):
        running.settle()
    running.settle()


def hosts(running: Running) -> Counter[str]:
    """How many live operations there are on each host."""
    read = running.loop.read(lambda plane: [o.host for o in plane.state.operations.values()])
    return Counter(read.result(WAIT_S))


def states(running: Running) -> Counter[OperationState]:
    """How many live operations there are in each state."""
    read = running.loop.read(lambda plane: [o.state for o in plane.state.operations.values()])
    return Counter(read.result(WAIT_S))


def order_of(committed: Committed) -> Order:
    """The order that a commit was about."""
    assert committed.order is not None
    return committed.order


def test_order_is_durable_before_it_is_answered(running: Running) -> None:
    """Killed right after the answer, it is carried out by the next start. Source: L-7."""
    order = order_of(running.ask(PlaceOrder(WORK)))
    assert running.store.orders.get(order.number) is not None
    running.restart(1000)
    finish(running)
    assert hosts(running) == Counter(NAMES)
    assert states(running) == {S.ANNOUNCED: HOSTS}


@pytest.mark.parametrize("portions", [1, 3, 5])
def test_order_goes_on_where_a_crash_cut_it_off(running: Running, portions: int) -> None:
    """No host is lost and none comes twice, wherever it was. Source: L-7."""
    written = 0

    def commit(changes: Changes, plain: Commit = running.store.commit) -> int:
        nonlocal written
        written += bool(changes.operations)
        if written > portions:
            raise StoreFull(place="here", reason="full")
        return plain(changes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running.store, "commit", commit)
        running.ask(PlaceOrder(WORK))
        while written <= portions:
            running.settle()
        running.loop.stop()
    running.restart(1000)
    finish(running)
    assert hosts(running) == Counter(NAMES)


def test_approval_is_answered_between_the_portions(running: Running) -> None:
    """What VMs ask waits for one commit of a large order, not for all of them. Source: A-6."""
    other = running.announce()
    running.settle()
    asked = running.loop.submit(PlaceOrder(WORK), "test")
    approval = running.loop.submit(Approve("v", other.events), "vm v")
    left = running.loop.read(lambda plane: [o.unplanned for o in plane.state.orders.values()])
    asked.result(WAIT_S)
    approval.result(WAIT_S)
    [unplanned] = left.result(WAIT_S)
    assert unplanned >= HOSTS - 3 * PORTION_MAX


def test_order_goes_on_under_a_flood_of_requests(running: Running) -> None:
    """After a few requests one portion has its turn, however many wait. Source: A-6."""
    order = order_of(running.ask(PlaceOrder(WORK)))
    other = running.announce()
    flood = [running.loop.submit(Approve("v", other.events), "vm v") for _ in range(200)]
    left = running.loop.read(lambda plane: plane.state.orders[order.number].unplanned)
    assert left.result(WAIT_S) == 0
    assert all(each.result(WAIT_S) for each in flood)


def test_order_renews_no_notice(running: Running) -> None:
    """Neither those given before it, nor its own: each counts from its commit. Source: N-1, N-3."""
    other = running.announce()
    running.settle()
    actions: list[str] = []
    running.loop.on_committed.add(lambda done: actions.extend(each.action for each in done.entries))
    running.ask(PlaceOrder(WORK))
    finish(running)
    assert "operation.renewed" not in actions
    assert actions.count("operation.shown") == HOSTS
    assert running.history(other).count("operation.shown") == 1


def test_full_disk_refuses_an_order_and_delays_a_portion(running: Running) -> None:
    """An order that cannot be kept is not there; one that is kept waits for room."""
    full = refuses(StoreFull(place="here", reason="full"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running.store, "commit", full)
        with pytest.raises(StoreFull):
            running.ask(PlaceOrder(WORK))
    assert not hosts(running)
    refused = 0

    def commit(changes: Changes, plain: Commit = running.store.commit) -> int:
        nonlocal refused
        if changes.operations and refused < 2:
            refused += 1
            full(changes)
        return plain(changes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running.store, "commit", commit)
        running.ask(PlaceOrder(WORK))
        while refused < 2 or running.loop._unreported:
            running.pass_time(1000)
        finish(running)
    assert hosts(running) == Counter(NAMES)


def test_superseded_writer_leaves_the_order_to_the_other(running: Running) -> None:
    """Its portion fails whole, and it ends; what is durable is whole. Source: L-7."""
    lost = refuses(StoreLost(place="here"))

    def commit(changes: Changes, plain: Commit = running.store.commit) -> int:
        return lost(changes) if changes.operations else plain(changes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running.store, "commit", commit)
        running.ask(PlaceOrder(WORK))
        while not running.lost:
            running.loop.wake()
        running.loop.stop()
    running.restart(1000)
    finish(running)
    assert hosts(running) == Counter(NAMES)


def test_two_callers_cannot_place_the_same_order(running: Running) -> None:
    """Both were checked before either was accepted; the writer refuses the second."""
    first = running.loop.submit(PlaceOrder(WORK, checked=True), "one")
    second = running.loop.submit(PlaceOrder(WORK, checked=True), "another")
    first.result(WAIT_S)
    with pytest.raises(AlreadyOrdered):
        second.result(WAIT_S)
    finish(running)
    assert hosts(running) == Counter(NAMES)


def test_order_cancelled_in_the_middle_is_withdrawn(running: Running) -> None:
    """Nothing more is announced; what was is withdrawn, a few in each commit. Source: L-3."""
    order = order_of(running.ask(PlaceOrder(WORK)))
    sizes: list[int] = []
    running.loop.on_committed.add(lambda done: sizes.append(len(done.changed)))
    running.ask(CancelOrder(order.number, "not now"))
    finish(running)
    assert not hosts(running)
    assert max(sizes, default=0) <= PORTION_MAX
    ended = running.store.orders.get(order.number)
    assert ended is not None
    assert not ended.live
    with pytest.raises(WrongState, match="ended"):
        running.ask(CancelOrder(order.number))


def test_order_is_counted_by_the_states_of_its_operations(running: Running) -> None:
    """The store tells how far it is, ended operations included."""
    order = order_of(running.ask(PlaceOrder(WORK)))
    finish(running)
    first = running.loop.read(lambda plane: next(iter(plane.state.operations.values())))
    operation = first.result(WAIT_S)
    running.ask(Approve(f"v-{operation.host}", operation.events))
    running.ask(Complete(operation.number))
    assert running.store.orders.states(order.number) == {S.SUCCEEDED: 1, S.ANNOUNCED: HOSTS - 1}
