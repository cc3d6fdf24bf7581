"""What people read in history, and in `why`: each sentence names what it is about, and why."""

from collections.abc import Callable

import pytest

from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.stimulus import (
    Cancel,
    ChangeTopology,
    Complete,
    DriverAborted,
    DriverBegun,
    DriverFailed,
    DriverProgressed,
    Enable,
    NoticeShown,
    NotShown,
    PutOff,
    Recover,
    Retry,
)
from forewarn_core.fleet.topology import Group, GroupKind, Vm
from forewarn_core.requests import ApprovalRequest
from tests.core.rig import DAY_MS, MINUTE_MS, Rig, small, small_fleet


def texts(rig: Rig, action: str) -> list[str]:
    """What history says under a name, in order."""
    return [entry.text for entry in rig.entries if entry.action == action]


def running(rig: Rig) -> None:
    """Have a host rebooted that nobody is asked about: it runs at once."""
    rig.ask(Cause.HOST_REBOOT, "h2")


def progressed(rig: Rig, text: str, percent: int, *placements: tuple[str, str]) -> None:
    """Have a driver tell how far it is."""
    rig.ask(Cause.HOST_LOST, "h0")
    rig.tell(DriverProgressed(1, 1, text, percent, placements))


def asked(rig: Rig) -> None:
    """Have work asked for that is announced."""
    rig.tell(Enable("web"))
    rig.ask(Cause.HOST_REBOOT, "h0")


def after(*stimuli: object, first: Callable[[Rig], None] = running) -> Callable[[Rig], None]:
    """Tell a rig these things once something is under way."""

    def tell(rig: Rig) -> None:
        first(rig)
        for each in stimuli:
            rig.tell(each)  # type: ignore[arg-type]

    return tell


@pytest.mark.parametrize(
    ("story", "action", "said"),
    [
        (running, "operation.planned", "op-1: host-reboot of host h2 (Reboot) is requested"),
        (
            lambda rig: rig.ask(Cause.REDEPLOY, "far_0"),
            "operation.planned",
            "op-1: redeploy of VM far_0 (Redeploy) is requested",
        ),
        (
            running,
            "operation.started",
            "op-1 is running: no VM on it polls for events, so nobody is asked",
        ),
        (
            lambda rig: rig.ask(Cause.HARDWARE_FAILURE, "h2"),
            "operation.unannounced",
            "op-1 started without notice",
        ),
        (
            lambda rig: rig.ask(Cause.HARDWARE_FAILURE, "h2"),
            "operation.started",
            "op-1 is running",
        ),
        (
            lambda rig: rig.ask(Cause.HARDWARE_FAILURE, "h2"),
            "host.failed",
            "host h2 is failed",
        ),
        (after(DriverBegun(1, 1)), "operation.begun", "the driver has begun op-1"),
        (
            after(DriverFailed(1, 1, "no power")),
            "operation.stuck",
            "op-1 is stuck: no power",
        ),
        (after(Retry(1)), "operation.retried", "op-1 is begun again"),
        (after(Complete(1)), "operation.succeeded", "op-1 has succeeded"),
        (
            after(Complete(1, failed=True, reason="seen on site")),
            "operation.failed",
            "op-1 has failed: seen on site",
        ),
        (
            after(Complete(1), DriverAborted(1)),
            "operation.aborted",
            "the driver was notified that op-1 has ended",
        ),
        (
            after(Complete(1), DriverAborted(1, "it is gone")),
            "operation.abort-failed",
            r"the driver could not be notified that op-1 has ended: it is gone",
        ),
        (
            lambda rig: progressed(rig, "moving", 10),
            "operation.progressed",
            "op-1: moving, 10 % done",
        ),
        (
            lambda rig: progressed(rig, "", -1, ("db_0", "h1")),
            "operation.progressed",
            "op-1: db_0 goes to h1",
        ),
        (
            lambda rig: progressed(rig, "", 0, ("db_0", "h1"), ("web_0", "h2"), ("far_0", "h1")),
            "operation.progressed",
            "op-1: 0 % done: db_0 goes to h1 and 1 others elsewhere",
        ),
        (
            after(Cancel(1, "not today"), first=asked),
            "operation.cancelled",
            "op-1 is cancelled: not today",
        ),
        (after(Cancel(1), first=asked), "operation.cancelled", "op-1 is cancelled"),
        (
            after(Recover(), first=asked),
            "operation.renewed",
            "op-1 is given its notice again",
        ),
        (
            after(NoticeShown((1,)), first=asked),
            "operation.shown",
            "the notice of op-1 is published",
        ),
        (
            after(PutOff(60_001), first=asked),
            "operation.put-off",
            "op-1 is put off by 1 min 1 s: the service's clock is set forward",
        ),
        (asked, "group.enabled", "Scheduled Events is enabled for web"),
        (asked, "document.updated", "document web is at 1"),
        (
            lambda rig: rig.tell(ChangeTopology(vms=(Vm("far_0", "h1", "far"),))),
            "vm.changed",
            "VM far_0 is changed",
        ),
        (
            lambda rig: rig.tell(ChangeTopology(removed=(("vm", "far_0"), ("host", "h2")))),
            "host.removed",
            "host h2 is removed",
        ),
    ],
)
def test_history_says_what_has_happened(
    story: Callable[[Rig], None], action: str, said: str
) -> None:
    """Each line is a sentence that names its work, and the reason where there is one. A-6."""
    rig = small(enabled=())
    story(rig)
    assert texts(rig, action)[-1] == said


