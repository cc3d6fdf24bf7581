"""Orders of many hosts: accepted whole or not at all, then planned and announced in portions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from forewarn.core import ordering
from forewarn.core.draft import Draft
from forewarn.core.impact import Cause, Impact, Source
from forewarn.core.order import ORDER_TARGETS_MAX, Order
from forewarn.core.policy import Policy
from forewarn.core.refusals import (
    AlreadyAsked,
    AlreadyOrdered,
    NoticeTooShort,
    OperationInvalid,
    TooManyOperations,
    Unknown,
)
from forewarn.core.step import PORTION_MAX
from forewarn.core.stimulus import (
    Cancel,
    ChangeTopology,
    DriverDone,
    DriverFailed,
    DriverReports,
    PlaceOrder,
    Proceed,
    Recover,
    Repair,
    RequestMaintenance,
)
from forewarn.core.topology import Health
from tests.core.orders import HOSTS, NAMES, S, actions, apart, begun, one_step, states, work
from tests.core.rig import MINUTE_MS

if TYPE_CHECKING:
    from forewarn.errors import CallerError


def test_order_is_accepted_before_anything_is_planned() -> None:
    """The step that accepts it writes one record, whatever it names; its turns come after it."""
    rig = apart()
    outcome = one_step(rig, PlaceOrder(work()))
    [number] = outcome.operations
    assert outcome.rest == (number,)
    assert [entry.action for entry in outcome.changes.entries] == ["order.accepted"]
    order = rig.state.orders[number]
    assert (order.id, order.hosts, order.unplanned) == (f"order-{number}", HOSTS, HOSTS)
    assert rig.state.order_hosts[number].names == NAMES
    assert (order.impact, order.source) == (Impact.REBOOT, Source.PLATFORM)


def test_each_portion_announces_a_few_and_all_have_their_turn() -> None:
    """Each operation is planned and announced in the step of its host's turn. Source: N-1."""
    rig = apart()
    number = one_step(rig, PlaceOrder(work())).operations[0]
    sizes = []
    rest: tuple[int, ...] = (number,)
    while rest:
        outcome = one_step(rig, Proceed(rest))
        sizes += [size] if (size := len(outcome.changes.operations)) else []
        rest = outcome.rest
        rig.now_ms += 1000
    assert sizes == [PORTION_MAX] * 3 + [2]
    assert [each.host for each in rig.operations.values()] == list(NAMES)
    assert set(states(rig)) == {S.ANNOUNCED}
    assert {each.request for each in rig.operations.values()} == {number}
    assert all(o.not_before_ms - o.announced_ms >= 900_000 for o in rig.operations.values())
    assert rig.state.orders[number].unplanned == 0
    rig.check_replay()


def test_later_portions_disturb_no_notice_already_given() -> None:
    """What was announced and shown stays as it was shown. Source: N-1, N-3."""
    rig = apart()
    number = begun(rig, 1)
    rig.show()
    shown = dict(rig.operations)
    rig.now_ms += 2 * MINUTE_MS
    rig.tell(Proceed((number,)))
    assert {each: rig.operations[each] for each in shown} == shown
    assert not actions(rig, "operation.renewed")


def test_asked_start_holds_in_every_portion() -> None:
    """An earliest start that notice has caught up with is later for the hosts that come later."""
    rig = apart()
    asked_ms = rig.now_ms + 16 * MINUTE_MS
    outcome = one_step(rig, PlaceOrder(work(not_before_ms=asked_ms)))
    first = one_step(rig, Proceed(outcome.operations))
    assert {o.not_before_ms for o in first.changes.operations.values()} == {asked_ms}
    rig.now_ms += 10 * MINUTE_MS
    second = one_step(rig, Proceed(outcome.operations))
    expected_ms = rig.now_ms + 15 * MINUTE_MS
    assert all(o.not_before_ms >= expected_ms for o in second.changes.operations.values())


