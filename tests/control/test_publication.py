"""What metadata nodes are told of VMs is what instance metadata shows of them."""

from __future__ import annotations

import json

import pytest

from forewarn.control.publication import whole
from forewarn.core.state import State
from forewarn.core.topology import Group, GroupKind, Host, Topology, Vm
from forewarn.metadata import instance
from forewarn.metadata.instance_fields import INSTANCE_VERSIONS
from forewarn.replication import messages as feed
from forewarn.replication.portions import cut

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
)


@pytest.mark.parametrize(
    ("vm", "kind", "shown"),
    [
        (
            Vm("v", "h", "g"),
            GroupKind.AVAILABILITY_SET,
            {"vmId": "", "location": "", "vmSize": "", "vmScaleSetName": "", "tags": "",
             "tagsList": [], "priority": "Regular", "evictionPolicy": "", "osType": "Linux"},
        ),
        (
            FULL,
            GroupKind.SCALE_SET,
            {"vmId": "1-2", "location": "here", "vmSize": "Standard_D4", "vmScaleSetName": "g",
             "resourceGroupName": "rg", "subscriptionId": "sub", "tags": "a:1;b:2",
             "tagsList": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}],
             "priority": "Spot", "evictionPolicy": "Deallocate"},
        ),
    ],
    ids=["bare", "full"],
)  # fmt: skip
def test_what_is_left_out_reads_as_empty(vm: Vm, kind: GroupKind, shown: dict[str, object]) -> None:
    """A VM reads every fact there can be, told or not. Source: I-1, I-4."""
    host = Host("h", fault_domain=1, update_domain=2, zone="3")
    state = State()
    state.topology = Topology({"h": host}, {"g": Group("g", kind)}, {"v": vm})
    [(line, _)] = cut(whole(state, 1), 0)
    told = feed.read_told(line)
    assert isinstance(told, feed.FeedPortion)
    [caller] = feed.read_content(told.content).callers
    body, plain = instance.render(caller, NEWEST, path="compute", form="json")
    assert not plain
    compute = json.loads(body)
    place = {"platformFaultDomain": "1", "platformUpdateDomain": "2", "zone": "3", "name": "v"}
    assert compute == compute | place | shown
