"""What clients and operators may rely on in numbers: defaults, statuses and limits, as a table."""

from dataclasses import MISSING, fields
from enum import Enum

import pytest

from forewarn_base import names
from forewarn_base.errors import CallerError
from forewarn_base.protocol import approvals
from forewarn_base.protocol.identity import CallerIdentity
from forewarn_base.protocol.versions import VERSIONS
from forewarn_core.fleet import (
    enabling,
    impact,
    naming,
    operation_requests,
    refusals,
    stimulus,
    targets,
    waves,
)
from forewarn_core.fleet import maintenance as records
from forewarn_core.fleet.host_admission import POSTPONED_MAX
from forewarn_core.fleet.lifecycle import Execution, MaintenanceWindow, Notice
from forewarn_core.fleet.maintenance import Planning
from forewarn_core.fleet.naming import NothingSelected, SelectorInvalid
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.records import KINDS
from forewarn_core.fleet.state import Changes, Entry, State
from forewarn_core.fleet.topology import Health
from forewarn_core.rules.blockers import Blocker
from tests.core.rig import small

#: Defaults that mean something.
SAID: dict[str, object] = {
    "Ticket.category": "other",
    "Ticket.state": "open",
    "Deferral.state": "asked",
    "OpenTicket.category": "other",
    "Operation.window": MaintenanceWindow(),
    "Group.kind": "availability-set",
    "Group.approves_when_down": True,
    "Group.published": VERSIONS[-1],
    "Host.health": "healthy",
    "Maintenance.state": "draft",
    "Maintenance.phase": Planning(),
    "Target.state": "working",
    "Operation.alert": "none",
    "Operation.state": "planned",
    "Operation.duration_s": -1,
    "Operation.followed_by": "nothing",
    "Operation.notice": Notice(),
    "Operation.execution": Execution(),
    "Execution.progress_percent": -1,
    "Execution.interruption_ms": -1,
    "Event.state": "scheduled",
    "Approve.identity": CallerIdentity(),
    "Vm.os_type": "Linux",
    "DriverProgressed.percent": -1,
    "DriverDone.interruption_ms": -1,
    "State.mark": ("", 0),
    "NoticePolicy.max_user_operations": 0,
    "NoticePolicy.max_operations": 200_000,
    "NoticePolicy.disable_after_s": 86_400,
    "NoticePolicy.overdue_after_s": 3600,
    "NoticePolicy.prediction_s": 7 * 86_400,
}
VALUES = (
    *KINDS.values(),
    *(
        t
        for t in vars(stimulus).values()
        if isinstance(t, type) and t.__module__ == stimulus.__name__
    ),
    *(
        Notice,
        Execution,
        MaintenanceWindow,
        Blocker,
        Entry,
        NoticePolicy,
        Changes,
        State,
        records.Postponement,
    ),
)
OF_VALUES = [
    pytest.param(kind, each.name, each.default, id=f"{kind.__name__}.{each.name}")
    for kind in dict.fromkeys(VALUES)
    if hasattr(kind, "__dataclass_fields__")
    for each in fields(kind)
    if each.default is not MISSING
]


@pytest.mark.parametrize(("kind", "name", "default"), OF_VALUES)
def test_what_is_not_given_is_nothing(kind: type, name: str, default: object) -> None:
    """A field that nobody gave is empty, zero or no, but for a few that say what they are."""
    plain = default.value if isinstance(default, Enum) else default
    expected = SAID.get(f"{kind.__name__}.{name}")
    assert plain == expected if expected is not None else not plain


STATUSES: dict[type[CallerError], int] = {
    refusals.FleetContradiction: 422,
    refusals.FleetBusy: 409,
    refusals.AlreadyExists: 409,
    refusals.Unknown: 404,
    refusals.UnknownOperation: 404,
    approvals.UnknownEvent: 400,
    refusals.InUse: 409,
    refusals.OperationInvalid: 422,
    refusals.NoticeTooShort: 422,
    refusals.TooManyOperations: 409,
    refusals.TooManyUserOperations: 409,
    refusals.AlreadyAsked: 409,
    refusals.WrongState: 409,
    refusals.UnknownMaintenance: 404,
    refusals.UnknownPlan: 404,
    refusals.MaintenanceInvalid: 422,
    refusals.MaintenanceWrongState: 409,
    refusals.UnknownTicket: 404,
    refusals.ReasonNeeded: 422,
    refusals.LiftRefused: 422,
    refusals.OwnReview: 403,
    refusals.TicketWrongState: 409,
    refusals.TicketInvalid: 422,
    refusals.TooManyTickets: 409,
    refusals.MaintenanceImpossible: 409,
    refusals.DeclarationRequired: 409,
    refusals.DeclarationRefused: 409,
    refusals.ChoiceRefused: 409,
    refusals.DeferralRefused: 409,
    refusals.OrderRefused: 409,
    refusals.DeclarationEnded: 409,
    refusals.DeferralUndecided: 404,
    refusals.NotDeclared: 404,
    refusals.OwnerUnnamed: 422,
    refusals.PostponementRefused: 409,
    refusals.PlanSuperseded: 409,
    NothingSelected: 404,
    SelectorInvalid: 400,
}


def test_refusal_has_its_status() -> None:
    """The HTTP status by which a client tells what kind of refusal it is. Source: A-3, O-1."""
    found = {
        each
        for each in vars(refusals).values()
        if isinstance(each, type) and issubclass(each, CallerError) and each is not CallerError
    }
    assert found <= set(STATUSES)
    assert {each: each.status for each in STATUSES} == STATUSES


@pytest.mark.parametrize(
    ("limit", "of"),
    [
        (impact.DURATION_S_MAX, 86_400),
        (operation_requests.AHEAD_S_MAX, 366 * 86_400),
        (stimulus.TARGETS_MAX, 2000),
        (naming.DOMAIN_MAX, 999),
        (naming.ADDRESSES_MAX, 64),
        (naming.TAGS_MAX, 64),
        (names.TEXT_LENGTH_MAX, 256),
        (naming.INSTANCE_MAX, 64),
        (naming.INSTANCE_LENGTH_MAX, 16_384),
        (naming.LABELS_MAX, 16),
        (records.HOSTS_MAX, 100_000),
        (POSTPONED_MAX, 1000),
        (enabling.POLL_RECORD_INTERVAL_S, 60),
        (enabling.AWAY_S_MIN, 120),
        (waves.PLAN_AGAIN_S_MAX, 600),
        (waves.PLAN_AGAIN_S, 60),
        (targets.FAILURE_AFTER_S, 3600),
        (targets.POLLED_BEFORE_S, 3600),
        (impact.TERMINATE_NOTICE_S_MIN, 300),
        (impact.TERMINATE_NOTICE_S_MAX, 900),
        (impact.PREDICTION_S, 7 * 86_400),
        (impact.MIGRATION_S, 5),
    ],
    ids=lambda _: "limit",
)
def test_limit_is_what_it_was(limit: int, of: int) -> None:
    """What fits today fits tomorrow, and is as late: another limit is a change for users."""
    assert limit == of


def test_health_is_told_by_its_word() -> None:
    """What is known of a host stands in the API as one of three stimulus."""
    assert [each.value for each in Health] == ["healthy", "degraded", "failed"]
    assert small().health("h0") is Health.HEALTHY
