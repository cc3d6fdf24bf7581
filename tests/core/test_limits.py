"""Limits are what they say: what is just within is taken, what is just beyond is not."""

from __future__ import annotations

import pytest

from forewarn.core.impact import DURATION_S_MAX, Cause, Impact
from forewarn.core.lifecycle import Alert, OperationState
from forewarn.core.maintenance import stimuli as words
from forewarn.core.maintenance.records import HOSTS_MAX
from forewarn.core.maintenance.refusals import MaintenanceInvalid, PostponementRefused
from forewarn.core.naming import (
    ADDRESSES_MAX,
    DOMAIN_MAX,
    INSTANCE_LENGTH_MAX,
    INSTANCE_MAX,
    LABELS_MAX,
    TAGS_MAX,
    TEXT_LENGTH_MAX,
)
from forewarn.core.policy import Policy
from forewarn.core.refusals import (
    FleetContradiction,
    InUse,
    NoticeTooShort,
    TooManyOperations,
)
from forewarn.core.stimulus import (
    TARGETS_MAX,
    ChangeTopology,
    DriverBegun,
    GroupsPolled,
    Recover,
    RequestMaintenance,
)
from forewarn.core.topology import Group, Host, Topology, Vm
from forewarn.planning.policy import Policy as MaintenancePolicy
from tests.core.maintenance import fleet
from tests.core.rig import DAY_MS, MINUTE_MS, Rig, small

S = OperationState


@pytest.mark.parametrize(
    "record",
    [
        Host("a" * 128),
        Host("h", DOMAIN_MAX, DOMAIN_MAX, zone="z" * TEXT_LENGTH_MAX),
        Host("h", labels=tuple((f"k{n}", "v") for n in range(LABELS_MAX))),
        Group("g", fault_domain_count=DOMAIN_MAX + 1, owner="o" * TEXT_LENGTH_MAX),
        Group("g", terminate_notice_s=900, automatic_approval=frozenset({Impact.REBOOT})),
        Group("g", automatic_approval=frozenset({Impact.REBOOT, Impact.REDEPLOY})),
        Vm("v", "h", "g", addresses=("a",) * ADDRESSES_MAX, tags=(("a", "b"),) * TAGS_MAX),
        Vm("v", "h", "g", instance=tuple((f"n{n}", "") for n in range(INSTANCE_MAX))),
        Vm("v", "h", "g", instance=(("a", "x" * (INSTANCE_LENGTH_MAX - 1)),)),
    ],
    ids=lambda record: type(record).__name__,
)
def test_fleet_takes_what_is_just_within(record: Host | Group | Vm) -> None:
    """The largest that is allowed is allowed. Source: G-2, S-6, I-1."""
    assert record.name


@pytest.mark.parametrize(
    "more",
    [
        {"duration_s": DURATION_S_MAX},
        {"duration_s": -1},
        {"duration_s": 0},
        {"description": "x" * TEXT_LENGTH_MAX},
        {"description": ""},
    ],
    ids=repr,
)
def test_request_takes_what_is_just_within(more: dict[str, object]) -> None:
    """Duration and text may be as long as that, and are kept as given. Source: D-9, D-11."""
    operation = small().ask(Cause.HOST_REBOOT, "h0", **more)
    for name, given in more.items():
        assert getattr(operation, name) == given


def test_request_names_as_many_targets_as_that() -> None:
    """A request names as many targets as its limit and no more. Source: O-1."""
    rig = Rig()
    hosts = tuple(Host(f"h{n}") for n in range(TARGETS_MAX))
    rig.tell(ChangeTopology(hosts=hosts))
    rig.ask(Cause.HOST_REBOOT, *(host.name for host in hosts))
    assert len(rig.operations) == TARGETS_MAX


def test_service_carries_exactly_as_much_as_its_limit() -> None:
    """The last operation that the limit allows is taken, the next is not. Source: O-1."""
    rig = small(policy=Policy(max_operations=2))
    rig.ask(Cause.HOST_REBOOT, "h0")
    two = RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h1", "h2"))
    rig.refuses(two, TooManyOperations)
    rig.ask(Cause.HOST_REBOOT, "h2")


def test_start_at_the_very_end_of_the_owed_notice_is_granted() -> None:
    """The earliest time that a refusal names is granted. Source: N-1."""
    rig = small(policy=Policy(notice_margin_ms=0))
    owed_ms = rig.now_ms + 15 * MINUTE_MS
    asked = RequestMaintenance(
        cause=Cause.HOST_REBOOT, targets=("h0",), not_before_ms=owed_ms - 1000
    )
    error = rig.refuses(asked, NoticeTooShort)
    assert "2026-09-21T14:28:20Z" in error.advice_text()
    assert rig.ask(Cause.HOST_REBOOT, "h0", not_before_ms=owed_ms).not_before_ms == owed_ms


