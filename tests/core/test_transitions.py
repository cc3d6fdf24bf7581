"""What work does to the fleet and to other work: failures, endings, retries, moves."""

from types import ModuleType

import pytest

from forewarn_base.values import replace
from forewarn_core.access import reducer as access_reducer
from forewarn_core.access import stimulus as access_stimuli
from forewarn_core.fleet import stimulus as stimuli
from forewarn_core.fleet.impact import Cause, Impact, Source
from forewarn_core.fleet.lifecycle import (
    EVENT_MOVES,
    LIVE_EVENT,
    LIVE_OPERATION,
    OPERATION_MOVES,
    SHOWN_AS,
    Alert,
    AlertMove,
    Event,
    EventState,
    IllegalMove,
    Move,
    Operation,
    OperationState,
    move_alert,
    move_event,
    move_operation,
    with_execution,
)
from forewarn_core.fleet.refusals import Unknown, WrongState
from forewarn_core.fleet.step import _HANDLERS
from forewarn_core.fleet.stimulus import (
    Acknowledge,
    Cancel,
    Complete,
    DriverAborted,
    DriverBegun,
    DriverDone,
    DriverFailed,
    DriverProgressed,
    PlaneStimulus,
    Recover,
    Repair,
    Reports,
    Retry,
)
from forewarn_core.fleet.topology import Health
from forewarn_core.requests import ApprovalRequest
from tests.core.rig import MINUTE_MS, small

S = OperationState


def test_failure_appears_as_started() -> None:
    """A host failure is first seen Started, for every VM of the host. Source: L-4."""
    rig = small()
    failure = rig.ask(Cause.HARDWARE_FAILURE, "h0")
    assert failure.notice.not_before_ms is None
    assert rig.shown("web") == rig.shown("db") == ["Reboot Started"]
    assert rig.document("web")[0] == 1
    assert rig.health("h0") is Health.FAILED
    assert rig.begun == [failure.number]
    rig.finish(failure)
    assert rig.health("h0") is Health.HEALTHY


def test_reports_of_drivers_count_each_by_itself() -> None:
    """What is said of one operation changes nothing of another, also if that has ended (L-5)."""
    rig = small()
    first, second, third = (rig.ask(Cause.HARDWARE_FAILURE, host) for host in ("h0", "h1", "h2"))
    rig.finish(third)
    failed = DriverFailed(first.number, first.execution.attempt, "no power")
    done = [DriverDone(each.number, each.execution.attempt) for each in (third, second)]
    rig.tell(Reports((done[0], failed, done[1])))
    assert rig.now(first).reason == "no power"
    assert [rig.now(each).state for each in (first, second)] == [S.RUNNING, S.SUCCEEDED]


def test_failure_ends_all_work_on_the_host() -> None:
    """Announced work is cancelled, running work failed and aborted. Source: L-4, L-8."""
    rig = small()
    announced = rig.ask(Cause.HOST_REBOOT, "h0")
    running = rig.ask(Cause.HOST_REBOOT, "h2")
    elsewhere = rig.ask(Cause.REBOOT, "web_0")
    rig.approve("far_0", running)
    rig.ask(Cause.HARDWARE_FAILURE, "h0")
    rig.ask(Cause.HARDWARE_FAILURE, "h2")
    assert rig.now(announced).state is S.CANCELLED
    assert (rig.now(running).state, rig.now(running).reason) == (S.FAILED, "host h2 failed")
    assert rig.aborted == [running.number]
    assert rig.now(elsewhere).state is S.ANNOUNCED
    assert rig.shown("far") == ["Reboot Started"]


def test_lost_host_moves_its_vms() -> None:
    """VMs of a lost host come back elsewhere, shown as Redeploy. Source: L-4."""
    rig = small()
    lost = rig.ask(Cause.HOST_LOST, "h0", destination="h2")
    assert rig.shown("db") == ["Redeploy Started"]
    rig.finish(lost)
    assert rig.state.topology.vms_on("h2") == ("db_0", "far_0", "web_0")
    assert rig.state.topology.hosts["h0"].health is Health.FAILED


