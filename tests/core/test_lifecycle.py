"""The tables of the two machines: what may follow what, and that nothing else does."""

from __future__ import annotations

import pytest

from forewarn.core.impact import Cause, Impact, Source
from forewarn.core.lifecycle import (
    EVENT_MOVES,
    LIVE_EVENT,
    LIVE_OPERATION,
    OPERATION_MOVES,
    SHOWN_AS,
    Event,
    EventState,
    IllegalMove,
    Move,
    Operation,
    OperationState,
    move_event,
    move_operation,
)
from forewarn.values import replace
from tests.core.rig import small

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
    chosen = replace(operation, placements=(("web_0", "h2"),))
    assert chosen.destination_of("web_0") == "h2"
    assert chosen.destination_of("db_0") == "h1"