def test_history_says_who_approved_for_whom() -> None:
    """An approval names its event, its group, and the VM that gave it. Source: A-6, A-7."""
    rig = Rig()
    rig.tell(
        small_fleet(web=Group("web", strict_approval=True)),
        ChangeTopology(vms=(Vm("web_2", "h0", "web"),)),
        Enable("web"),
    )
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    event_id = rig.event_of(operation, "web").id
    rig.tell(ApprovalRequest("web_2", (event_id,), ""))
    assert texts(rig, "event.counted") == [f"event {event_id} is approved by web_2, not yet by all"]
    rig.tell(ChangeTopology(groups=(Group("web"),)))
    why = "the group is not strict any more"
    assert texts(rig, "event.approved") == [f"event {event_id} is approved for web: {why}"]
    assert texts(rig, "operation.started") == ["op-1 is running: everybody approved"]
    assert [entry.vm for entry in rig.entries if entry.action == "event.counted"] == ["web_2"]


def test_history_says_that_a_notice_has_passed() -> None:
    """Work that starts unapproved starts since its time has come. Source: A-6, L-1."""
    rig = small()
    rig.ask(Cause.HOST_REBOOT, "h2")
    rig.show()
    rig.wait(15 * MINUTE_MS)
    assert texts(rig, "operation.started") == ["op-1 is running: NotBefore is reached"]
    rig.wait(60 * MINUTE_MS)
    assert texts(rig, "operation.overdue") == ["op-1 runs longer than it should"]


def test_history_says_why_a_group_is_disabled() -> None:
    """A silent group's documents go with one line. Source: B-2."""
    rig = small(enabled=("web",))
    rig.wait(DAY_MS + MINUTE_MS)
    assert texts(rig, "group.disabled") == ["Scheduled Events is disabled for web: nobody asked"]