def test_repair_ends_the_failure() -> None:
    """A host taken for well again ends its failure; other work on it stays. Source: L-5, L-8."""
    rig = small()
    failure = rig.ask(Cause.HARDWARE_FAILURE, "h0")
    other = rig.ask(Cause.REBOOT, "web_0")
    assert rig.tell(Repair("h0")).numbers == (failure.number,)
    assert rig.now(failure).state is S.SUCCEEDED
    assert rig.aborted == [failure.number]
    assert rig.now(other).state is S.ANNOUNCED
    rig.tell(Repair("h0"))
    rig.refuses(Repair("h9"), Unknown)


def test_repair_leaves_a_running_evacuation_alone() -> None:
    """An evacuation that runs is the driver's to end. Source: L-8."""
    rig = small()
    predicted = rig.ask(Cause.HARDWARE_DEGRADED, "h2")
    rig.approve("far_0", predicted)
    rig.tell(Repair("h2"))
    assert rig.now(predicted).state is S.RUNNING


def test_deletion_and_eviction_remove_the_vm() -> None:
    """A deleted or preempted VM is gone from the fleet. Source: D-4."""
    rig = small()
    eviction = rig.ask(Cause.EVICTION, "web_0")
    rig.approve("web_1", eviction)
    rig.finish(eviction)
    assert "web_0" not in rig.state.topology.vms
    rig.check_replay()


def test_failure_whose_vms_come_back_elsewhere_is_a_redeploy() -> None:
    """A failure with a destination is the loss of the host. Source: L-4, D-4."""
    rig = small()
    failure = rig.ask(Cause.HARDWARE_FAILURE, "h0", destination="h2")
    assert rig.shown("web") == ["Redeploy Started"]
    rig.finish(failure)
    assert rig.state.topology.vms["web_0"].host == "h2"
    assert rig.health("h0") is Health.FAILED


def test_failed_host_turns_out_to_be_lost() -> None:
    """The failure ends for the loss, in one step, with a new event. Source: L-4, L-8, D-3."""
    rig = small()
    failure = rig.ask(Cause.HARDWARE_FAILURE, "h0")
    before = rig.document("web")
    lost = rig.ask(Cause.HOST_LOST, "h0", destination="h2")
    assert (rig.now(failure).state, rig.now(failure).reason) == (S.FAILED, "host h0 is lost")
    assert rig.aborted == [failure.number]
    assert rig.shown("web") == ["Redeploy Started"]
    assert rig.document("web")[0] == before[0] + 1
    rig.finish(lost)
    assert rig.shown("web") == []
    rig.check_replay()


def test_move_and_work_on_its_destination_exclude_each_other() -> None:
    """No VM arrives in the middle of a disturbance. Source: L-5."""
    rig = small()
    move = rig.ask(Cause.LIVE_MIGRATION, "h0", destination="h2")
    other = rig.ask(Cause.HOST_REBOOT, "h2")
    assert rig.now(other).state is S.PLANNED
    assert [waiting.subject for waiting in rig.why(other)] == [move.id]
    rig.approve("web_0", move)
    rig.approve("db_0", move)
    rig.finish(move)
    assert rig.now(other).vms == ("db_0", "far_0", "web_0")


def test_host_that_a_driver_has_chosen_is_a_destination() -> None:
    """Work there waits, it is not removed, and its announced work is told who came. Source: L-5."""
    rig = small()
    move = rig.ask(Cause.LIVE_MIGRATION, "h0")
    rig.approve("web_0", move)
    rig.approve("db_0", move)
    rig.tell(DriverProgressed(move.number, 1, "moving", 10, (("web_0", "h2"), ("db_0", "h1"))))
    rig.check_replay()
    rig.tell(DriverProgressed(move.number, 1, "moving", 50, (("web_0", "h2"),)))
    other = rig.ask(Cause.HOST_REBOOT, "h2")
    assert rig.now(other).state is S.PLANNED
    assert [waiting.subject for waiting in rig.why(other)] == [move.id]
    rig.finish(move)
    assert [rig.state.topology.vms[name].host for name in ("web_0", "db_0")] == ["h2", "h1"]
    assert rig.now(other).vms == ("far_0", "web_0")


