"""What each cause and impact means, as the contract's tables say."""

import pytest

from forewarn_base.protocol.timestamps import duration_text
from forewarn_core.fleet.impact import (
    NOTICE_S,
    REMOVES_VM,
    TRAITS,
    Cause,
    Impact,
    Source,
    TargetKind,
)
from forewarn_core.fleet.policy import NoticePolicy
from tests.core.rig import Rig, small

TABLE = {
    Cause.LIVE_MIGRATION: ("Freeze", "Platform"),
    Cause.HOST_UPDATE: ("Freeze", "Platform"),
    Cause.HOST_REBOOT: ("Reboot", "Platform"),
    Cause.NETWORK_UPDATE: ("Freeze", "Platform"),
    Cause.HARDWARE_DEGRADED: ("Redeploy", "Platform"),
    Cause.HARDWARE_FAILURE: ("Reboot", "Platform"),
    Cause.HOST_LOST: ("Redeploy", "Platform"),
    Cause.REBOOT: ("Reboot", "User"),
    Cause.REDEPLOY: ("Redeploy", "User"),
    Cause.EVICTION: ("Preempt", "Platform"),
    Cause.DELETION: ("Terminate", "User"),
    Cause.REIMAGE: ("Reboot", "User"),
}


@pytest.mark.parametrize("cause", Cause, ids=lambda cause: cause.value)
def test_cause_has_type_and_source(cause: Cause) -> None:
    """Each cause gives the event type and source of the contract's table. Source: D-4, D-8."""
    traits = TRAITS[cause]
    assert (traits.impact.value, traits.source.value) == TABLE[cause]


@pytest.mark.parametrize(
    ("impact", "notice_s"),
    [("Freeze", 900), ("Reboot", 900), ("Redeploy", 600), ("Preempt", 30), ("Terminate", 300)],
)
def test_least_notice_of_each_impact(impact: str, notice_s: int) -> None:
    """The least notice is 15, 15 and 10 minutes, 30 seconds, 5 minutes. Source: N-1."""
    assert NOTICE_S[Impact(impact)] == notice_s


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        (
            Cause.LIVE_MIGRATION,
            (
                "Virtual machine is being paused because of a memory-preserving Live Migration"
                " operation."
            ),
        ),
        (Cause.HOST_UPDATE, "Host server is undergoing maintenance."),
        (
            Cause.REBOOT,
            "Virtual machine is going to be restarted as requested by authorized user.",
        ),
        (
            Cause.REDEPLOY,
            "Virtual machine is going to be redeployed as requested by authorized user.",
        ),
        (Cause.HARDWARE_FAILURE, "Virtual machine has encountered a failure."),
        (Cause.EVICTION, ""),
    ],
    ids=lambda each: each.value if isinstance(each, Cause) else "",
)
def test_description_is_what_clients_match_on(cause: Cause, text: str) -> None:
    """The description texts are those real clients look for. Source: D-11."""
    assert TRAITS[cause].description == text


@pytest.mark.parametrize(
    ("cause", "duration_s"),
    [
        (Cause.LIVE_MIGRATION, 5),
        (Cause.HOST_UPDATE, 9),
        (Cause.NETWORK_UPDATE, 0),
        *((cause, -1) for cause in (Cause.HOST_REBOOT, Cause.HARDWARE_DEGRADED, Cause.EVICTION)),
    ],
    ids=lambda each: each.value if isinstance(each, Cause) else "",
)
def test_interruption_of_each_cause(cause: Cause, duration_s: int) -> None:
    """A network-only update has duration 0, an unknown one -1. Source: D-9."""
    assert TRAITS[cause].duration_s == duration_s


def test_causes_that_move_vms_and_causes_without_notice() -> None:
    """Only these may have a destination, and only these are recorded as they begin. L-4, L-5."""
    assert {cause for cause, traits in TRAITS.items() if traits.moves} == {
        Cause.LIVE_MIGRATION,
        Cause.HARDWARE_DEGRADED,
        Cause.HOST_LOST,
        Cause.REDEPLOY,
    }
    faults = {cause for cause, traits in TRAITS.items() if traits.fault}
    assert faults == {Cause.HARDWARE_FAILURE, Cause.HOST_LOST}


@pytest.mark.parametrize("cause", Cause, ids=lambda cause: cause.value)
def test_cause_is_of_a_host_or_of_a_vm(cause: Cause) -> None:
    """What the platform does to machines is done to hosts, what users ask for to VMs."""
    of_vm = TRAITS[cause].source is Source.USER or cause is Cause.EVICTION
    assert TRAITS[cause].target is (TargetKind.VM if of_vm else TargetKind.HOST)


def test_recoveries_and_what_removes_a_vm_are_not_routine() -> None:
    """Only maintenance that is planned waits for other fault domains. Source: G-1."""
    assert {cause for cause, traits in TRAITS.items() if not traits.routine} == {
        Cause.HARDWARE_DEGRADED,
        Cause.HARDWARE_FAILURE,
        Cause.HOST_LOST,
        *REMOVES_VM,
    }


@pytest.mark.parametrize("impact", Impact, ids=lambda impact: impact.value)
def test_policy_never_lowers_notice(impact: Impact) -> None:
    """A policy may raise a notice, never lower it. Source: N-1."""
    with pytest.raises(ValueError, match=f"gives {impact.value}"):
        NoticePolicy(notice_s={**NOTICE_S, impact: NOTICE_S[impact] - 1})
    NoticePolicy(notice_s={**NOTICE_S, impact: NOTICE_S[impact] + 1})
    least_s = NOTICE_S[impact]
    least = f"{impact.value} 0 s of notice; the least is {duration_text(least_s)}"
    with pytest.raises(ValueError, match=least):
        NoticePolicy(
            notice_s={each: given for each, given in NOTICE_S.items() if each is not impact}
        )


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_user_operations": -1},
        {"disable_after_s": 0},
        {"overdue_after_s": 0},
        {"notice_margin_ms": -1},
        {"prediction_s": 60},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_policy_refuses_what_would_break_a_promise(wrong: dict[str, int]) -> None:
    """A limit below one or a negative margin is not a policy. Source: N-1, O-1."""
    with pytest.raises(ValueError, match=r"sets|shorten"):
        NoticePolicy(**wrong)  # type: ignore[arg-type]


def test_raised_notice_holds() -> None:
    """What policy raises is what is owed. Source: N-1."""
    rig: Rig = small(policy=NoticePolicy(notice_s={**NOTICE_S, Impact.REBOOT: 3600}))
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    assert operation.not_before_ms - rig.now_ms == 3_600_000
    assert operation.source is Source.PLATFORM


def test_prediction_may_be_as_short_as_the_least_notice() -> None:
    """A fleet that foresees little may say so. Source: N-2, N-1."""
    assert NoticePolicy(prediction_s=NOTICE_S[Impact.FREEZE]).prediction_s == 900