def test_asked_time_is_rounded_up_to_a_second() -> None:
    """A time between two seconds is the later one, also a millisecond after one. Source: D-7."""
    rig = small()
    asked_ms = rig.now_ms + 60 * MINUTE_MS
    assert rig.ask(Cause.HOST_REBOOT, "h0", not_before_ms=asked_ms + 1).asked_ms == asked_ms + 1000
    assert rig.ask(Cause.HOST_REBOOT, "h2", not_before_ms=asked_ms).asked_ms == asked_ms


@pytest.mark.parametrize(
    ("more", "is_taken"),
    [
        ({"duration_s": 1}, True),
        ({"duration_s": DURATION_S_MAX}, True),
        ({"duration_s": DURATION_S_MAX + 1}, False),
        ({"max_failures": 0}, True),
        ({"impact": Impact.REBOOT}, True),
        ({"impact": Impact.FREEZE}, False),
        ({"deadline_ms": 1}, False),
        ({"cause": Cause.HARDWARE_DEGRADED}, False),
        ({"cause": Cause.HOST_UPDATE, "impact": Impact.REBOOT}, True),
        ({"canary_hosts": ("h1",)}, True),
        ({"canary_hosts": ("h0", "h1")}, True),
    ],
    ids=repr,
)
def test_maintenance_takes_what_is_just_within(more: dict[str, object], *, is_taken: bool) -> None:
    """A maintenance is as long, and of the kind, that it may be. Source: F-1."""
    rig = fleet()
    form = {"cause": Cause.HOST_REBOOT, "hosts": ("h0", "h1"), "duration_s": 600} | more
    asked = words.CreateMaintenance(**form)  # type: ignore[arg-type]
    if is_taken:
        number = rig.tell(asked).operations[0]
        made = rig.maintenance(number)
        for name, given in more.items():
            assert getattr(made, name) == given
    else:
        rig.refuses(asked, MaintenanceInvalid)


def test_deadline_lies_after_now_and_after_the_earliest_start() -> None:
    """A deadline at the very start is none that can be met. Source: F-1."""
    rig = fleet()
    later_ms = rig.now_ms + DAY_MS
    for deadline_ms, earliest_ms in ((rig.now_ms, 0), (later_ms, later_ms)):
        asked = words.CreateMaintenance(
            Cause.HOST_REBOOT, ("h0",), 600, earliest_ms=earliest_ms, deadline_ms=deadline_ms
        )
        rig.refuses(asked, MaintenanceInvalid)
    number = rig.create("h0", earliest_ms=later_ms, deadline_ms=later_ms + 1)
    assert rig.maintenance(number).deadline_ms == later_ms + 1


def test_maintenance_names_no_more_hosts_than_it_may() -> None:
    """A maintenance has a limit of hosts, which its refusal names. Source: F-1."""
    hosts = tuple(f"h{n}" for n in range(HOSTS_MAX + 1))
    error = fleet().refuses(
        words.CreateMaintenance(Cause.HOST_REBOOT, hosts, 600), MaintenanceInvalid
    )
    assert f"it names {HOSTS_MAX + 1} hosts; name 1 to {HOSTS_MAX}" in str(error)


def test_postponement_ends_in_time_for_the_deadline() -> None:
    """A host may start so late that it ends at the deadline, and no later. Source: F-8."""
    rig = fleet(policy=Policy(maintenance=MaintenancePolicy(postpone_max_s=86_400)))
    deadline_ms = rig.now_ms + 12 * 60 * MINUTE_MS
    number = rig.start("h0", "h1", deadline_ms=deadline_ms)
    last_ms = deadline_ms - 600_000
    late = words.PostponeHosts(number, ("h1",), last_ms + 1, "alice")
    assert "it would end after the deadline" in str(rig.refuses(late, PostponementRefused))
    rig.tell(words.PostponeHosts(number, ("h1",), last_ms, "alice"))
    assert rig.maintenance(number).postponed[0].until_ms == last_ms


