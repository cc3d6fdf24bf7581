"""Orders of many hosts that are cancelled: nothing more is planned, nothing starts."""

from __future__ import annotations

from forewarn.core.impact import Cause, Source
from forewarn.core.refusals import UnknownOrder, WrongState
from forewarn.core.step import PORTION_MAX
from forewarn.core.stimulus import CancelOrder, ChangeTopology, Enable, PlaceOrder, Proceed, Tick
from forewarn.core.topology import Group, Host, Vm
from tests.core.orders import HOSTS, S, actions, apart, begun, one_step, states, work
from tests.core.rig import MINUTE_MS, Rig


def test_cancelled_order_plans_nothing_more_and_withdraws_in_portions() -> None:
    """What has not started is withdrawn, a few in each step; what runs ends by itself. (L-3)."""
    rig = apart()
    number = begun(rig, 2)
    rig.show()
    running = next(iter(rig.operations.values()))
    rig.approve(running.vms[0], running)
    outcome = one_step(rig, CancelOrder(number, "the wrong fleet"))
    left = 2 * PORTION_MAX
    assert outcome.rest == tuple(range(number + 1, number + 1 + left))
    assert [entry.action for entry in outcome.changes.entries] == [
        "order.cancelled",
        "order.hosts-dropped",
    ]
    first = one_step(rig, Proceed(outcome.rest))
    assert sum(o.state is S.CANCELLED for o in first.changes.operations.values()) == PORTION_MAX
    rig.tell(Proceed(first.rest))
    assert states(rig).count(S.CANCELLED) == left - 1
    assert rig.now(number + 2).reason == f"order-{number} is cancelled: the wrong fleet"
    assert number in rig.state.orders
    rig.finish(running)
    assert not rig.state.orders
    assert len(rig.operations) == left
    rig.check_replay()


def test_cancelled_order_starts_nothing() -> None:
    """What is not withdrawn yet does not start, though it is due. Source: L-3, L-6."""
    rig = apart()
    number = begun(rig, 2)
    rig.show()
    one_step(rig, CancelOrder(number))
    rig.now_ms += 16 * MINUTE_MS
    rig.tell(Tick())
    assert set(states(rig)) == {S.CANCELLED}
    assert not rig.state.orders


def test_users_work_of_a_cancelled_order_does_not_go_ahead_of_routine_work() -> None:
    """Work of others is started before routine work in another domain, but not if withdrawn."""
    rig = Rig()
    rig.tell(
        ChangeTopology(
            hosts=(Host("h0", 0), Host("h1", 1)),
            groups=(Group("web"),),
            vms=(Vm("v0", "h0", "web"), Vm("v1", "h1", "web")),
        ),
        Enable("web"),
    )
    later_ms = rig.now_ms + 30 * MINUTE_MS
    routine = rig.ask(Cause.HOST_UPDATE, "h0", not_before_ms=later_ms)
    users = work("h1", source=Source.USER, not_before_ms=later_ms)
    [number] = rig.tell(PlaceOrder(users)).operations
    rig.show()
    rig.now_ms = later_ms
    one_step(rig, CancelOrder(number))
    rig.tell(Tick())
    assert rig.now(number + 1).state is S.CANCELLED
    assert rig.now(routine).state is S.RUNNING


def test_cancelled_order_withdraws_what_waits_for_other_work() -> None:
    """What is only planned is withdrawn, too."""
    rig = apart()
    rig.ask(Cause.HOST_UPDATE, "h0")
    [number] = rig.tell(PlaceOrder(work())).operations
    assert rig.now(number + 1).state is S.PLANNED
    rig.tell(CancelOrder(number))
    assert rig.now(number + 1).state is S.CANCELLED


def test_only_a_live_order_can_be_cancelled_and_once() -> None:
    """A second word changes nothing, and is told so."""
    rig = apart(enabled=False)
    rig.refuses(CancelOrder(1), UnknownOrder)
    [number] = rig.tell(PlaceOrder(work())).operations
    rig.tell(CancelOrder(number))
    rig.refuses(CancelOrder(number), WrongState)
    assert set(states(rig)) == {S.RUNNING}
    rig.tell(PlaceOrder(work(cause=Cause.HOST_UPDATE)))  # what is cancelled may be asked for again


def test_life_of_an_order_is_told() -> None:
    """History says what was asked for, what had no turn, and how much was done. Source: A-6."""
    rig = apart()
    number = begun(rig, 1)
    one_step(rig, CancelOrder(number, "the wrong fleet"))
    left = HOSTS - PORTION_MAX
    assert actions(rig, "order.accepted") == [
        f"order-{number}: host-reboot of {HOSTS} hosts (Reboot) is asked for"
    ]
    assert actions(rig, "order.cancelled") == [
        f"order-{number} is cancelled; {left} of its hosts had not had their turn: the wrong fleet"
    ]
    assert actions(rig, "order.hosts-dropped") == [
        f"{left} hosts of order-{number} will have no turn"
    ]
    rig.tell(Proceed(tuple(rig.state.operations)))
    assert actions(rig, "order.ended") == [
        f"order-{number} has ended: {PORTION_MAX} hosts had their turn"
    ]
    whole = apart()
    [number] = whole.tell(PlaceOrder(work())).operations
    assert actions(whole, "order.planned") == [f"every host of order-{number} has had its turn"]
    one_step(whole, CancelOrder(number))
    assert actions(whole, "order.cancelled") == [
        f"order-{number} is cancelled; 0 of its hosts had not had their turn"
    ]


def test_one_step_withdraws_a_portion_of_what_waits() -> None:
    """However many operations a step is to look at; the rest is named. Source: L-3, ADR 0040."""
    rig = Rig()
    names = [f"h{n}" for n in range(2 * PORTION_MAX + 3)]
    rig.tell(
        ChangeTopology(
            hosts=tuple(Host(name, n) for n, name in enumerate(names)),
            groups=(Group("web"),),
            vms=tuple(Vm(f"v{name}", name, "web") for name in names),
        ),
        Enable("web"),
        PlaceOrder(work(*names)),
    )
    assert states(rig).count(S.PLANNED) == len(names) - 1
    [number] = rig.state.orders
    planned = tuple(n for n, o in rig.state.operations.items() if o.state is S.PLANNED)
    one_step(rig, CancelOrder(number))
    outcome = one_step(rig, Proceed(planned))
    ended = [each for each in outcome.changes.operations.values() if not each.live]
    assert len(ended) == PORTION_MAX
    assert set(outcome.rest) >= set(planned) - {each.number for each in ended}


def test_cancelled_order_with_nothing_left_is_over() -> None:
    """Its operations have ended, and its other hosts will have no turn. Source: L-3, ADR 0040."""
    rig = apart(enabled=False)
    number = begun(rig, 1)
    rig.checked = False  # the other hosts have no turn yet
    one_step(rig, Proceed(tuple(rig.state.operations)))
    for each in list(rig.state.operations.values()):
        rig.finish(each)
    assert number in rig.state.orders
    rig.tell(CancelOrder(number))
    assert not rig.state.orders
    assert len(actions(rig, "order.ended")) == 1
