"""What metadata nodes are told of VMs is what instance metadata shows of them."""

import json
from contextlib import closing

import pytest

from forewarn_base.values import replace
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.state import State
from forewarn_core.fleet.stimulus import (
    ChangeTopology,
    DriverDone,
    DriverFailed,
    DriverProgressed,
    RequestMaintenance,
    Tick,
)
from forewarn_core.fleet.topology import Group, GroupKind, Health, Host, Topology, Vm
from forewarn_metadata.endpoint import instance
from forewarn_metadata.endpoint.instance_fields import INSTANCE_VERSIONS
from forewarn_metadata.replication.messages import NodePart, encoded, read_part
from forewarn_server.control.document_changes import instance_facts, whole
from forewarn_server.control.plane import ControlPlane
from forewarn_store import open_store

NEWEST = INSTANCE_VERSIONS[-1]
TAGS = (("a", "1"), ("b", "2"))
FULL = Vm(
    "v",
    "h",
    "g",
    size="Standard_D4",
    spot=True,
    vm_id="1-2",
    location="here",
    resource_group="rg",
    subscription="sub",
    tags=TAGS,
    instance=(("sku", "12"), ("osProfile.adminUsername", "ann"), ("evictionPolicy", "Delete")),
)


@pytest.mark.parametrize(
    ("vm", "kind", "shown"),
    [
        (
            Vm("v", "h", "g"),
            GroupKind.AVAILABILITY_SET,
            {"vmId": instance.derived_vm_id("v"), "location": "", "vmSize": "",
             "vmScaleSetName": "", "tags": "", "tagsList": [],
             "priority": "Regular", "evictionPolicy": "", "osType": "Linux"},
        ),
        (
            FULL,
            GroupKind.SCALE_SET,
            {"vmId": "1-2", "location": "here", "vmSize": "Standard_D4", "vmScaleSetName": "g",
             "resourceGroupName": "rg", "subscriptionId": "sub", "tags": "a:1;b:2",
             "tagsList": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}],
             "priority": "Spot", "evictionPolicy": "Delete", "sku": "12"},
        ),
    ],
    ids=["bare", "full"],
)  # fmt: skip
def test_what_is_left_out_reads_as_empty(vm: Vm, kind: GroupKind, shown: dict[str, object]) -> None:
    """A VM reads every fact there can be, told or not. Source: I-1, I-4."""
    host = Host("h", fault_domain=1, update_domain=2, zone="3")
    state = State()
    state.topology = Topology({"h": host}, {"g": Group("g", kind)}, {"v": vm})
    [caller] = read_part(encoded(NodePart(whole(state, 1).callers, ()))).vms
    body, plain = instance.render(caller, NEWEST, path="compute", form="json")
    assert not plain
    compute = json.loads(body)
    place = {"platformFaultDomain": "1", "platformUpdateDomain": "2", "zone": "3", "name": "v"}
    assert compute == compute | place | shown


PLACED = ChangeTopology(
    hosts=(Host("h"), Host("other")),
    groups=(Group("g"), Group("alone")),
    vms=(Vm("v", "h", "g"), Vm("w", "h", "alone"), Vm("x", "other", "alone")),
)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (ChangeTopology(hosts=(Host("h", health=Health.DEGRADED),)), ()),
        (ChangeTopology(hosts=(Host("h", driver="manual"),)), ()),
        (ChangeTopology(hosts=(Host("h", zone="2"),)), ("v", "w")),
        (ChangeTopology(groups=(Group("g", strict_approval=True),)), ()),
        (ChangeTopology(groups=(Group("g", GroupKind.SCALE_SET),)), ("v",)),
        (ChangeTopology(vms=(Vm("x", "other", "alone", size="D4"),)), ("x",)),
    ],
    ids=["health", "driver", "zone", "policy", "kind", "vm"],
)
def test_only_vms_that_are_told_otherwise_are_told(
    change: ChangeTopology, told: tuple[str, ...]
) -> None:
    """A change costs what it means to VMs, not how many there are. Source: I-1, S-1."""
    with closing(open_store("sqlite::memory:")) as store:
        plane = ControlPlane(store, NoticePolicy(), lambda: "A")
        plane.recover(1)
        plane.commit(PLACED, actor="test", now_ms=1)
        changed = plane.change_of(plane.commit(change, actor="test", now_ms=2))
    callers = changed.callers if changed else ()
    assert tuple(caller.vm for caller in callers) == told