def test_asked_start_holds_where_nobody_is_to_be_asked() -> None:
    """Work that nobody is asked about starts no earlier than was asked for. Source: B-3."""
    rig = apart(enabled=False)
    asked_ms = rig.now_ms + 16 * MINUTE_MS
    rig.tell(PlaceOrder(work(not_before_ms=asked_ms)))
    assert set(states(rig)) == {S.ANNOUNCED}
    rig.show()
    rig.wait(17 * MINUTE_MS)
    assert set(states(rig)) == {S.RUNNING}


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (work("h0", "none"), Unknown),
        (work("h0", "h0"), OperationInvalid),
        (work(*map(str, range(ORDER_TARGETS_MAX + 1))), OperationInvalid),
        (work(impact=Impact.TERMINATE), OperationInvalid),
        (work("v-h0", cause=Cause.DELETION), OperationInvalid),
        (work(cause=Cause.LIVE_MIGRATION, destination="h7"), OperationInvalid),
        (work(destination="h7"), OperationInvalid),
        (work("h0", "h1", cause=Cause.LIVE_MIGRATION, destination="none"), Unknown),
        (work(not_before_ms=1), NoticeTooShort),
        (work("h1", "h9"), OperationInvalid),
        (work("h1", "h8", cause=Cause.HARDWARE_DEGRADED), AlreadyAsked),
    ],
    ids=[
        *("unknown", "twice", "too-many", "impact", "of-vms", "destination-among", "no-move"),
        *("destination-unknown", "too-soon", "failed-host", "already-asked"),
    ],
)
def test_wrong_order_is_refused_whole(wrong: RequestMaintenance, error: type[CallerError]) -> None:
    """One host that cannot be done refuses the order, by a check or by the step that accepts it."""
    rig = apart()
    rig.tell(
        RequestMaintenance(cause=Cause.HARDWARE_DEGRADED, targets=("h8",)),
        RequestMaintenance(cause=Cause.HARDWARE_FAILURE, targets=("h9",)),
    )
    told = rig.refuses(PlaceOrder(wrong), error)
    with pytest.raises(error) as checked:
        ordering.check(Draft(rig.state, rig.now_ms, rig.terms()), wrong)
    assert str(checked.value) == str(told)


def test_check_finds_nothing_wrong_with_a_right_order() -> None:
    """A check writes nothing, and what it let pass is accepted without another one."""
    rig = apart()
    draft = Draft(rig.state, rig.now_ms, rig.terms())
    ordering.check(draft, work())
    assert not draft.changes
    rig.tell(PlaceOrder(work(), checked=True))
    assert states(rig) == [S.ANNOUNCED] * HOSTS


def test_hosts_without_a_turn_count_against_the_limit() -> None:
    """What is accepted is room taken: a later request is refused, not the order's last hosts."""
    rig = apart(policy=Policy(max_operations=HOSTS + 1))
    one_step(rig, PlaceOrder(work()))
    error = rig.refuses(work("h0", "h1", cause=Cause.HOST_UPDATE), TooManyOperations)
    assert f"{HOSTS} operations are live and 2 more" in str(error)
    rig.ask(Cause.HOST_UPDATE, "h0")
    error = rig.refuses(PlaceOrder(work(cause=Cause.NETWORK_UPDATE)), TooManyOperations)


def test_repeated_order_is_refused_until_it_has_ended() -> None:
    """A caller that asks again since the answer was lost is told of the order that is there."""
    rig = apart(enabled=False)
    rig.tell(PlaceOrder(work()))
    error = rig.refuses(PlaceOrder(work(), checked=True), AlreadyOrdered)
    assert f"host-reboot of the same {HOSTS} hosts" in str(error)
    assert states(rig) == [S.RUNNING] * HOSTS
    for number in list(rig.state.operations):
        rig.finish(number)
    [number] = rig.tell(PlaceOrder(work())).operations
    assert rig.state.orders[number].unplanned == 0


