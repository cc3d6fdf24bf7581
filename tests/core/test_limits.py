"""Limits are what they say: what is just within is taken, what is just beyond is not."""

import pytest

from forewarn_base.names import TEXT_LENGTH_MAX
from forewarn_base.values import replace
from forewarn_core.fleet import stimulus as words
from forewarn_core.fleet.impact import DURATION_S_MAX, Cause, Impact, Source
from forewarn_core.fleet.indexes import places_of
from forewarn_core.fleet.lifecycle import Alert, OperationState
from forewarn_core.fleet.maintenance import HOSTS_MAX, Announcing, MaintenanceState
from forewarn_core.fleet.naming import (
    ADDRESSES_MAX,
    DOMAIN_MAX,
    INSTANCE_LENGTH_MAX,
    INSTANCE_MAX,
    LABELS_MAX,
    TAGS_MAX,
)
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.refusals import (
    FleetContradiction,
    InUse,
    MaintenanceInvalid,
    NoticeTooShort,
    PostponementRefused,
    TooManyOperations,
)
from forewarn_core.fleet.step import PORTION_MAX, step
from forewarn_core.fleet.stimulus import (
    TARGETS_MAX,
    Cancel,
    ChangeTopology,
    DriverBegun,
    DriverDone,
    DriverFailed,
    Enable,
    GroupsPolled,
    NoticeShown,
    Proceed,
    Recover,
    Reports,
    RequestMaintenance,
    Retry,
    Tick,
)
from forewarn_core.fleet.topology import Group, Host, Topology, Vm
from forewarn_core.planning.policy import MaintenancePolicy
from forewarn_core.requests import ApprovalRequest
from tests.core.maintenance import MaintenanceRig, fleet
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
    rig = small(policy=NoticePolicy(max_operations=2))
    rig.ask(Cause.HOST_REBOOT, "h0")
    two = RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h1", "h2"))
    rig.refuses(two, TooManyOperations)
    rig.ask(Cause.HOST_REBOOT, "h2")


def test_start_at_the_very_end_of_the_owed_notice_is_granted() -> None:
    """The earliest time that a refusal names is granted. Source: N-1."""
    rig = small(policy=NoticePolicy(notice_margin_ms=0))
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
    assert (
        rig.ask(Cause.HOST_REBOOT, "h0", not_before_ms=asked_ms + 1).requested_start_ms
        == asked_ms + 1000
    )
    assert rig.ask(Cause.HOST_REBOOT, "h2", not_before_ms=asked_ms).requested_start_ms == asked_ms


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
        number = rig.tell(asked).numbers[0]
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
    rig = fleet(policy=NoticePolicy(maintenance=MaintenancePolicy(postpone_max_s=86_400)))
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
    assert str(rig.refuses(gone, InUse)).endswith("VM far_0, far_1, far_2 are still there.")
    rig.tell(ChangeTopology(vms=(Vm("far_3", "h2", "far"),)))
    text = "VM far_0, far_1, far_2 and others are still there."
    assert str(rig.refuses(gone, InUse)).endswith(text)


@pytest.mark.parametrize(("kind", "name"), [("host", "h1"), ("group", "far")])
def test_vm_that_comes_holds_its_host_and_group(kind: str, name: str) -> None:
    """A host or group is not taken out in the change that puts a VM there. Source: S-1."""
    rig = small()
    away = (Vm("web_1", "h0", "web"), Vm("far_0", "h2", "web"))
    new = Vm("new", "h1", "far")
    error = rig.refuses(ChangeTopology(vms=(*away, new), removed=((kind, name),)), InUse)
    assert "VM new is still there" in str(error)
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
    assert rig.now(operation).alert is Alert.NONE
    rig.wait(1)
    assert rig.now(operation).alert is not Alert.NONE


def test_late_work_whose_driver_begins_after_all_has_its_whole_time() -> None:
    """The alert ends when the driver begins, and comes again where it takes too long. L-8."""
    rig = small(enabled=())
    operation = rig.ask(Cause.HOST_REBOOT, "h2")
    rig.wait(60 * MINUTE_MS)
    assert rig.now(operation).alert is Alert.OVERDUE
    rig.tell(DriverBegun(operation.number, 1))
    assert rig.now(operation).alert is Alert.NONE
    rig.wait(60 * MINUTE_MS)
    assert rig.now(operation).alert is Alert.OVERDUE


def test_second_attempt_has_a_time_limit_of_its_own() -> None:
    """The limit counts from the second beginning, which a restart repeats. Source: L-8, L-7."""
    rig = small(enabled=())
    operation = rig.ask(Cause.HOST_REBOOT, "h2")
    rig.tell(DriverBegun(operation.number, 1))
    rig.wait(50 * MINUTE_MS)
    rig.tell(DriverFailed(operation.number, 1, "no power"), Retry(operation.number))
    rig.tell(Recover())
    assert rig.begun == [operation.number] * 3
    rig.tell(DriverBegun(operation.number, 2))
    rig.wait(60 * MINUTE_MS - 1)
    assert rig.now(operation).alert is Alert.NONE
    rig.wait(1)
    assert rig.now(operation).alert is Alert.OVERDUE


