"""The reducer of access decides on its records alone, and its writes join the step's commit."""

import pytest

from forewarn_base.errors import CallerError
from forewarn_base.values import replace
from forewarn_core.access.confirmations import (
    OF_PRINCIPAL_MAX,
    Confirmation,
    ConfirmationsFull,
    UnknownConfirmation,
)
from forewarn_core.access.reducer import AccessTerms, step
from forewarn_core.access.roles import Authority, Principal, Role, ScopeInvalid
from forewarn_core.access.state import AccessState
from forewarn_core.access.stimulus import (
    AccessStimulus,
    AskConfirmation,
    ConfirmCall,
    DropConfirmation,
    ExpireCalls,
    Grant,
    Revoke,
    SuspendAccess,
)
from forewarn_core.fleet.records import from_row, to_row
from forewarn_core.fleet.stimulus import Tick
from tests.core.maintenance import MaintenanceRig

ASKER, SECOND = Authority("ben", built_in=True), Authority("anna", built_in=True)
CALL = Confirmation(
    *(7, "ben", "operator ben", "POST /v1/hosts/h1/fail", "{}", "application/json", 0, 5000),
    built_in=True,
    permission="operate",
    sentence="fail host h1",
)


def terms(now_ms: int = 0, authority: Authority | None = SECOND) -> AccessTerms:
    """Return the terms of a step, in which a call waits for a second."""
    return AccessTerms(now_ms, authority, 1000, lambda: 8)


def test_writes_are_decided_from_the_state_which_stays_as_it_is() -> None:
    """The caller writes, so that one commit stores them with everything else. Source: P-2."""
    state = AccessState(principals={"kim": Principal("kim", (("viewer", ""),))})
    [granted] = step(state, Grant("kim", Role.OWNER, "shop"), terms())
    assert granted.record == Principal("kim", (("owner", "shop"), ("viewer", "")))
    [revoked] = step(state, Revoke("kim", Role.VIEWER), terms())
    assert revoked.removed
    assert state.principals["kim"].bindings == (("viewer", ""),)


@pytest.mark.parametrize(
    ("stimulus", "now_ms", "error"),
    [
        (Grant("kim", Role.OPERATOR, "shop"), 0, ScopeInvalid),
        (ConfirmCall(7), 5000, UnknownConfirmation),
        (DropConfirmation(6, "anna"), 0, UnknownConfirmation),
    ],
)
def test_refusal_is_an_error_without_writes(
    stimulus: AccessStimulus, now_ms: int, error: type[CallerError]
) -> None:
    """An expired call is as unknown as one that never waited. Source: P-8."""
    with pytest.raises(error):
        step(AccessState(confirmations={7: CALL}), stimulus, terms(now_ms))


def test_sentence_of_a_call_is_stored_and_told() -> None:
    """History says what people have read, and nobody reads the path again. Source: P-8."""
    state = AccessState(confirmations={7: CALL})
    [given] = step(state, ConfirmCall(7), terms())
    assert given.text == "c-7 of ben is confirmed by anna: fail host h1"
    assert (given.actor, given.removed) == ("operator anna", True)
    assert step(state, ExpireCalls(), terms(4999)) == ()
    [expired] = step(state, ExpireCalls(), terms(5000))
    assert expired.text == "c-7 of ben has expired: fail host h1"
    [asked] = step(AccessState(), AskConfirmation(CALL), terms(500, ASKER))
    assert asked.record == from_row("confirmation", to_row(asked.record))
    assert asked.text == "c-8 of ben waits for a second person: fail host h1"


def test_calls_that_have_expired_leave_room_at_once() -> None:
    """Neither the limit nor a repetition counts them; one step ends them. Source: P-8."""
    calls = {n: replace(CALL, number=n, body=str(n)) for n in range(OF_PRINCIPAL_MAX)}
    again = AskConfirmation(calls[0])
    with pytest.raises(ConfirmationsFull):
        step(AccessState(confirmations=calls), AskConfirmation(CALL), terms(4999))
    *expired, asked = step(AccessState(confirmations=calls), again, terms(5000))
    told = [each.action for each in expired], asked.action
    assert told == (["confirmation.expired"] * OF_PRINCIPAL_MAX, "confirmation.asked"), "P-8"


def test_call_that_a_restore_drops_is_told_as_dropped() -> None:
    """Nobody refused it, and it never takes effect. Source: U-5."""
    [dropped] = step(AccessState(confirmations={7: CALL}), SuspendAccess("a restore"), terms())
    assert (dropped.action, dropped.removed) == ("confirmation.dropped", True)
    assert dropped.text == "c-7 of ben is dropped: a restore: fail host h1"


def test_call_of_the_version_before_is_told_by_its_request() -> None:
    """That version stores no sentence. Source: H-8."""
    row = {name: each for name, each in to_row(CALL).items() if name != "sentence"}
    call = from_row("confirmation", row)
    assert isinstance(call, Confirmation)
    assert call.text == "POST /v1/hosts/h1/fail"


def test_time_ends_a_waiting_call_in_the_step_of_the_fleet() -> None:
    """One step of one commit serves both, and its journal undoes both. Source: P-8."""
    rig = MaintenanceRig()
    rig.tell(AskConfirmation(CALL))
    [call] = rig.state.access.confirmations.values()
    rig.now_ms = call.expires_ms
    rig.tell(Tick())
    assert rig.state.access.confirmations == {}
    assert rig.entries[-1].action == "confirmation.expired"
