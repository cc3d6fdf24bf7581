"""Changes of the fleet: all or nothing, and never under announced work."""

from dataclasses import dataclass, field

import pytest

from forewarn_base.protocol.documents import Document
from forewarn_core.fleet.impact import Cause, Source
from forewarn_core.fleet.refusals import (
    AlreadyExists,
    FleetBusy,
    FleetContradiction,
    InUse,
    Unknown,
)
from forewarn_core.fleet.state import State
from forewarn_core.fleet.step import StepResult
from forewarn_core.fleet.stimulus import ChangeTopology, Complete, Enable, PlaneStimulus, Repair
from forewarn_core.fleet.topology import Group, GroupKind, Health, Host, Vm
from tests.core import invariants
from tests.core.rig import Rig, small, small_fleet


def test_fleet_is_put_and_removed() -> None:
    """Hosts, groups and VMs come, change and go, each with its entry. Source: S-1."""
    rig = small()
    rig.tell(ChangeTopology(vms=(Vm("far_0", "h2", "far", size="D2"),)))
    rig.tell(ChangeTopology(removed=(("vm", "far_0"), ("group", "far"), ("host", "h2"))))
    assert "h2" not in rig.state.topology.hosts
    assert set(rig.state.enrolments) == set(rig.state.views) == {"web", "db"}
    actions = [entry.action for entry in rig.entries]
    assert actions[-5:] == [
        "vm.changed",
        "vm.removed",
        "group.removed",
        "host.removed",
        "document.dropped",
    ]
    rig.check_replay()


def test_nothing_new_writes_nothing() -> None:
    """A description of what is there already changes nothing."""
    rig = small()
    assert not rig.tell(small_fleet()).changes


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (ChangeTopology(vms=(Vm("x", "h9", "web"),)), FleetContradiction),
        (ChangeTopology(removed=(("host", "h9"),)), Unknown),
        (ChangeTopology(removed=(("host", "h0"),)), InUse),
        (ChangeTopology(removed=(("group", "web"),)), InUse),
    ],
    ids=["no-host", "not-there", "host-in-use", "group-in-use"],
)
def test_wrong_change_is_refused(change: ChangeTopology, error: type[InUse]) -> None:
    """A change that cannot be is refused whole and changes nothing. Source: S-1."""
    small().refuses(change, error)


def test_users_of_a_host_are_named_but_not_all() -> None:
    """The refusal to remove a host names a few of those on it."""
    rig = small()
    rig.tell(ChangeTopology(vms=tuple(Vm(f"v{n}", "h0", "web") for n in range(3))))
    error = rig.refuses(ChangeTopology(removed=(("host", "h0"),)), InUse)
    assert str(error).endswith("and others are still there.")
    error = rig.refuses(ChangeTopology(removed=(("group", "db"),)), InUse)
    assert str(error).endswith("VM db_0 is still there.")
    rig.tell(ChangeTopology(vms=(Vm("db_1", "h0", "db"),)))
    error = rig.refuses(ChangeTopology(removed=(("group", "db"),)), InUse)
    assert str(error).endswith("VM db_0, db_1 are still there.")


@pytest.mark.parametrize(
    "absent", [("host", "h0"), ("group", "web"), ("vm", "db_0")], ids=lambda pair: pair[0]
)
def test_what_must_be_absent_is_not_replaced(absent: tuple[str, str]) -> None:
    """A change that asks for something new is refused whole where it is there."""
    rig = small()
    new = (Host("h7"),)
    rig.refuses(ChangeTopology(hosts=new, absent=(("host", "h7"), absent)), AlreadyExists)
    rig.tell(ChangeTopology(hosts=new, absent=(("host", "h7"), (absent[0], "other"))))
    assert "h7" in rig.state.topology.hosts


@pytest.mark.parametrize(
    "change",
    [
        ChangeTopology(vms=(Vm("web_0", "h0", "db"),)),
        ChangeTopology(hosts=(Host("h0", 2, 0),)),
        ChangeTopology(vms=(Vm("new", "h0", "web"),)),
    ],
    ids=["regroup", "other-domain", "arrive"],
)
def test_announced_work_holds_its_machines(change: ChangeTopology) -> None:
    """A VM may leave announced work by leaving its host only; nobody joins. Source: L-5, N-1."""
    rig = small()
    rig.ask(Cause.HOST_REBOOT, "h0")
    rig.refuses(change, FleetBusy)


