"""The availability of VMs: which time counts, and which of it an event disturbed."""

from collections import Counter

import pytest

from forewarn_core.fleet.availability import (
    Availability,
    Period,
    PeriodInvalid,
    TenureKey,
    availability,
    percent,
    period_of,
)
from forewarn_core.fleet.availability_records import (
    AvailabilityKind,
    AvailabilityRecord,
    started_events,
)
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.outcomes import EventResult
from forewarn_core.fleet.stimulus import ChangeTopology, DriverBegun, DriverDone
from forewarn_core.fleet.topology import Group, Vm
from tests.core.rig import MINUTE_MS, START_MS, Rig, small

KEY: TenureKey = ("a", "web", "shop")
HOUR_MS = 60 * MINUTE_MS


@pytest.fixture
def rig() -> Rig:
    """A small fleet whose groups are enabled."""
    return small()


def lived(kind: str, at_ms: int, *vms: str, owner: str = "shop") -> AvailabilityRecord:
    """A record about VMs that came or left."""
    return AvailabilityRecord(at_ms, AvailabilityKind(kind), "web", owner, vms or ("a",))


def event(name: str, begin_ms: int, end_ms: int, measured_ms: int = -1) -> AvailabilityRecord:
    """A record of an event."""
    kind = AvailabilityKind.EVENT
    return AvailabilityRecord(
        end_ms, kind, "web", "shop", ("a",), name, started_ms=begin_ms, interruption_ms=measured_ms
    )


def of(*records: AvailabilityRecord, present: tuple[TenureKey, ...] = (KEY,)) -> Availability:
    """The availability from 100 to 1100, as it is known at 1200."""
    return availability(records, present, Period(100, 1100, 1200))


def of_rig(rig: Rig) -> Availability:
    """The availability of a rig's whole life so far."""
    state = rig.state
    started = started_events(state.events.values(), state.operations, state.topology.groups)
    present = [
        (vm.name, vm.group, state.topology.groups[vm.group].owner)
        for vm in state.topology.vms.values()
    ]
    return availability(
        [*rig.availability, *started], present, Period(START_MS, rig.now_ms, rig.now_ms)
    )


def test_two_events_at_once_disturb_a_vm_once() -> None:
    """Disturbed time is a union; each millisecond belongs to the first event. Source: T-13."""
    report = of(event("B", 300, 500), event("A", 200, 400), event("C", 210, 220))
    assert [(each.event.event, each.from_ms, each.to_ms) for each in report.disturbances] == [
        ("A", 200, 400),
        ("B", 400, 500),
    ]
    assert (report.counted_ms, report.disturbed_ms) == (1000, 300)
    assert report.available_percent == 70.0


@pytest.mark.parametrize(("measured_ms", "disturbed_ms"), [(-1, 100), (7, 7), (0, 0), (900, 100)])
def test_measured_interruption_counts_in_place_of_the_event(
    measured_ms: int, disturbed_ms: int
) -> None:
    """From the start of the event, and never longer than the event. Source: T-13."""
    assert of(event("A", 200, 300, measured_ms)).disturbed_ms == disturbed_ms


def test_event_counts_within_the_period_and_its_vms_time_alone() -> None:
    """Begin and end are cut at the period, and where the owner came or left. Source: T-13."""
    assert of(event("A", 0, 130), event("B", 1050, 1150)).disturbed_ms == 30 + 50
    came = of(lived("arrived", 300), event("A", 200, 400))
    assert (came.counted_ms, came.disturbed_ms) == (800, 100)
    left = of(event("A", 200, 400), lived("left", 300), present=())
    assert (left.counted_ms, left.disturbed_ms) == (200, 100)


def test_vm_counts_while_its_owner_has_it() -> None:
    """Also where it came and left several times, or came after the period. Source: T-13."""
    several = of(lived("left", 200), lived("arrived", 400), lived("left", 450), present=())
    assert several.counted_ms == 100 + 50
    assert of(lived("arrived", 1150)).vms == ()
    sold = lived("left", 300), lived("arrived", 300, owner="bank")
    report = of(*sold, present=(("a", "web", "bank"),))
    assert [(each.owner, each.counted_ms) for each in report.vms] == [("bank", 800), ("shop", 200)]


def test_started_event_counts_until_now_unless_it_has_ended() -> None:
    """An event may end after the state was read and before the records were. Source: T-13."""
    assert of(event("A", 1000, 0)).disturbed_ms == 100
    assert of(event("A", 1000, 1190, 30), event("A", 1000, 0)).disturbed_ms == 30


def test_period_is_cut_to_the_records_and_to_now() -> None:
    """A period without records has no figure. Source: T-13."""
    assert period_of(0, 900, since_ms=100, at_ms=500) == Period(100, 500, 500)
    with pytest.raises(PeriodInvalid):
        period_of(0, 100, since_ms=100, at_ms=500)


def test_share_is_rounded_down() -> None:
    """A share never claims more than there was. Source: T-13."""
    assert percent(999_999_999, 1_000_000_000) == 99.9999
    assert percent(2, 3) == 66.6666
    assert percent(0, 0) is None


