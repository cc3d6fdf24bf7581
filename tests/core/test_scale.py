"""Large work goes through in one step; `make bench-scale` holds what that costs."""

from __future__ import annotations

import pytest

from forewarn.core.impact import Cause, Source
from forewarn.core.indexes import places_of
from forewarn.core.lifecycle import OperationState
from forewarn.core.policy import Policy
from forewarn.core.refusals import TooManyOperations
from forewarn.core.step import PORTION_MAX, step
from forewarn.core.stimulus import (
    TARGETS_MAX,
    Approve,
    Cancel,
    ChangeTopology,
    Enable,
    Proceed,
    RequestMaintenance,
    Tick,
)
from forewarn.core.topology import Group, Host, Vm
from tests.core.rig import MINUTE_MS, Rig, small

S = OperationState


def apart(count: int, *, policy: Policy | None = None) -> Rig:
    """Hosts with one VM and one group each."""
    rig = Rig(policy=policy or Policy())
    rig.tell(
        ChangeTopology(
            hosts=tuple(Host(f"h{n}", n % 3) for n in range(count)),
            groups=tuple(Group(f"g{n}", terminate_notice_s=300) for n in range(count)),
            vms=tuple(Vm(f"v{n}", f"h{n}", f"g{n}") for n in range(count)),
        )
    )
    return rig


def coupled(count: int, groups: int) -> Rig:
    """One request that deletes this many VMs, all told of it."""
    rig = Rig(policy=Policy(max_user_operations=count), checked=False)
    rig.tell(
        ChangeTopology(
            hosts=(Host("h"),),
            groups=tuple(Group(f"g{n}", terminate_notice_s=300) for n in range(groups)),
            vms=tuple(Vm(f"v{n}", "h", f"g{n % groups}") for n in range(count)),
        ),
        *(Enable(f"g{n}") for n in range(groups)),
    )
    rig.ask(Cause.DELETION, *(f"v{n}" for n in range(count)))
    rig.show()
    return rig


@pytest.mark.parametrize("approved", [True, False], ids=["approved", "due"])
def test_coupled_deletions_start_together(*, approved: bool) -> None:
    """Deletions of many portions start in one step once all may. Source: A-8."""
    count, groups = 3 * PORTION_MAX, 20
    rig = coupled(count, groups)
    if approved:
        for number in range(groups):
            events = [e.id for e in rig.state.events.values() if e.group == f"g{number}"]
            rig.tell(Approve(f"v{number}", tuple(events)))
    else:
        rig.now_ms += 6 * MINUTE_MS
        rig.tell(Tick())
    assert {each.state for each in rig.operations.values()} == {S.RUNNING}


def test_group_that_is_asked_meanwhile_holds_the_rest_of_a_start() -> None:
    """What was seen decided is looked at again once a group is enabled. Source: A-8, B-3."""
    count = PORTION_MAX + 3
    rig = apart(count, policy=Policy(max_user_operations=count))
    rig.tell(*(Enable(f"g{n}") for n in range(count - 1)))
    names = tuple(f"v{n}" for n in range(count))
    first = rig.ask(Cause.DELETION, *names, not_before_ms=rig.now_ms + 60 * MINUTE_MS)
    unasked = first.number + count - 1
    rig.show()
    for number in range(count - 2):
        rig.approve(f"v{number}", first.number + number)
    last = count - 2
    approval = Approve(f"v{last}", (rig.event_of(first.number + last, f"g{last}").id,))
    outcome = step(rig.state, approval, now_ms=rig.now_ms, terms=rig.terms())
    rig.state.adopt(outcome.changes)
    rig.replay.extend(outcome.changes.entries)
    rig.tell(Enable(f"g{count - 1}"), Proceed(outcome.rest))
    waiting = [each.number for each in rig.state.operations.values() if each.state is S.ANNOUNCED]
    assert waiting == [first.number + PORTION_MAX, first.number + last, unasked]
    rig.approve(f"v{count - 1}", unasked)
    assert {each.state for each in rig.state.operations.values()} == {S.RUNNING}