def test_host_removed_before_its_turn_is_left_out() -> None:
    """It is said of which host and why; the others have their turn."""
    rig = apart()
    number = begun(rig, 1)
    gone = NAMES[PORTION_MAX + 1]
    rig.tell(ChangeTopology(removed=(("vm", f"v-{gone}"), ("host", gone))))
    rig.tell(Proceed((number,)))
    [text] = actions(rig, "order.left-out")
    assert text == f"host {gone} of order-{number} is left out: There is no host {gone}."
    assert [e.host for e in rig.entries if e.action == "order.left-out"] == [gone]
    assert rig.state.orders[number].left_out == 1
    assert len(rig.operations) == HOSTS - 1
    assert sorted(rig.operations) == list(range(number + 1, number + HOSTS))
    rig.check_replay()


def test_work_asked_for_meanwhile_is_not_done_twice() -> None:
    """A host that somebody else has predicted to fail meanwhile is left out. Source: N-2."""
    rig = apart()
    outcome = one_step(rig, PlaceOrder(work(cause=Cause.HARDWARE_DEGRADED)))
    rig.ask(Cause.HARDWARE_DEGRADED, NAMES[-1])
    rig.tell(Proceed(outcome.rest))
    [text] = actions(rig, "order.left-out")
    assert f"hardware-degraded of {NAMES[-1]} is already under way" in text
    assert {host.health for host in rig.state.topology.hosts.values()} == {Health.DEGRADED}


def test_order_of_which_all_is_left_out_ends() -> None:
    """Nothing is left of it, and it says so."""
    rig = apart()
    number = one_step(rig, PlaceOrder(work())).operations[0]
    for name in NAMES:
        rig.tell(ChangeTopology(removed=(("vm", f"v-{name}"), ("host", name))))
    rig.tell(Proceed((number,)))
    [ended] = actions(rig, "order.ended")
    assert (
        ended == f"order-{number} has ended: {HOSTS} hosts had their turn, {HOSTS} of them left out"
    )
    assert not rig.state.orders
    rig.check_replay()


def test_order_ends_with_its_last_operation() -> None:
    """However its operations end, and not before."""
    rig = apart(enabled=False)
    number = rig.tell(PlaceOrder(work())).operations[0]
    *most, last = rig.state.operations.values()
    for each in most:
        rig.finish(each)
    rig.tell(DriverFailed(last.number, last.attempt, "its board is dark"))
    assert number in rig.state.orders
    assert not actions(rig, "order.ended")
    rig.finish(last)
    assert actions(rig, "order.ended") == [
        f"order-{number} has ended: {HOSTS} hosts had their turn"
    ]
    assert not rig.state.orders
    rig.check_replay()


def test_operation_cancelled_meanwhile_stays_so() -> None:
    """The order goes on with its other hosts, and plans no second operation for that one."""
    rig = apart()
    number = begun(rig, 1)
    first = next(iter(rig.operations))
    rig.tell(Cancel(first), Proceed((number,)))
    assert states(rig).count(S.CANCELLED) == 1
    assert len({each.host for each in rig.operations.values()}) == len(rig.operations) == HOSTS


def test_order_goes_on_after_a_restart_and_nothing_comes_twice() -> None:
    """What had its turn keeps its operation; the rest has it now. Source: L-7."""
    rig = apart()
    number = begun(rig, 2)
    before = set(rig.operations)
    rig.tell(Recover())
    assert before < set(rig.operations)
    assert [each.host for each in rig.operations.values()] == list(NAMES)
    assert rig.state.orders[number].unplanned == 0
    assert rig.tell(Recover()).rest == ()
    assert len(rig.operations) == HOSTS


def test_several_orders_share_a_portion() -> None:
    """However many orders are under way, a step plans no more than a portion of them all."""
    rig = apart()
    numbers = [
        one_step(rig, PlaceOrder(work(cause=cause))).operations[0]
        for cause in (Cause.HOST_REBOOT, Cause.HOST_UPDATE)
    ]
    outcome = one_step(rig, Proceed(tuple(numbers)))
    assert len(outcome.changes.operations) == PORTION_MAX
    assert set(outcome.rest) >= set(numbers)
    rig.tell(Proceed(outcome.rest))
    assert len(rig.operations) == 2 * HOSTS