def test_users_of_a_host_are_named_up_to_three() -> None:
    """Three VMs are named; of four, three and that there are others."""
    rig = small()
    rig.tell(ChangeTopology(vms=(Vm("far_1", "h2", "far"), Vm("far_2", "h2", "far"))))
    gone = ChangeTopology(removed=(("host", "h2"),))
    assert str(rig.refuses(gone, InUse)).endswith("vm far_0, far_1, far_2 are still there.")
    rig.tell(ChangeTopology(vms=(Vm("far_3", "h2", "far"),)))
    text = "vm far_0, far_1, far_2 and others are still there."
    assert str(rig.refuses(gone, InUse)).endswith(text)


@pytest.mark.parametrize(("kind", "name"), [("host", "h1"), ("group", "far")])
def test_vm_that_comes_holds_its_host_and_group(kind: str, name: str) -> None:
    """A host or group is not taken out in the change that puts a VM there. Source: S-1."""
    rig = small()
    away = (Vm("web_1", "h0", "web"), Vm("far_0", "h2", "web"))
    new = Vm("new", "h1", "far")
    error = rig.refuses(ChangeTopology(vms=(*away, new), removed=((kind, name),)), InUse)
    assert "vm new is still there" in str(error)
    rig.tell(ChangeTopology(vms=away, removed=((kind, name),)))


def test_group_polls_to_the_last_millisecond_of_a_day() -> None:
    """A group is silent after a day and a minute, not before. Source: B-2."""
    rig = small(enabled=("web",))
    rig.wait(DAY_MS + MINUTE_MS - 1)
    assert set(rig.state.enrolments) == {"web"}
    rig.wait(1)
    assert not rig.state.enrolments


@pytest.mark.parametrize(("away_ms", "is_forgiven"), [(120_000, False), (120_001, True)])
def test_absence_of_the_service_is_forgiven(away_ms: int, *, is_forgiven: bool) -> None:
    """Time in which nobody could ask counts as no silence, where it is worth a write. B-2."""
    rig = small(enabled=("web",))
    enabled_ms = rig.now_ms
    rig.wait(away_ms)
    rig.tell(Recover(away_ms))
    assert (rig.state.enrolments["web"].polled_ms > enabled_ms) == is_forgiven


def test_absence_is_forgiven_in_full_and_not_beyond_now() -> None:
    """A group is heard of no later than now, however long the service says it was away. B-2."""
    rig = small(enabled=("web",))
    enabled_ms = rig.now_ms
    rig.wait(30 * MINUTE_MS)
    rig.tell(Recover(10 * MINUTE_MS))
    assert rig.state.enrolments["web"].polled_ms == enabled_ms + 10 * MINUTE_MS
    rig.tell(Recover(60 * MINUTE_MS))
    assert rig.state.enrolments["web"].polled_ms == rig.now_ms
    assert not rig.tell(Recover(60 * MINUTE_MS)).changes


def test_mark_of_a_poll_that_lies_ahead_is_set_back() -> None:
    """After the clock is put back, a group that polls is heard of now. Source: B-2, N-4."""
    rig = small(enabled=("web",))
    rig.now_ms -= 10 * MINUTE_MS
    rig.tell(GroupsPolled(frozenset({"web"})))
    assert rig.state.enrolments["web"].polled_ms == rig.now_ms


def test_running_work_is_late_after_its_time_and_the_limit() -> None:
    """Work whose duration is unknown has the limit alone, counted from its beginning. L-8."""
    rig = small(enabled=())
    operation = rig.ask(Cause.HOST_REBOOT, "h2")
    rig.wait(5 * MINUTE_MS)
    rig.tell(DriverBegun(operation.number, 1))
    rig.wait(60 * MINUTE_MS - 1)
    assert not rig.now(operation).alerted
    rig.wait(1)
    assert rig.now(operation).alerted


def test_late_work_whose_driver_begins_after_all_has_its_whole_time() -> None:
    """The alert ends when the driver begins, and comes again where it takes too long. L-8."""
    rig = small(enabled=())
    operation = rig.ask(Cause.HOST_REBOOT, "h2")
    rig.wait(60 * MINUTE_MS)
    assert rig.now(operation).alert is Alert.OVERDUE
    rig.tell(DriverBegun(operation.number, 1))
    assert rig.now(operation).alert is None
    rig.wait(60 * MINUTE_MS)
    assert rig.now(operation).alert is Alert.OVERDUE


def test_layout_that_is_given_whole_is_checked_whole() -> None:
    """Who is recognised alike is found in a whole layout, too. Source: S-6."""
    hosts, groups = {"h": Host("h")}, {"g": Group("g")}
    vms = {name: Vm(name, "h", "g", instance_id="i") for name in ("v", "w")}
    with pytest.raises(FleetContradiction, match="vm w: i already belongs to vm v"):
        Topology(hosts, groups, vms)