def test_move_waits_for_work_on_its_destination() -> None:
    """A user's redeploy to a host that is worked on is announced, and waits. Source: N-3, L-6."""
    rig = small()
    work = rig.ask(Cause.HOST_REBOOT, "h2")
    rig.approve("far_0", work)
    move = rig.ask(Cause.REDEPLOY, "db_0", destination="h2")
    rig.approve("db_0", move)
    assert [waiting.code.value for waiting in rig.why(move)] == ["host-busy"]
    rig.finish(work)
    assert rig.now(move).state is S.RUNNING


def test_failed_execution_waits_for_the_operator() -> None:
    """A failed execution keeps its event and its reason until the operator decides. Source: L-8."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h2")
    rig.approve("far_0", operation)
    rig.tell(DriverBegun(operation.number, 1), DriverFailed(operation.number, 1, "no answer"))
    assert rig.shown("far") == ["Reboot Started"]
    assert rig.now(operation).alert is not Alert.NONE
    assert "no answer" in rig.why(operation)[0].text
    assert not rig.tell(DriverFailed(operation.number, 1, "again")).changes
    rig.tell(Retry(operation.number))
    assert (rig.now(operation).execution.attempt, rig.now(operation).reason) == (2, "")
    assert rig.begun == [operation.number] * 2
    rig.finish(operation)
    assert rig.now(operation).state is S.SUCCEEDED


def test_driver_without_a_reason_has_one_all_the_same() -> None:
    """An operation that is stuck says why, whatever the driver said. Source: L-8."""
    rig = small(enabled=())
    operation = rig.ask(Cause.HOST_REBOOT, "h2")
    rig.tell(DriverFailed(operation.number, 1, ""))
    assert rig.now(operation).reason == "the driver gave no reason"


@pytest.mark.parametrize("failed", [False, True])
def test_operator_completes_or_fails_it(*, failed: bool) -> None:
    """The operator ends a running operation, well or not; its event goes. Source: L-8, L-5."""
    rig = small()
    operation = rig.ask(Cause.HARDWARE_FAILURE, "h2")
    rig.tell(Complete(operation.number, failed=failed, reason="seen on site"))
    assert rig.now(operation).state is (S.FAILED if failed else S.SUCCEEDED)
    assert rig.now(operation).reason == "seen on site"
    assert rig.document("far")[1] == ()
    assert rig.aborted == [operation.number]
    expected = Health.FAILED if failed else Health.HEALTHY
    assert rig.state.topology.hosts["h2"].health is expected


def test_abort_is_owed_until_the_driver_was_told() -> None:
    """What ends without its driver is told to it again after a restart, until once. Source: L-7."""
    rig = small()
    failure = rig.ask(Cause.HARDWARE_FAILURE, "h2")
    rig.tell(Complete(failure.number), Recover())
    assert rig.aborted == [failure.number] * 2
    rig.check_replay()
    rig.tell(DriverAborted(failure.number), Recover())
    assert rig.aborted == [failure.number] * 2
    assert not rig.state.aborts
    assert not rig.tell(DriverAborted(failure.number)).changes, "it is noted once"
    rig.check_replay()


def test_abort_the_driver_never_took_is_told_to_people() -> None:
    """A driver that could not be told is named in history, and told no more. Source: L-8."""
    rig = small()
    failure = rig.ask(Cause.HARDWARE_FAILURE, "h2")
    rig.tell(Repair("h2"), DriverAborted(failure.number, "its board is dark"))
    assert rig.entries[-1].action == "operation.abort-failed"
    assert rig.entries[-1].text.endswith("op-1 has ended: its board is dark")
    assert not rig.tell(Recover()).abort


def test_end_by_the_driver_owes_no_abort() -> None:
    """A driver that has ended an operation itself is told nothing of it. Source: L-5."""
    rig = small(enabled=())
    operation = rig.ask(Cause.HOST_REBOOT, "h2")
    rig.finish(operation)
    assert not rig.tell(DriverAborted(operation.number)).changes
    assert not rig.tell(Recover()).abort


def test_reports_of_another_attempt_mean_nothing() -> None:
    """A driver's late word on an earlier attempt, or on what has ended, is ignored. Source: L-7."""
    rig = small(enabled=())
    operation = rig.ask(Cause.HOST_REBOOT, "h2")
    rig.tell(Retry(operation.number))
    for report in (DriverBegun(1, 1), DriverDone(1, 1), DriverFailed(1, 1, "x"), DriverDone(99, 1)):
        assert not rig.tell(report).changes
    rig.tell(DriverBegun(1, 2))
    assert not rig.tell(DriverBegun(1, 2)).changes, "begun is noted once"
    rig.tell(DriverDone(1, 2))
    assert not rig.tell(DriverDone(1, 2)).changes


