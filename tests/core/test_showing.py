"""Documents: who is shown which event, as what, and when the incarnation moves."""

from __future__ import annotations

import pytest

from forewarn.core.document import View, ahead_of, fresh, refreshed
from forewarn.core.impact import Cause
from forewarn.core.stimulus import Cancel, ChangeTopology, Enable
from forewarn.core.topology import Group, GroupKind, Vm
from forewarn.protocol.documents import Document, ScheduledEvent
from tests.core.rig import MINUTE_MS, Rig, small, small_fleet


def test_each_group_gets_its_own_event() -> None:
    """A host with two groups gives each its own event, naming its own VMs. Source: S-5, S-4."""
    rig = small()
    rig.tell(ChangeTopology(vms=(Vm("db_1", "h0", "db"),)))
    rig.ask(Cause.HOST_REBOOT, "h0")
    (web,), (db,) = rig.document("web")[1], rig.document("db")[1]
    assert (web.resources, db.resources) == (("web_0",), ("db_0", "db_1"))
    assert web.event_id != db.event_id
    assert rig.document("far") == (0, ())


def test_event_has_every_field() -> None:
    """An event shows id, type, resources, NotBefore, text, source, duration. Source: D-3 to D-9."""
    rig = small()
    operation = rig.ask(Cause.LIVE_MIGRATION, "h0")
    (event,) = rig.document("web")[1]
    assert event.event_id == event.event_id.upper()
    assert (event.status, event.event_type) == ("Scheduled", "Freeze")
    assert (event.resource_type, event.resources) == ("VirtualMachine", ("web_0",))
    assert event.not_before_ms == operation.not_before_ms
    assert (event.source, event.duration_s) == ("Platform", 5)
    assert "Live Migration" in event.description


def test_incarnation_moves_with_the_events_only() -> None:
    """It grows by one with every change of the events, and only then. Source: D-1, D-2."""
    rig = small()
    assert rig.document("web") == (0, ())
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    assert rig.document("web")[0] == 1
    rig.show()
    rig.approve("web_0", operation)
    assert rig.document("web")[0] == 1
    rig.approve("db_0", operation)
    assert (rig.document("web")[0], rig.shown("web")) == (2, ["Reboot Started"])
    rig.finish(operation)
    assert rig.document("web") == (3, ())
    rig.check_replay()


def test_cancelled_event_is_gone() -> None:
    """A cancelled event goes without impact, and its id does not come back. Source: L-3, D-3."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    rig.tell(Cancel(operation.number))
    assert rig.document("web") == (2, ())
    assert not rig.begun
    again = rig.ask(Cause.HOST_REBOOT, "h0")
    assert set(again.events).isdisjoint(operation.events)


def test_events_stand_in_the_order_of_their_operations() -> None:
    """What was asked for first stands first. Source: D-2."""
    rig = small()
    rig.ask(Cause.REBOOT, "web_1")
    rig.ask(Cause.HOST_REBOOT, "h0")
    assert [event.resources for event in rig.document("web")[1]] == [("web_1",), ("web_0",)]


def test_gpu_vm_sees_only_events_that_name_it() -> None:
    """A GPU VM of one fault domain sees its own events, the group sees all. Source: S-3, S-1."""
    rig = Rig()
    rig.tell(
        small_fleet(web=Group("web", GroupKind.SCALE_SET, fault_domain_count=1)),
        ChangeTopology(
            vms=(Vm("web_2", "h2", "web", gpu=True), Vm("web_3", "h1", "web", gpu=True))
        ),
        Enable("web"),
    )
    rig.ask(Cause.HOST_REBOOT, "h2")
    rig.ask(Cause.REBOOT, "web_0")
    assert rig.shown("web/web_2") == ["Reboot Scheduled"]
    assert rig.document("web/web_3") == (0, ())
    assert len(rig.shown("web")) == 2


def test_lone_vm_sees_only_its_own() -> None:
    """A lone VM sees its own events. Source: S-2."""
    rig = Rig()
    rig.tell(
        small_fleet(far=Group("far", GroupKind.LONE)),
        *(Enable(group) for group in ("web", "far")),
    )
    rig.ask(Cause.HOST_REBOOT, "h0")
    assert rig.document("far") == (0, ())


def test_started_event_has_no_notbefore_and_stays_until_the_end() -> None:
    """Started, then gone when the operation has ended. Source: L-1, L-5, D-7."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h2")
    rig.approve("far_0", operation)
    rig.wait(10 * MINUTE_MS)
    assert rig.document("far")[1][0].not_before_ms is None
    rig.finish(operation)
    assert rig.document("far")[1] == ()


def test_same_events_leave_the_view_alone() -> None:
    """A view asked to show what it shows is the same view. Source: D-1."""
    view: View = fresh("web", "web")
    assert refreshed(view, ()) is view
    assert (view.vm, fresh("web/a", "web").vm) == ("", "a")


@pytest.mark.parametrize(
    ("own", "shared"),
    [((5, True), 6), ((3, True), 4), ((2, True), 3), ((3, False), 3), ((5, False), 6)],
    ids=["ahead", "as far", "behind", "the same", "ahead, nothing shown"],
)
def test_shared_document_is_ahead_of_a_dropped_one(own: tuple[int, bool], shared: int) -> None:
    """A VM that reads the shared one from now on sees it move if it shows something else. D-1."""
    incarnation, is_other = own
    events = (ScheduledEvent(event_id="E"),) if is_other else ()
    dropped = View("web/a", "web", Document(incarnation, events))
    view = View("web", "web", Document(3, ()))
    assert ahead_of(view, [dropped]).document == Document(shared, ())
