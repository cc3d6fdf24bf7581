"""Break-glass: a confirmation is lifted for a time, and somebody else reviews it. Source: T-14."""

import pytest

from forewarn_core.access.roles import Authority
from forewarn_core.fleet.guards import ConfirmationNeeded
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.refusals import LiftRefused, OwnReview, TicketWrongState
from forewarn_core.fleet.stimulus import (
    ApplyPolicy,
    LiftConfirmation,
    MoveTicket,
    ReopenTicket,
    RequestMaintenance,
    Tick,
)
from forewarn_core.fleet.ticket import TicketMove, TicketState
from forewarn_core.planning.policy import ConfirmedAct, MaintenancePolicy
from tests.core.rig import MINUTE_MS, Rig, small
from tests.core.test_windows import tickets

HOUR_MS = 60 * MINUTE_MS
KIM, LEE = Authority("kim"), Authority("lee")
FAIL = RequestMaintenance(cause=Cause.HARDWARE_FAILURE, targets=("h0",))


@pytest.fixture
def rig() -> Rig:
    """A fleet whose policy lets nobody fail a host alone."""
    rig = small()
    confirm = (ConfirmedAct.FAIL_HOST, ConfirmedAct.APPLY_POLICY, ConfirmedAct.CREATE_PRINCIPAL)
    rig.tell(ApplyPolicy(MaintenancePolicy(confirm=confirm)))
    rig.caller = KIM
    return rig


def lifted(rig: Rig) -> None:
    """Kim needs nobody to fail a host, for an hour."""
    rig.tell(LiftConfirmation(ConfirmedAct.FAIL_HOST, rig.now_ms + HOUR_MS, "fire"))


def test_lift_permits_its_act_and_lists_each_use(rig: Rig) -> None:
    """Both facts are in history: the lift, and what it permitted. Source: T-14."""
    rig.refuses(FAIL, ConfirmationNeeded)
    lifted(rig)
    rig.tell(FAIL)
    actions = [each.action for each in rig.entries]
    assert actions.index("ticket.opened") < actions.index("ticket.used")
    [review] = tickets(rig)
    assert (review.account, review.description, len(review.texts)) == ("kim", "fire", 1)


def test_lift_is_for_its_principal_and_its_act_alone(rig: Rig) -> None:
    """Nobody else acts by it, and it never covers the policy. Source: T-14."""
    lifted(rig)
    rig.refuses(ApplyPolicy(MaintenancePolicy()), ConfirmationNeeded)
    rig.caller = LEE
    rig.refuses(FAIL, ConfirmationNeeded)


def test_lift_ends_at_its_time_and_leaves_a_review(rig: Rig) -> None:
    """A second person is needed again, and the review stays open. Source: T-14."""
    lifted(rig)
    rig.wait(HOUR_MS)
    [review] = tickets(rig)
    assert review.state is TicketState.RESOLVED
    rig.refuses(FAIL, ConfirmationNeeded)
    rig.wait(30 * 24 * HOUR_MS)
    [review] = tickets(rig)
    assert review.live


def test_another_person_closes_the_review_with_a_text(rig: Rig) -> None:
    """The end of the review ends the lift. Source: T-14."""
    lifted(rig)
    [review] = tickets(rig)
    rig.refuses(MoveTicket(review.number, TicketMove.CLOSE, "fine"), OwnReview)
    rig.caller = LEE
    rig.refuses(MoveTicket(review.number, TicketMove.CLOSE), OwnReview)
    rig.tell(MoveTicket(review.number, TicketMove.CLOSE, "the fire was real"))
    rig.caller = KIM
    rig.refuses(FAIL, ConfirmationNeeded)


def test_reopened_review_is_no_lift(rig: Rig) -> None:
    """Its lift stays over, also if it is taken up again within its time. Source: T-9, T-14."""
    lifted(rig)
    [review] = tickets(rig)
    rig.caller = LEE
    rig.tell(MoveTicket(review.number, TicketMove.CLOSE, "the fire was real"))
    [closed] = tickets(rig)
    reopen = ReopenTicket(closed.number, "closed by mistake", ended=closed)
    rig.tell(reopen, MoveTicket(review.number, TicketMove.WORK))
    [review] = tickets(rig)
    assert (review.state, review.closed_ms) == (TicketState.IN_WORK, None)
    rig.caller = KIM
    rig.refuses(FAIL, ConfirmationNeeded)
    rig.refuses(reopen, TicketWrongState)


@pytest.mark.parametrize(
    ("act", "hours"),
    [
        (ConfirmedAct.APPLY_POLICY, 1),
        (ConfirmedAct.CREATE_PRINCIPAL, 1),
        (ConfirmedAct.MOVE_ADDRESS, 1),
        (ConfirmedAct.ANSWER, 1),
        (ConfirmedAct.FAIL_HOST, 5),
        (ConfirmedAct.FAIL_HOST, 0),
    ],
)
def test_lift_is_bounded(rig: Rig, act: ConfirmedAct, hours: int) -> None:
    """Not who may act, not what needs nobody, not for long. Source: T-14."""
    until_ms = rig.now_ms + hours * HOUR_MS
    rig.refuses(LiftConfirmation(act, until_ms, "fire"), LiftRefused)
    rig.tell(Tick())
