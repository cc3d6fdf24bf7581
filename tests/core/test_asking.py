"""Asking for maintenance: what is refused, and what a request becomes."""

import pytest

from forewarn_core.fleet.impact import DURATION_S_MAX, Cause, Impact, Source
from forewarn_core.fleet.lifecycle import OperationState
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.refusals import (
    AlreadyAsked,
    NoticeTooShort,
    OperationInvalid,
    TooManyUserOperations,
    Unknown,
)
from forewarn_core.fleet.stimulus import TARGETS_MAX, ChangeTopology, Enable, RequestMaintenance
from forewarn_core.fleet.topology import Group, Host, Vm
from tests.core.rig import DAY_MS, MINUTE_MS, START_MS, Rig, small


def a_request(**wrong: object) -> RequestMaintenance:
    """A good request for work on `h0`, but for what is wrong with it."""
    return RequestMaintenance(**{"cause": Cause.HOST_REBOOT, "targets": ("h0",), **wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"targets": ()}, "0 targets"),
        ({"targets": ("h0",) * (TARGETS_MAX + 1)}, f"{TARGETS_MAX + 1} targets"),
        ({"targets": ("h0", "h0")}, "twice"),
        ({"impact": Impact.PREEMPT}, "impact cannot be Preempt"),
        ({"duration_s": -2}, "duration is -2"),
        ({"duration_s": DURATION_S_MAX + 1}, "duration is"),
        ({"description": "x" * 257}, "description"),
        ({"description": "a\nb"}, "description"),
        ({"not_before_ms": START_MS + 366 * DAY_MS + 1}, "more than a year"),
        ({"cause": Cause.HARDWARE_FAILURE, "not_before_ms": 1}, "a failure has no NotBefore"),
        ({"cause": Cause.LIVE_MIGRATION, "destination": "h0"}, "the host itself"),
        ({"destination": "h1"}, "it moves no VM"),
        ({"cause": Cause.REBOOT, "targets": ("web_0",), "destination": "h1"}, "it moves no VM"),
        ({"cause": Cause.DELETION, "targets": ("web_0",), "destination": "h1"}, "it moves no VM"),
        ({"cause": Cause.EVICTION, "targets": ("web_0", "web_1")}, "VM web_1 is not a Spot VM"),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
def test_contradictory_request_is_refused(wrong: dict[str, object], sentence: str) -> None:
    """A request that contradicts itself is refused and changes nothing. Source: O-1, D-9."""
    assert sentence in str(small().refuses(a_request(**wrong), OperationInvalid))


@pytest.mark.parametrize(
    "wrong",
    [
        {"targets": ("h9",)},
        {"targets": ("web_0",)},
        {"cause": Cause.REBOOT, "targets": ("h0",)},
        {"cause": Cause.LIVE_MIGRATION, "destination": "h9"},
    ],
    ids=["host", "vm-for-host", "host-for-vm", "destination"],
)
def test_unknown_target_is_refused(wrong: dict[str, object]) -> None:
    """What is not there cannot be maintained, and nothing is changed."""
    small().refuses(a_request(**wrong), Unknown)


def test_all_targets_or_none() -> None:
    """One wrong target among good ones refuses the whole request."""
    small().refuses(a_request(targets=("h1", "h9")), Unknown)


def test_request_chooses_impact_source_text_and_duration() -> None:
    """A host update may restart; text, source and duration may be given. Source: D-8, D-9, D-11."""
    rig = small()
    operation = rig.ask(
        Cause.HOST_UPDATE,
        "h0",
        impact=Impact.REBOOT,
        source=Source.USER,
        description="New kernel.",
        duration_s=120,
    )
    event = rig.document("web")[1][0]
    assert (event.event_type, event.source) == ("Reboot", "User")
    assert (event.description, event.duration_s) == ("New kernel.", 120)
    assert not operation.routine, "a user's own work is not routine"


def test_other_impact_has_unknown_duration() -> None:
    """The usual duration belongs to the usual impact. Source: D-9."""
    rig = small()
    assert rig.ask(Cause.HOST_UPDATE, "h0", impact=Impact.REBOOT).duration_s == -1
    assert rig.ask(Cause.LIVE_MIGRATION, "h2").duration_s == 5