@pytest.mark.parametrize(
    ("stimulus", "error"),
    [
        (Cancel(1), WrongState),
        (Cancel(99), Unknown),
        (Complete(2), WrongState),
        (Complete(99), Unknown),
        (Retry(2), WrongState),
        (Retry(99), Unknown),
    ],
    ids=repr,
)
def test_illegal_order_is_refused(stimulus: PlaneStimulus, error: type[WrongState]) -> None:
    """What cannot be done where an operation stands is refused, nothing changed. Source: L-3."""
    rig = small()
    rig.ask(Cause.HARDWARE_FAILURE, "h2")
    rig.ask(Cause.REBOOT, "web_0")
    rig.refuses(stimulus, error)


def test_too_long_a_run_raises_an_alert_once() -> None:
    """Running longer than its duration and the limit raises an alert. Source: L-8."""
    rig = small(enabled=())
    operation = rig.ask(Cause.HOST_UPDATE, "h2", duration_s=600)
    rig.wait(600_000 + 3_600_000 - 1)
    assert rig.now(operation).alert is Alert.NONE
    rig.wait(1)
    assert rig.now(operation).alert is not Alert.NONE
    assert "longer than it should" in rig.why(operation)[0].text
    count = len(rig.entries)
    rig.wait(3_600_000)
    assert len(rig.entries) == count


def test_retry_has_its_whole_time() -> None:
    """The limit counts again from a retry's beginning. Source: L-8."""
    rig = small(enabled=())
    operation = rig.ask(Cause.HOST_REBOOT, "h2")
    rig.wait(2 * 3_600_000)
    rig.tell(Retry(operation.number), DriverBegun(operation.number, 2))
    rig.wait(3_600_000 - 1)
    assert rig.now(operation).alert is Alert.NONE
    rig.wait(1)
    assert rig.now(operation).alert is not Alert.NONE


def test_crash_before_the_beginning_begins_again() -> None:
    """What was started and not confirmed as begun is begun after a restart. Source: L-7."""
    rig = small(enabled=())
    first = rig.ask(Cause.HOST_REBOOT, "h2")
    second = rig.ask(Cause.REBOOT, "web_0")
    rig.tell(DriverBegun(second.number, 1))
    rig.begun.clear()
    rig.tell(Recover())
    assert rig.begun == [first.number]


def test_why_says_what_a_running_operation_waits_for() -> None:
    """A running operation waits for its driver, an ended one for nothing. Source: L-8."""
    rig = small(enabled=())
    operation = rig.ask(Cause.HOST_UPDATE, "h2", duration_s=60)
    assert rig.why(operation)[0].text == "the driver has not begun to work on h2"
    rig.tell(DriverBegun(operation.number, 1))
    (waiting,) = rig.why(operation)
    assert (waiting.code.value, waiting.clears_ms) == ("driver", rig.now_ms + 60_000)
    rig.wait(60_000)
    assert rig.why(operation)[0].clears_ms == 0, "what is over by then is not a limit any more"
    rig.finish(operation)
    assert rig.why(operation) == []