@pytest.mark.parametrize(
    ("end", "at"),
    [(DriverDone(1, 1), ("other", ())), (DriverFailed(1, 1, "no room"), ("h", ("other",)))],
    ids=["moved", "stuck"],
)
def test_vm_that_is_being_moved_is_known_on_both_hosts(
    end: DriverDone | DriverFailed, at: tuple[str, tuple[str, ...]]
) -> None:
    """Its new host's node is told of it before it can be there. Source: M-5, L-7."""
    ask = RequestMaintenance(cause=Cause.LIVE_MIGRATION, targets=("h",), destination="other")
    with closing(open_store("sqlite::memory:")) as store:
        plane = ControlPlane(store, NoticePolicy(), lambda: "A")
        plane.recover(1)
        plane.commit(PLACED, actor="test", now_ms=1)
        planned = plane.commit(ask, actor="test", now_ms=2)
        due_ms = plane.next_deadline_ms(2) or 2
        begun = plane.commit(Tick(), actor="test", now_ms=due_ms) if not planned.begin else planned
        assert [operation.number for operation in begun.begin] == [1]
        change = plane.change_of(begun)
        assert change is not None
        told = {each.vm: (each.host, each.destinations) for each in change.callers}
        assert told == {"v": ("h", ("other",)), "w": ("h", ("other",))}
        assert {each.vm: each.destinations for each in plane.whole().callers}["w"] == ("other",)
        progressed = plane.commit(DriverProgressed(1, 1, "moving"), actor="test", now_ms=due_ms)
        assert plane.change_of(progressed) is None
        plane.commit(end, actor="test", now_ms=due_ms)
        callers = {each.vm: (each.host, each.destinations) for each in plane.whole().callers}
    assert callers == {"v": at, "w": at, "x": ("other", ())}


def test_vm_is_known_where_its_driver_takes_it() -> None:
    """Nobody named a destination; the driver has chosen one for each VM. Source: M-1, M-5."""
    ask = RequestMaintenance(cause=Cause.LIVE_MIGRATION, targets=("h",))
    with closing(open_store("sqlite::memory:")) as store:
        plane = ControlPlane(store, NoticePolicy(), lambda: "A")
        plane.recover(1)
        plane.commit(PLACED, actor="test", now_ms=1)
        planned = plane.commit(ask, actor="test", now_ms=2)
        due_ms = plane.next_deadline_ms(2) or 2
        if not planned.begin:
            plane.commit(Tick(), actor="test", now_ms=due_ms)
        chosen = (("v", "other"), ("w", "nowhere"), ("x", "h"))
        said = plane.commit(DriverProgressed(1, 1, placements=chosen), actor="d", now_ms=due_ms)
        change = plane.change_of(said)
        assert change is not None
        told = {each.vm: each.destinations for each in change.callers}
        again = plane.commit(DriverProgressed(1, 1, placements=chosen), actor="d", now_ms=due_ms)
        plane.commit(DriverDone(1, 1), actor="d", now_ms=due_ms)
        callers = {each.vm: (each.host, each.destinations) for each in plane.whole().callers}
    assert told == {"v": ("other",), "w": ()}
    assert not again.changes
    assert callers == {"v": ("other", ()), "w": ("h", ()), "x": ("other", ())}


def test_facts_that_vms_have_in_common_are_kept_once() -> None:
    """A million VMs of a few kinds keep a few mappings of facts; one with an id has its own."""
    alike = [Vm(f"v{n}", "h", "g", size="Standard_D4s_v5") for n in range(2)]
    other = replace(alike[0], name="w", vm_id="5c2a")
    topology = Topology(
        {"h": Host("h")}, {"g": Group("g")}, {vm.name: vm for vm in (*alike, other)}
    )
    first, second, third = (instance_facts(topology, vm) for vm in (*alike, other))
    assert first is second
    assert third == {**first, "vmId": "5c2a"}