def test_degraded_host_that_is_left_in_time_announces_a_migration() -> None:
    """A Freeze away from failing hardware is a live migration, to clients too. Source: D-11."""
    rig = small()
    rig.ask(Cause.HARDWARE_DEGRADED, "h0", impact=Impact.FREEZE)
    rig.ask(Cause.HARDWARE_DEGRADED, "h1")
    frozen, lost = rig.document("web")[1]
    assert (frozen.event_type, frozen.duration_s) == ("Freeze", 5)
    assert "memory-preserving Live Migration" in frozen.description
    assert (lost.event_type, lost.duration_s) == ("Redeploy", -1)
    assert lost.description == "Virtual machine has encountered a failure."


def test_start_before_owed_notice_is_refused() -> None:
    """An operator may give more notice, never less. Source: N-1."""
    rig = small()
    soon = rig.now_ms + 15 * MINUTE_MS - 1000
    error = rig.refuses(a_request(not_before_ms=soon), NoticeTooShort)
    assert "15 min of notice are required" in str(error)
    assert error.advice_text().startswith("Ask for 20")
    later = rig.now_ms + 60 * MINUTE_MS
    assert rig.ask(Cause.HOST_REBOOT, "h0", not_before_ms=later).not_before_ms == later
    latest = rig.now_ms + 366 * DAY_MS
    assert rig.ask(Cause.HOST_REBOOT, "h2", not_before_ms=latest).not_before_ms == latest


def test_notbefore_is_whole_seconds_and_never_early() -> None:
    """NotBefore is shown in whole seconds, rounded up so that notice is not cut. Source: D-7."""
    rig = small()
    rig.now_ms += 1
    assert rig.ask(Cause.HOST_REBOOT, "h0").not_before_ms == START_MS + 15 * MINUTE_MS + 1000
    asked_ms = rig.now_ms + 30 * MINUTE_MS
    assert rig.ask(Cause.HOST_REBOOT, "h2", not_before_ms=asked_ms).not_before_ms % 1000 == 0


@pytest.mark.parametrize(
    ("cause", "target"),
    [
        (Cause.REBOOT, "web_0"),
        (Cause.HARDWARE_FAILURE, "h0"),
        (Cause.HARDWARE_DEGRADED, "h0"),
        (Cause.HOST_REBOOT, "h0"),
    ],
    ids=lambda each: each.value if isinstance(each, Cause) else "",
)
def test_same_work_is_not_asked_for_twice(cause: Cause, target: str) -> None:
    """The same work under way on a target is refused. Source: O-1."""
    rig = small()
    rig.ask(cause, target)
    rig.refuses(RequestMaintenance(cause=cause, targets=(target,)), AlreadyAsked)


def test_routine_work_queues_when_asked_to() -> None:
    """A second reboot waits for the first where it is to; what is not routine never waits."""
    rig = small()
    rig.ask(Cause.HOST_REBOOT, "h0")
    assert rig.ask(Cause.HOST_REBOOT, "h0", queue=True).state is OperationState.PLANNED
    rig.ask(Cause.HARDWARE_DEGRADED, "h2")
    again = RequestMaintenance(cause=Cause.HARDWARE_DEGRADED, targets=("h2",), queue=True)
    rig.refuses(again, AlreadyAsked)


def test_host_that_failed_is_struck_once() -> None:
    """A host that has failed does not fail again beside that; its failure must end first."""
    rig = small()
    rig.ask(Cause.HARDWARE_FAILURE, "h0")
    rig.refuses(RequestMaintenance(cause=Cause.HARDWARE_FAILURE, targets=("h0",)), AlreadyAsked)
    error = rig.refuses(
        RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h0",)), OperationInvalid
    )
    assert "repair it first" in str(error)
    error = rig.refuses(
        RequestMaintenance(cause=Cause.LIVE_MIGRATION, targets=("h1",), destination="h0"),
        OperationInvalid,
    )
    assert "nothing can be moved there" in str(error)
    rig.ask(Cause.HOST_LOST, "h0", destination="h1")
    error = rig.refuses(
        RequestMaintenance(cause=Cause.HARDWARE_FAILURE, targets=("h0",)), AlreadyAsked
    )
    assert "host-lost of h0" in str(error)