def test_work_that_nobody_is_asked_about_starts_at_the_time_asked_for() -> None:
    """At that very time, before anybody has been shown anything. Source: B-3, L-6."""
    rig = small(enabled=())
    asked_ms = rig.now_ms + 60 * MINUTE_MS
    operation = rig.ask(Cause.HOST_REBOOT, "h2", not_before_ms=asked_ms)
    rig.wait(60 * MINUTE_MS - 1)
    assert rig.now(operation).state is OperationState.ANNOUNCED
    rig.wait(1)
    assert rig.now(operation).execution.started_ms == asked_ms


def test_work_that_nobody_is_asked_about_starts_once_all_of_it_is_approved() -> None:
    """An operator's approval counts where no group listens, too. Source: L-1, A-9."""
    rig = small(enabled=())
    later_ms = rig.now_ms + 60 * MINUTE_MS
    operation = rig.ask(Cause.HOST_REBOOT, "h0", not_before_ms=later_ms)
    first, *others = operation.events
    rig.tell(Acknowledge((first,)))
    assert rig.now(operation).state is OperationState.ANNOUNCED
    rig.tell(Acknowledge(tuple(others)))
    assert rig.now(operation).execution.started_ms == rig.now_ms


def test_repair_answers_with_what_it_has_withdrawn() -> None:
    """Who repairs a host is told which work is over by that. Source: N-2, G-3."""
    rig = small()
    foreseen = rig.ask(Cause.HARDWARE_DEGRADED, "h2")
    assert rig.tell(Repair("h2")).numbers == (foreseen.number,)
    assert rig.now(foreseen).state is OperationState.CANCELLED


# -- the tables of the two machines: what may follow what, and that nothing else does ------------


State, E, M = OperationState, EventState, Move

LEGAL_OF_OPERATION = {
    (State.PLANNED, M.ANNOUNCE): State.ANNOUNCED,
    (State.PLANNED, M.CANCEL): State.CANCELLED,
    (State.PLANNED, M.FAULT): State.RUNNING,
    (State.ANNOUNCED, M.DUE): State.RUNNING,
    (State.ANNOUNCED, M.CANCEL): State.CANCELLED,
    (State.RUNNING, M.DONE): State.SUCCEEDED,
    (State.RUNNING, M.FAIL): State.FAILED,
}
LEGAL_OF_EVENT = {
    (E.SCHEDULED, M.APPROVE): E.APPROVED,
    (E.SCHEDULED, M.DUE): E.STARTED,
    (E.SCHEDULED, M.CANCEL): E.CANCELLED,
    (E.APPROVED, M.DUE): E.STARTED,
    (E.APPROVED, M.CANCEL): E.CANCELLED,
    (E.STARTED, M.DONE): E.COMPLETED,
    (E.STARTED, M.FAIL): E.COMPLETED,
}


def an_operation(state: OperationState) -> Operation:
    """An operation that stands somewhere."""
    return Operation(
        number=3,
        request=3,
        cause=Cause.HOST_REBOOT,
        impact=Impact.REBOOT,
        source=Source.PLATFORM,
        routine=True,
        host="h0",
        vms=("web_0",),
        of_vm=False,
        description="",
        state=state,
    )


@pytest.mark.parametrize("move", Move, ids=lambda move: move.value)
@pytest.mark.parametrize("state", OperationState, ids=lambda state: state.value)
def test_operation_moves_as_the_table_says(state: OperationState, move: Move) -> None:
    """A move of an operation is in the table, or raises and changes nothing. Source: L-1, L-3."""
    before = an_operation(state)
    target = LEGAL_OF_OPERATION.get((state, move))
    if target is not None:
        assert move_operation(before, move).state is target
        return
    with pytest.raises(IllegalMove, match=f"op-3 is {state.value}: it cannot {move.value}"):
        move_operation(before, move)
    assert before == an_operation(state)