def test_all_that_is_due_at_once_starts_in_one_tick() -> None:
    """A tick starts all that is due, in as many portions as it takes."""
    count = 3 * PORTION_MAX
    rig = apart(count)
    for number in range(0, count, 7):  # some are asked, and do not answer
        rig.tell(Enable(f"g{number}"))
    later_ms = rig.now_ms + 16 * MINUTE_MS
    names = tuple(f"h{n}" for n in range(count))
    for start in range(0, count, TARGETS_MAX):
        some = names[start : start + TARGETS_MAX]
        rig.tell(RequestMaintenance(cause=Cause.HOST_UPDATE, targets=some, not_before_ms=later_ms))
    rig.show()
    rig.now_ms += 16 * MINUTE_MS
    rig.tell(Tick())
    assert {each.state for each in rig.state.operations.values()} == {S.RUNNING}


def test_live_operations_have_a_limit() -> None:
    """Beyond the limit work is refused with 409; what has failed is recorded all the same."""
    rig = small(policy=Policy(max_operations=2))
    rig.ask(Cause.HOST_UPDATE, "h0", "h1")
    error = rig.refuses(
        RequestMaintenance(cause=Cause.HOST_UPDATE, targets=("h2",)), TooManyOperations
    )
    assert error.status == 409
    assert "2 operations are live and 1 more are asked for; 2 may be" in str(error)
    assert rig.ask(Cause.HARDWARE_FAILURE, "h2").state is S.RUNNING


def test_end_wakes_only_what_waits_for_it() -> None:
    """Work that waits for something else stays planned when something ends. Source: G-1."""
    rig = apart(40)
    rig.tell(*(Enable(f"g{n}") for n in range(40)))
    first = rig.ask(Cause.HOST_UPDATE, *(f"h{n}" for n in range(40)))
    again = rig.ask(Cause.NETWORK_UPDATE, *(f"h{n}" for n in range(40)))
    rig.tell(Cancel(first.number))
    assert rig.now(again).state is S.ANNOUNCED
    others = [each for each in rig.state.operations.values() if each.number > again.number]
    assert {each.state for each in others} == {S.PLANNED}


def test_indexes_forget_what_has_ended() -> None:
    """Nothing is left of an operation once it is over."""
    rig = small()
    for number in range(3):
        operation = rig.ask(Cause.HOST_UPDATE, f"h{number}")
        waiting = rig.ask(Cause.NETWORK_UPDATE, f"h{number}")
        rig.tell(Cancel(operation.number), Cancel(waiting.number))
    state = rig.state
    assert not state.places.all()
    assert not state.waits
    assert not state.waiting.all()
    assert (len(state.starts), len(state.ends)) == (0, 0)


def test_routine_work_does_not_forestall_a_users_own() -> None:
    """Due in one instant, work that keeps clear of nobody goes first: one domain is hit. (G-1)."""
    rig = small()
    later_ms = rig.now_ms + 30 * MINUTE_MS
    routine = rig.ask(Cause.HOST_UPDATE, "h0", not_before_ms=later_ms)
    own = rig.ask(Cause.HOST_UPDATE, "h1", source=Source.USER, not_before_ms=later_ms)
    rig.show()
    rig.now_ms = later_ms
    rig.tell(Tick())
    assert rig.now(own).state is S.RUNNING
    assert rig.now(routine).state is S.ANNOUNCED
    [told] = [entry.text for entry in rig.entries if entry.action == "operation.blocked"]
    why = f"group web is disturbed in fault domain 1 by {own.id}"
    assert told == f"{routine.id} is due and cannot start: {why}"
    rig.tell(Tick())
    rig.finish(own)
    started = rig.now(routine)
    assert (started.state, started.alerted) == (S.RUNNING, False)
    assert sum(entry.action == "operation.blocked" for entry in rig.entries) == 1


def test_unpublished_notice_is_told_of_when_it_is_due() -> None:
    """People hear of work that cannot start since its notice was never published. Source: L-7."""
    rig = small()
    operation = rig.ask(Cause.HOST_UPDATE, "h0")
    rig.wait(16 * MINUTE_MS)
    assert rig.now(operation).state is S.ANNOUNCED
    assert rig.now(operation).alerted
    assert (
        rig.entries[-1].text
        == f"{operation.id} is due and cannot start: its notice is not published"
    )


def test_places_are_of_a_live_operation() -> None:
    """What has ended is found nowhere, and asking where is a bug."""
    rig = small()
    operation = rig.ask(Cause.HOST_UPDATE, "h0")
    rig.tell(Cancel(operation.number))
    with pytest.raises(AssertionError):
        list(places_of(rig.now(operation), rig.state.topology))