def test_planned_work_holds_only_its_host() -> None:
    """Before it is announced, VMs may still come and go; the host may not. Source: L-5."""
    rig = small()
    rig.ask(Cause.HOST_REBOOT, "h0")
    rig.ask(Cause.HOST_REBOOT, "h1")
    rig.tell(ChangeTopology(vms=(Vm("new", "h1", "web"), Vm("web_1", "h2", "web"))))
    rig.tell(ChangeTopology(vms=(Vm("new", "h1", "db"),)))
    rig.refuses(ChangeTopology(removed=(("vm", "new"), ("host", "h1"))), FleetBusy)


def test_refusal_names_what_ends_the_work() -> None:
    """Repair ends a failure, a cancellation only work that has not started. Source: L-3, L-5."""
    rig = small()
    rig.ask(Cause.HARDWARE_FAILURE, "h0")
    gone = ChangeTopology(removed=(("vm", "web_0"),))
    refused = rig.refuses(gone, FleetBusy).advice_text()
    assert refused == "Repair host h0 first: `forewarn host repair h0`."
    rig.tell(Repair("h0"))
    announced = rig.ask(Cause.HOST_REBOOT, "h0")
    other = ChangeTopology(hosts=(Host("h0", 2, 0),))
    refused = rig.refuses(other, FleetBusy).advice_text()
    cancel = f"or cancel it: `forewarn operation cancel {announced.id}`."
    assert refused == f"Wait until {announced.id} has ended, {cancel}"
    arrives = str(rig.refuses(ChangeTopology(vms=(Vm("new", "h0", "web"),)), FleetBusy))
    assert arrives == f"Host h0 cannot take VM new while {announced.id} involves it."
    rig.show()
    for vm in ("web_0", "db_0"):
        rig.approve(vm, announced)
    assert rig.refuses(gone, FleetBusy).advice_text() == f"Wait until {announced.id} has ended."


def test_destination_is_not_removed() -> None:
    """A host that VMs are to be moved to stays. Source: L-5."""
    rig = small()
    rig.tell(ChangeTopology(hosts=(Host("spare"),)))
    rig.ask(Cause.LIVE_MIGRATION, "h0", destination="spare")
    rig.refuses(ChangeTopology(removed=(("host", "spare"),)), FleetBusy)


def test_name_of_a_deleted_vm_is_free() -> None:
    """Work no longer names a VM that is gone, so another VM may take its name. Source: L-9."""
    rig = small()
    reboot = rig.ask(Cause.HOST_REBOOT, "h0")
    rig.approve("web_1", reboot)
    eviction = rig.ask(Cause.EVICTION, "web_0")
    rig.approve("web_1", eviction)
    rig.finish(eviction)
    rig.tell(ChangeTopology(vms=(Vm("web_0", "h2", "web"),)))
    assert rig.now(reboot).vms == ("db_0",)
    assert rig.shown("web") == []


def test_health_is_not_set_by_a_description() -> None:
    """Describing a host does not heal it."""
    rig = small()
    rig.ask(Cause.HARDWARE_FAILURE, "h0")
    rig.tell(ChangeTopology(hosts=(Host("h0", 0, 0, driver="manual"),)))
    assert rig.state.topology.hosts["h0"].health is Health.FAILED


def test_values_of_settings_that_are_off_are_kept_by_a_description() -> None:
    """An operator's form or file has none of them; Azure's tools give others. Source: Z-6."""
    rig = small()
    seven, nine = ((("terminate_notice", text),) for text in ("PT7M", "PT9M"))
    rig.tell(ChangeTopology(groups=(Group("web", switched_off=seven),)))
    rig.tell(ChangeTopology(groups=(Group("web", owner="ann"),)))
    assert rig.state.topology.groups["web"] == Group("web", owner="ann", switched_off=seven)
    rig.tell(ChangeTopology(groups=(Group("web", switched_off=nine),)))
    assert rig.state.topology.groups["web"].switched_off == nine