def test_step_records_each_started_event(rig: Rig) -> None:
    """With its notice, approval, start and end. Source: T-13."""
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    rig.show()
    rig.wait(2 * MINUTE_MS)
    rig.approve("web_0", operation)
    rig.wait(MINUTE_MS)
    rig.approve("db_0", operation)
    rig.wait(5 * MINUTE_MS)
    rig.tell(DriverBegun(operation.number, 1), DriverDone(operation.number, 1, 4000))
    records = [each for each in rig.availability if each.event]
    assert [(each.owner, each.vms) for each in records] == [("bob", ("db_0",)), ("", ("web_0",))]
    db, web = records
    assert (web.announced_ms, web.approved_ms) == (START_MS, START_MS + 2 * MINUTE_MS)
    assert db.started_ms == web.started_ms == db.approved_ms == START_MS + 3 * MINUTE_MS
    assert (db.at_ms, db.interruption_ms) == (START_MS + 8 * MINUTE_MS, 4000)
    assert (db.result, db.notice_s) == (EventResult.COMPLETED, 900)
    report = of_rig(rig)
    assert report.counted_ms == 4 * 8 * MINUTE_MS
    assert report.disturbed_ms == 2 * 4000


def test_step_records_no_event_that_never_started(rig: Rig) -> None:
    """Announced work disturbs nobody. Source: T-13."""
    rig.ask(Cause.HOST_REBOOT, "h0")
    rig.show()
    rig.wait(MINUTE_MS)
    assert not [each for each in rig.availability if each.event]
    assert of_rig(rig).disturbed_ms == 0


def test_failure_disturbs_from_its_start(rig: Rig) -> None:
    """Without notice, until it is repaired, and while it lasts until now. Source: T-13, L-4."""
    rig.wait(HOUR_MS)
    operation = rig.ask(Cause.HARDWARE_FAILURE, "h1")
    rig.wait(HOUR_MS)
    assert of_rig(rig).disturbed_ms == HOUR_MS
    rig.finish(operation)
    rig.wait(HOUR_MS)
    assert of_rig(rig).disturbed_ms == HOUR_MS
    [record] = [each for each in rig.availability if each.event]
    assert (record.vms, record.announced_ms, record.notice_s) == (("web_1",), 0, 0)


def test_owner_has_a_vm_from_its_arrival_until_it_leaves(rig: Rig) -> None:
    """VMs that come, go, change their group, or whose group is sold. Source: T-13."""
    rig.wait(MINUTE_MS)
    new = Vm("web_2", "h1", "web")
    rig.tell(ChangeTopology(vms=(new,)))
    rig.wait(MINUTE_MS)
    rig.tell(ChangeTopology(groups=(Group("web", owner="shop"),)))
    rig.tell(ChangeTopology(removed=(("vm", "web_2"),)))
    rig.wait(MINUTE_MS)
    counted = {
        (each.vm, each.owner): each.counted_ms for each in of_rig(rig).vms if each.group == "web"
    }
    assert counted == {
        ("web_0", ""): 2 * MINUTE_MS,
        ("web_0", "shop"): MINUTE_MS,
        ("web_1", ""): 2 * MINUTE_MS,
        ("web_1", "shop"): MINUTE_MS,
        ("web_2", ""): MINUTE_MS,
    }


def test_moved_vm_stays_its_owners(rig: Rig) -> None:
    """Another host or label is no other tenure. Source: T-13."""
    before = len(rig.availability)
    rig.tell(ChangeTopology(vms=(Vm("web_1", "h2", "web"),)))
    assert len(rig.availability) == before


@pytest.mark.parametrize("ended", [False, True], ids=["started", "ended"])
def test_owner_who_sells_a_group_keeps_its_disturbance(rig: Rig, *, ended: bool) -> None:
    """A Started event counts for each owner as long as it was theirs. Source: T-13."""
    operation = rig.ask(Cause.HARDWARE_FAILURE, "h1")
    for minutes, owner in ((1, "shop"), (3, "bank"), (5, "shop")):
        rig.wait(minutes * MINUTE_MS)
        rig.tell(ChangeTopology(groups=(Group("web", owner=owner),)))
    rig.wait(7 * MINUTE_MS)
    if ended:
        rig.finish(operation)
        rig.wait(MINUTE_MS)
    lost = Counter[str]()
    for each in of_rig(rig).disturbances:
        lost[each.owner] += each.ms // MINUTE_MS
    assert lost == {"": 1, "shop": 3 + 7, "bank": 5}, f"T-13: minutes of each owner: {lost}"


def test_time_of_two_tenures_counts_once_after_the_clock_was_set_back() -> None:
    """An owner that gets its VM back at an earlier time has it once in between. Source: T-13."""
    report = of(
        lived("arrived", 200),
        lived("left", 600),
        lived("arrived", 400),
        event("A", 450, 550),
    )
    assert (report.counted_ms, report.disturbed_ms) == (900, 100)
    assert len(report.disturbances) == 1