def test_layout_that_is_given_whole_is_checked_whole() -> None:
    """Who is recognised alike is found in a whole layout, too. Source: S-6."""
    hosts, groups = {"h": Host("h")}, {"g": Group("g")}
    vms = {name: Vm(name, "h", "g", instance_id="i") for name in ("v", "w")}
    with pytest.raises(FleetContradiction, match="VM w: i already belongs to VM v"):
        Topology(hosts, groups, vms)


# -- large work goes through in one step; `make bench-scale` holds what that costs ---------------


def apart(count: int, *, policy: NoticePolicy | None = None) -> Rig:
    """Hosts with one VM and one group each."""
    rig = Rig(policy=policy or NoticePolicy())
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
    rig = Rig(policy=NoticePolicy(max_user_operations=count), checked=False)
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
            rig.tell(ApprovalRequest(f"v{number}", tuple(events), ""))
    else:
        rig.now_ms += 6 * MINUTE_MS
        rig.tell(Tick())
    assert {each.state for each in rig.operations.values()} == {S.RUNNING}


def test_group_that_is_asked_meanwhile_holds_the_rest_of_a_start() -> None:
    """What was seen decided is looked at again once a group is enabled. Source: A-8, B-3."""
    count = PORTION_MAX + 3
    rig = apart(count, policy=NoticePolicy(max_user_operations=count))
    rig.tell(*(Enable(f"g{n}") for n in range(count - 1)))
    names = tuple(f"v{n}" for n in range(count))
    first = rig.ask(Cause.DELETION, *names, not_before_ms=rig.now_ms + 60 * MINUTE_MS)
    unasked = first.number + count - 1
    rig.show()
    for number in range(count - 2):
        rig.approve(f"v{number}", first.number + number)
    last = count - 2
    approval = ApprovalRequest(f"v{last}", (rig.event_of(first.number + last, f"g{last}").id,), "")
    outcome = step(rig.state, approval, now_ms=rig.now_ms, terms=rig.terms())
    rig.state.keep()
    rig.replay.extend(outcome.changes.entries)
    rig.tell(Enable(f"g{count - 1}"), Proceed(outcome.remaining))
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
    rig = small(policy=NoticePolicy(max_operations=2))
    rig.ask(Cause.HOST_UPDATE, "h0", "h1")
    error = rig.refuses(
        RequestMaintenance(cause=Cause.HOST_UPDATE, targets=("h2",)), TooManyOperations
    )
    assert error.status == 409
    assert "2 operations are live and 1 more are requested; the limit is 2" in str(error)
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
    assert (started.state, started.alert) == (S.RUNNING, Alert.NONE)
    assert sum(entry.action == "operation.blocked" for entry in rig.entries) == 1


def test_unpublished_notice_is_told_of_when_it_is_due() -> None:
    """People hear of work that cannot start since its notice was never published. Source: L-7."""
    rig = small()
    operation = rig.ask(Cause.HOST_UPDATE, "h0")
    rig.wait(16 * MINUTE_MS)
    assert rig.now(operation).state is S.ANNOUNCED
    assert rig.now(operation).alert is not Alert.NONE
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


# -- waves of a maintenance that are announced in more than one step, and what comes in between --


COUNT = PORTION_MAX + 2
NAMES = tuple(f"h{n}" for n in range(COUNT))


def halfway(**policy: object) -> tuple[MaintenanceRig, int, tuple[str, ...]]:
    """A wave of which one portion is announced; its maintenance, and the hosts that are left."""
    maintenance = MaintenancePolicy(**policy)  # type: ignore[arg-type]
    rig = fleet(COUNT, domains=1, policy=NoticePolicy(maintenance=maintenance))
    rig.plans_made = False
    number = rig.create(*NAMES)
    rig.tell(words.StartMaintenance(number))
    outcome = rig._tell(rig.planned(number))
    assert number in outcome.remaining
    assert len(rig.working(number)) == PORTION_MAX
    rig.plans_made = True
    return rig, number, tuple(name for name in NAMES if name not in rig.working(number))


def finish_all(rig: MaintenanceRig, number: int) -> None:
    """Have all that is announced approved, begun and done."""
    rig.show()
    for each in rig.working(number).values():
        rig.approve(each.vms[0], each)
        if rig.now(each).state is OperationState.RUNNING:
            rig.finish(each)