@pytest.mark.parametrize("move", Move, ids=lambda move: move.value)
@pytest.mark.parametrize("state", EventState, ids=lambda state: state.value)
def test_event_moves_as_the_table_says(state: EventState, move: Move) -> None:
    """A move of an event is in the table, or raises and changes nothing. Source: L-1, L-3, D-6."""
    before = Event("E", 3, "web", ("web_0",), state)
    target = LEGAL_OF_EVENT.get((state, move))
    if target is not None:
        assert move_event(before, move).state is target
        return
    with pytest.raises(IllegalMove, match=f"event E is {state.value}: it cannot {move.value}"):
        move_event(before, move)
    assert before == Event("E", 3, "web", ("web_0",), state)


def test_tables_hold_nothing_else() -> None:
    """The tables are those of the design, move for move. Source: L-1."""
    assert OPERATION_MOVES == LEGAL_OF_OPERATION
    assert EVENT_MOVES == LEGAL_OF_EVENT


@pytest.mark.parametrize("move", AlertMove)
@pytest.mark.parametrize("alert", Alert)
def test_alert_moves_by_its_table_alone(alert: Alert, move: AlertMove) -> None:
    """An alert is raised once, a failure of the driver outranks lateness. Source: L-8."""
    raised = {
        (Alert.NONE, AlertMove.BLOCK): Alert.BLOCKED,
        (Alert.NONE, AlertMove.EXCEED): Alert.OVERDUE,
        (Alert.NONE, AlertMove.BREAK): Alert.STUCK,
        (Alert.OVERDUE, AlertMove.BREAK): Alert.STUCK,
    }
    operation = replace(an_operation(OperationState.RUNNING), alert=alert)
    if move is AlertMove.RESTART and alert is not Alert.NONE:
        assert move_alert(operation, move).alert is Alert.NONE
    elif (alert, move) in raised:
        assert move_alert(operation, move).alert is raised[alert, move]
    else:
        with pytest.raises(IllegalMove, match=f"the alert of op-3 is {alert.value}: it cannot"):
            move_alert(operation, move)


def test_event_is_shown_as_scheduled_or_started() -> None:
    """There is no completed status: what has ended is not shown. Source: D-6."""
    assert SHOWN_AS == {
        EventState.SCHEDULED: "Scheduled",
        EventState.APPROVED: "Scheduled",
        EventState.STARTED: "Started",
    }
    assert set(SHOWN_AS) == LIVE_EVENT


def test_every_live_state_leads_to_an_end() -> None:
    """No operation can be left for ever in a state without a way out. Source: L-8."""
    assert {state for state, _ in OPERATION_MOVES} == LIVE_OPERATION
    assert {state for state, _ in EVENT_MOVES} == LIVE_EVENT


def test_operation_is_named_for_people() -> None:
    """An operation's id is `op-` and its number; its target is its host, or its VM."""
    operation = an_operation(OperationState.PLANNED)
    assert (operation.id, operation.target, operation.live) == ("op-3", "h0", True)


def test_vm_goes_where_the_driver_has_said_or_else_where_it_was_asked() -> None:
    """Whichever is known of each VM. Source: R-1."""
    operation = small().ask(Cause.HOST_LOST, "h0", destination="h1")
    chosen = with_execution(operation, placements=(("web_0", "h2"),))
    assert chosen.destination_of("web_0") == "h2"
    assert chosen.destination_of("db_0") == "h1"


def test_every_stimulus_has_a_handler() -> None:
    """What can happen is handled: the table of handlers has an entry for each stimulus."""
    apart = {stimuli.CoreStimulus, stimuli.Reports, stimuli.Confirmed}
    assert _kinds(stimuli, stimuli.CoreStimulus) - apart == set(_HANDLERS) - {ApprovalRequest}
    of_access = _kinds(access_stimuli, access_stimuli.AccessStimulus)
    assert of_access - {access_stimuli.AccessStimulus} == set(access_reducer._HANDLERS)


def _kinds(module: ModuleType, base: type) -> set[type]:
    """Return the classes of a kind that a module knows."""
    named = vars(module).values()
    return {each for each in named if isinstance(each, type) and issubclass(each, base)}