def test_documents_follow_the_layout() -> None:
    """A VM that gets a document of its own finds it, and loses it again. Source: S-3, D-1."""
    rig = Rig()
    rig.tell(
        small_fleet(web=Group("web", GroupKind.SCALE_SET, fault_domain_count=1)),
        Enable("web"),
    )
    rig.ask(Cause.REBOOT, "web_0")
    rig.tell(ChangeTopology(vms=(Vm("web_1", "h1", "web", gpu=True),)))
    assert rig.state.views["web/web_1"].document == Document(2, ())
    rig.tell(ChangeTopology(vms=(Vm("web_0", "h0", "web", gpu=True),)))
    assert rig.document("web/web_0")[0] == 1
    rig.tell(ChangeTopology(groups=(Group("web"),)))
    assert set(rig.state.views) == {"web"}
    rig.tell(ChangeTopology(groups=(Group("more", GroupKind.SCALE_SET, fault_domain_count=1),)))
    rig.check_replay()


def test_group_removed_under_an_event_of_a_deleted_vm() -> None:
    """Work whose group has gone with its last VM still comes to an end. Source: L-5, L-2."""
    rig = small()
    reboot = rig.ask(Cause.HOST_REBOOT, "h0")
    eviction = rig.ask(Cause.EVICTION, "db_0")
    rig.tell(ChangeTopology())
    rig.approve("db_0", eviction)
    rig.finish(eviction)
    rig.tell(ChangeTopology(removed=(("group", "db"),)))
    assert [waiting.subject for waiting in rig.why(reboot)] == ["web"]
    rig.approve("web_0", reboot)
    rig.finish(reboot)
    rig.check_replay()


def test_lone_group_stays_lone() -> None:
    """No second VM joins it, and a group of two does not become one. Source: S-2."""
    rig = small()
    lone = Group("far", GroupKind.LONE)
    rig.tell(ChangeTopology(groups=(lone,)))
    rig.refuses(ChangeTopology(vms=(Vm("far_1", "h2", "far"),)), FleetContradiction)
    web = Group("web", GroupKind.LONE)
    rig.refuses(ChangeTopology(groups=(web,)), FleetContradiction)


@dataclass
class Mirrored(Rig):
    """A core whose steps a copy follows by their records alone, as a replica does."""

    mirror: State = field(default_factory=State)

    def _tell(self, stimulus: PlaneStimulus) -> StepResult:
        outcome = super()._tell(stimulus)
        self.mirror.adopt(outcome.changes)
        assert self.mirror == self.state
        invariants.check_indexes(self.mirror)
        return outcome


def test_copy_follows_by_records_alone() -> None:
    """Whoever is given only what changed has the same fleet, work and budgets. L-7, F-3."""
    rig = Mirrored()
    rig.tell(small_fleet(), *(Enable(group) for group in ("web", "db", "far")))
    moved = rig.ask(Cause.REDEPLOY, "far_0", destination="h1", source=Source.PLATFORM)
    rig.ask(Cause.REBOOT, "db_0")
    rig.tell(ChangeTopology(groups=(Group("db", owner="carol"),)))
    rig.approve("far_0", moved)
    rig.finish(moved)
    failed = rig.ask(Cause.HARDWARE_FAILURE, "h0")
    rig.tell(ChangeTopology(groups=(Group("web", owner="anna"),)))
    rig.tell(Complete(failed.number, failed=True))
    rig.tell(ChangeTopology(vms=(Vm("new", "h0", "far"),), removed=(("vm", "web_0"),)))
    rig.tell(ChangeTopology(vms=(Vm("new", "h2", "far"),)))
    rig.tell(ChangeTopology(hosts=(Host("h0", 0, 5),), groups=(Group("far", owner="carol"),)))
    assert rig.mirror.current_usage().taken == rig.state.current_usage().taken


def test_vms_go_and_come_beside_planned_work() -> None:
    """Work that waits to be announced names no VM yet, and holds none. Source: S-5."""
    rig = small()
    rig.ask(Cause.HOST_REBOOT, "h0")
    planned = rig.ask(Cause.HOST_REBOOT, "h1")
    rig.tell(ChangeTopology(vms=(Vm("db_1", "h1", "db"),), removed=(("vm", "far_0"),)))
    assert rig.now(planned).live
    assert set(rig.state.topology.vms) == {"web_0", "web_1", "db_0", "db_1"}