def test_host_that_is_done_is_not_announced_with_the_rest_of_its_wave() -> None:
    """Who was quick is not disturbed twice. Source: F-1, F-3."""
    rig, number, _ = halfway()
    [first, *_] = rig.working(number).values()
    rig._tell(NoticeShown((first.number,)))
    rig._tell(ApprovalRequest(first.vms[0], first.events, ""))
    rig._tell(DriverDone(first.number, 1))
    assert rig.now(first).state is OperationState.SUCCEEDED
    rig.tell(Proceed((number,)))
    assert len([each for each in rig.operations.values() if each.host == first.host]) == 1
    assert len(rig.working(number)) == COUNT - 1
    rig.run()
    assert rig.maintenance(number).state is MaintenanceState.DONE


def test_wave_is_not_over_before_its_last_host_is_announced() -> None:
    """Its announced hosts end together, and the others follow in the same wave. Source: F-3."""
    rig, number, left = halfway()
    announced = rig.working(number).values()
    rig._tell(NoticeShown(tuple(each.number for each in announced)))
    for each in announced:
        rig._tell(ApprovalRequest(each.vms[0], each.events, ""))
    rig.tell(Reports(tuple(DriverDone(each.number, 1) for each in announced)))
    assert set(rig.working(number)) == set(left)
    assert "maintenance.wave-over" not in {entry.action for entry in rig.entries}


def test_wave_that_ends_in_a_full_step_has_its_gate_checked() -> None:
    """A full step has yet to notice that no host is left to announce. Source: F-3, F-5."""
    rig = fleet()
    number = rig.start("h0", gate="errors")
    maintenance, [operation] = rig.state.maintenances[number], rig.working(number).values()
    rig.checked = False  # the phase is put by hand
    rig.state.maintenances[number] = replace(maintenance, phase=Announcing(1, rig.now_ms))
    rig._tell(NoticeShown((operation.number,)))
    rig._tell(ApprovalRequest(operation.vms[0], operation.events, ""))
    rig._tell(DriverDone(operation.number, 1))
    assert rig.gates == [number]


def test_wave_whose_rest_has_failed_goes_on_with_what_is_announced() -> None:
    """It ends with the hosts that are worked on, whatever became of the others. Source: F-3."""
    rig, number, left = halfway()
    rig._tell(RequestMaintenance(cause=Cause.HARDWARE_FAILURE, targets=left))
    rig.tell(Proceed((number,)))
    assert rig.maintenance(number).wave == 1
    assert rig.maintenance(number).due_ms is None
    assert [e.action for e in rig.entries].count("maintenance.wave-announced") == 1
    assert "maintenance.wave-blocked" not in {entry.action for entry in rig.entries}


def test_hosts_postponed_within_a_wave_wait_for_what_is_announced() -> None:
    """What is planned instead is not announced beside the wave that was cut. Source: F-8, F-3."""
    rig, number, left = halfway(postpone_max_s=86_400)
    until_ms = rig.now_ms + 60 * MINUTE_MS
    rig.tell(words.PostponeHosts(number, left[:1], until_ms, "alice"))
    assert rig.maintenance(number).wave is None
    assert len(rig.working(number)) == PORTION_MAX
    rig.wait(2 * MINUTE_MS)
    assert len(rig.working(number)) == PORTION_MAX
    finish_all(rig, number)
    assert rig.maintenance(number).rests_until_ms is None
    assert "maintenance.wave-over" not in {entry.action for entry in rig.entries}
    rig.run()
    assert rig.maintenance(number).state is MaintenanceState.DONE
    rig.check_replay()


def test_wave_that_was_cut_is_followed_by_a_pause() -> None:
    """The pause counts from its last host, as after any other wave. Source: F-3, F-8."""
    rig, number, left = halfway(postpone_max_s=86_400, pause_s=1800)
    rig.tell(words.PostponeHosts(number, left[:1], rig.now_ms + 5 * MINUTE_MS, "alice"))
    rig.wait(2 * MINUTE_MS)
    finish_all(rig, number)
    ended_ms = rig.now_ms
    assert rig.maintenance(number).rests_until_ms == ended_ms + 30 * MINUTE_MS
    rig.wait(26 * MINUTE_MS)
    rig.show()
    assert not [each for each in rig.working(number).values() if each.execution.started_ms]
    rig.run()
    later = [each for each in rig.operations.values() if each.host in left]
    assert {each.host for each in later if each.execution.started_ms} == set(left)
    assert all(
        (each.execution.started_ms or 0) >= ended_ms + 30 * MINUTE_MS
        for each in later
        if each.execution.started_ms
    )
    rig.check_replay()


def test_owners_rest_after_a_wave_that_was_cut() -> None:
    """Where the policy has no pause of its own, the owners' rest is kept by the next plan. F-3."""
    rig, number, left = halfway(postpone_max_s=86_400, owner_rest_s=3600)
    rig.tell(words.PostponeHosts(number, left[:1], rig.now_ms + 5 * MINUTE_MS, "alice"))
    rig.wait(2 * MINUTE_MS)
    finish_all(rig, number)
    assert rig.maintenance(number).rests_until_ms == rig.now_ms
    rig.run()
    assert rig.maintenance(number).state is MaintenanceState.DONE