def test_failed_hosts_of_an_order_are_failed_in_portions() -> None:
    """A zone that fails: its VMs see it started at once, each host in its turn. Source: L-4."""
    rig = apart()
    rig.ask(Cause.HOST_UPDATE, "h0")
    rig.tell(PlaceOrder(work(cause=Cause.HARDWARE_FAILURE)))
    assert sorted(states(rig), key=lambda s: s.value) == [S.CANCELLED] + [S.RUNNING] * HOSTS
    assert {host.health for host in rig.state.topology.hosts.values()} == {Health.FAILED}
    rig.tell(*(Repair(name) for name in NAMES))
    assert not rig.state.orders


def test_failed_hosts_with_a_destination_are_lost() -> None:
    """Their VMs are brought up elsewhere: Redeploy. Source: L-4."""
    rig = apart()
    lost = work(*NAMES[1:], cause=Cause.HARDWARE_FAILURE, destination="h0")
    rig.tell(PlaceOrder(lost))
    assert {each.cause for each in rig.operations.values()} == {Cause.HOST_LOST}


def test_order_is_a_value_of_its_own() -> None:
    """What its text says is kept with it, for its hosts whose turn is to come."""
    rig = apart()
    told = work(description="moving the racks", duration_s=60)
    [number] = one_step(rig, PlaceOrder(told)).operations
    rig.tell(Recover())
    kept = rig.state.orders[number]
    assert isinstance(kept, Order)
    found = {(each.description, each.duration_s) for each in rig.operations.values()}
    assert found == {("moving the racks", 60)}
    assert {each.actor for each in rig.operations.values()} == {"operator"}


def test_order_goes_on_while_other_work_ends_with_one_of_its_operations() -> None:
    """What ends beside it in the same step is none of its own. Source: ADR 0040."""
    rig = apart(enabled=False)
    by_hand = rig.ask(Cause.HOST_REBOOT, NAMES[0])
    number = rig.tell(PlaceOrder(work(NAMES[1], NAMES[2]))).operations[0]
    first, second = (each for each in rig.state.operations.values() if each.request == number)
    rig.tell(DriverReports((DriverDone(by_hand.number, 1), DriverDone(first.number, 1))))
    assert number in rig.state.orders
    rig.finish(second)
    assert number not in rig.state.orders


def test_order_whose_last_hosts_are_left_out_ends() -> None:
    """Everything else of it was over before their turn came. Source: ADR 0040."""
    rig = apart(enabled=False)
    number = begun(rig, 3)
    rig.checked = False  # the last hosts of it have no turn yet
    for _ in range(3):
        one_step(rig, Proceed(tuple(rig.state.operations)))
    for each in list(rig.state.operations.values()):
        rig.finish(each)
    assert not rig.state.operations
    assert number in rig.state.orders
    for name in NAMES[3 * PORTION_MAX :]:
        rig.tell(ChangeTopology(removed=(("vm", f"v-{name}"), ("host", name))))
    rig.tell(Proceed((number,)))
    assert len(actions(rig, "order.ended")) == 1
    assert not rig.state.orders


def test_asked_start_that_has_passed_gives_the_notice_and_no_more() -> None:
    """Hosts whose turn comes after it are due as soon as their notice is over. Source: N-1."""
    rig = apart()
    outcome = one_step(rig, PlaceOrder(work(not_before_ms=rig.now_ms + 16 * MINUTE_MS)))
    rig.now_ms += 60 * MINUTE_MS
    later = one_step(rig, Proceed(outcome.operations))
    owed_ms = rig.now_ms + 15 * MINUTE_MS
    found = {(o.asked_ms, o.not_before_ms) for o in later.changes.operations.values()}
    assert found == {(owed_ms, owed_ms)}