def a_crowd(count: int, *, limit: int) -> Rig:
    """A group of one owner with many VMs."""
    rig = Rig(policy=NoticePolicy(max_user_operations=limit))
    vms = tuple(Vm(f"v{n}", "h", "g", spot=True) for n in range(count))
    other = Vm("w", "h", "other")
    rig.tell(
        ChangeTopology(
            hosts=(Host("h"),),
            groups=(Group("g", owner="ann"), Group("other", owner="bob")),
            vms=(*vms, other),
        )
    )
    return rig


def test_user_initiated_work_is_limited() -> None:
    """Beyond the limit a user's request is refused with 409 and nothing is changed. Source: O-1."""
    rig = a_crowd(12, limit=10)
    rig.tell(Enable("g"), Enable("other"))
    rig.ask(Cause.REBOOT, *(f"v{n}" for n in range(9)))
    error = rig.refuses(
        RequestMaintenance(cause=Cause.REBOOT, targets=("v9", "v10")), TooManyUserOperations
    )
    assert error.status == 409
    assert "9 user-initiated operations scheduled and requests 2 more; the limit is 10" in str(
        error
    )
    rig.ask(Cause.REBOOT, "v9")
    rig.refuses(RequestMaintenance(cause=Cause.REDEPLOY, targets=("v0",)), TooManyUserOperations)


def test_limit_counts_per_owner_and_until_the_start() -> None:
    """Another owner, platform work and started work do not count. Source: O-1."""
    rig = a_crowd(3, limit=1)
    rig.tell(Enable("g"), Enable("other"))
    first = rig.ask(Cause.REBOOT, "v0")
    rig.ask(Cause.REBOOT, "w")
    rig.ask(Cause.EVICTION, "v1")
    rig.approve("v0", first)
    assert rig.now(first).state is OperationState.RUNNING
    assert rig.ask(Cause.REBOOT, "v2").state is OperationState.ANNOUNCED


def test_silent_work_does_not_count() -> None:
    """A deletion nobody asked to be told of is not scheduled at all. Source: O-1."""
    rig = a_crowd(3, limit=1)
    rig.tell(Enable("g"))
    rig.ask(Cause.DELETION, "v0", "v1")
    assert rig.ask(Cause.REBOOT, "v2").state is OperationState.ANNOUNCED


def test_limit_says_that_too_much_was_asked_for_at_once() -> None:
    """Where nothing is scheduled there is nothing to cancel: ask for fewer. Source: O-1."""
    rig = a_crowd(3, limit=2)
    rig.tell(ChangeTopology(groups=(Group("g"),)), Enable("g"))
    error = rig.refuses(
        RequestMaintenance(cause=Cause.REBOOT, targets=("v0", "v1", "v2")), TooManyUserOperations
    )
    assert "Owner (none) has 0 user-initiated operations" in str(error)
    assert error.advice_text().startswith("Ask for fewer")


def test_work_approved_by_policy_does_not_count() -> None:
    """What skips Scheduled is never scheduled; what is asked for later is. Source: O-1, A-10."""
    rig = a_crowd(4, limit=1)
    keen = Group("g", owner="ann", automatic_approval=frozenset({Impact.REBOOT}))
    rig.tell(ChangeTopology(groups=(keen,)), Enable("g"))
    rig.ask(Cause.REDEPLOY, "v0")
    rig.ask(Cause.REBOOT, "v1", "v2")
    later = RequestMaintenance(
        cause=Cause.REBOOT, targets=("v3",), not_before_ms=rig.now_ms + 60 * MINUTE_MS
    )
    rig.refuses(later, TooManyUserOperations)


def test_work_that_was_asked_for_later_counts_until_it_starts() -> None:
    """Also past that time, while other work keeps it waiting. Source: O-1, A-10."""
    rig = a_crowd(2, limit=1)
    keen = Group("g", owner="ann", automatic_approval=frozenset({Impact.REBOOT}))
    rig.tell(ChangeTopology(groups=(keen,)), Enable("g"))
    rig.tell(Enable("other"))
    update = rig.ask(Cause.HOST_REBOOT, "h")
    rig.approve("v0", update)
    rig.approve("w", update)
    later = rig.ask(Cause.REBOOT, "v0", not_before_ms=rig.now_ms + 60 * MINUTE_MS)
    rig.wait(61 * MINUTE_MS)
    assert rig.now(later).state is OperationState.ANNOUNCED
    rig.refuses(RequestMaintenance(cause=Cause.REDEPLOY, targets=("v1",)), TooManyUserOperations)