def test_history_tells_of_documents_that_come_and_go() -> None:
    """A VM's own document is opened, and dropped when nobody reads it. Source: S-3, D-1."""
    rig = Rig()
    gpus = Group("web", GroupKind.SCALE_SET, fault_domain_count=1)
    rig.tell(small_fleet(web=gpus), Enable("web"))
    rig.tell(ChangeTopology(vms=(Vm("web_1", "h1", "web", gpu=True),)))
    assert texts(rig, "document.opened") == ["document web/web_1 is opened"]
    rig.ask(Cause.REBOOT, "web_1")
    assert texts(rig, "document.updated") == ["2 documents are updated for op-1"]
    rig.tell(Cancel(1))
    rig.tell(ChangeTopology(vms=(Vm("web_1", "h1", "web"),)))
    assert texts(rig, "document.dropped") == ["document web/web_1 is read by nobody"]


def test_history_tells_of_vms_that_arrive_in_a_failure() -> None:
    """Who is hit by it, too, is named. Source: L-5."""
    rig = small()
    lost = rig.ask(Cause.HOST_LOST, "h0", destination="h2")
    rig.ask(Cause.HARDWARE_FAILURE, "h2")
    rig.finish(lost)
    assert texts(rig, "operation.joined") == [
        "VM db_0, web_0 has arrived on h2 and is hit by op-2, too"
    ]


def test_history_tells_of_work_that_takes_another_s_place() -> None:
    """Work that is announced again for VMs that have arrived says so on both sides. L-5, N-1."""
    rig = small()
    rig.ask(Cause.HOST_REBOOT, "h2")
    lost = rig.ask(Cause.HOST_LOST, "h0", destination="h2")
    rig.finish(lost)
    told = "op-1 is cancelled: VMs have arrived on h2; op-3 replaces op-1"
    assert texts(rig, "operation.cancelled") == [told]
    assert texts(rig, "operation.planned")[-1] == "op-3 takes the place of op-1"
    [image] = [e for e in rig.entries if e.action == "operation.planned"][-1].images
    assert image.row is not None
    for name in ("not_before_ms", "announced_ms", "shown_ms"):
        assert not image.row[name]
    assert image.row["alert"] == "none"


def test_history_tells_of_vms_that_have_left() -> None:
    """What becomes of the work on their old host is explained. Source: L-9."""
    rig = small()
    rig.ask(Cause.HOST_REBOOT, "h0")
    rig.finish(rig.ask(Cause.DELETION, "web_0"))
    assert texts(rig, "operation.left") == ["VM web_0 has left h0, and op-1 does not disturb it"]


def test_nodes_that_did_not_show_it_are_named_with_their_vms() -> None:
    """People hear who may not know, by name where the node's hosts have VMs. Source: M-4."""
    rig = small()
    rig.ask(Cause.HOST_UPDATE, "h0")
    rig.tell(NotShown((1, 99), ("n1", "n2"), ()))
    rig.show()
    rig.tell(NotShown((1,), ("n1",), ("h0", "h1")))
    rig.tell(NotShown((1,), ("n1",), ("h2",)))
    others = "other VMs of its groups on host h2"
    assert texts(rig, "operation.not-shown") == [
        "nodes n1, n2 did not show op-1 in time: VM db_0, web_0 may not know of it",
        "node n1 did not show op-1 in time: VM db_0, web_0 may not know of it",
        f"node n1 did not show op-1 in time: {others} may not know of it",
    ]


@pytest.mark.parametrize(("count", "more"), [(20, ""), (21, " and 1 more"), (25, " and 5 more")])
def test_sentence_names_no_more_than_it_can(count: int, more: str) -> None:
    """A sentence names twenty VMs, and counts the others. Source: M-4."""
    rig = small()
    names = tuple(f"v{n:02}" for n in range(count))
    rig.tell(ChangeTopology(vms=tuple(Vm(name, "h2", "far") for name in names)))
    rig.tell(ChangeTopology(removed=(("vm", "far_0"),)))
    rig.ask(Cause.HOST_UPDATE, "h2")
    rig.tell(NotShown((1,), ("n1",)))
    named = ", ".join(names[:20])
    [said] = texts(rig, "operation.not-shown")
    assert said == f"node n1 did not show op-1 in time: VM {named}{more} may not know of it"
