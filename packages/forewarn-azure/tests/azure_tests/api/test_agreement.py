"""Azure Resource Manager and instance metadata say the same of every VM."""

import json
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from azure_tests.api.conftest import Arm
from forewarn_azure.inventory import Inventory
from forewarn_azure.set_values import shown_instance
from forewarn_azure.vm_values import shown_vm
from forewarn_core.fleet.topology import Group, GroupKind, Host, Topology, Vm
from forewarn_metadata.endpoint.instance import render
from forewarn_metadata.endpoint.instance_fields import INSTANCE_VERSIONS
from forewarn_metadata.replication.messages import Caller
from forewarn_server.control.document_changes import instance_facts

ID = "7e5ba2b5-6c1f-4b21-9a6c-4d8f6fdb1c4e"
VMS = st.builds(
    Vm,
    st.sampled_from(["g", "g_0", "g_01", "g_a", "g_0_1", "G_1", "other_2"]),
    host=st.just("h"),
    group=st.just("g"),
    vm_id=st.sampled_from(["", ID]),
    subscription=st.sampled_from(["", ID, ID.upper()]),
    resource_group=st.sampled_from(["", "Group"]),
    tags=st.sampled_from([(), (("a", "b"),)]),
)


def compute(topology: Topology, vm: Vm) -> dict[str, str]:
    """Return what the VM's metadata shows."""
    caller = Caller(vm.name, "g", "g", instance=instance_facts(topology, vm))
    body, _ = render(caller, INSTANCE_VERSIONS[-1], path="compute", form="json")
    return dict(json.loads(body))


@given(vm=VMS, kind=st.sampled_from(GroupKind))
def test_metadata_and_arm_agree_on_every_vm(vm: Vm, kind: GroupKind) -> None:
    """Subscription, resource id and VM id are the same, whatever is unknown. Source: Z-1, I-1."""
    host, group = Host("h"), Group("g", kind=kind)
    topology = Topology(hosts={"h": host}, groups={"g": group}, vms={vm.name: vm})
    told = compute(topology, vm)
    for shown in (shown_vm(vm, group, host), shown_instance(group, vm, host=host)):
        assert shown["id"] == told["resourceId"]
        assert shown["id"].split("/")[2] == told["subscriptionId"]
        assert shown["properties"]["vmId"] == told["vmId"]
    assert told["subscriptionId"].lower() in Inventory(topology).subscriptions


def test_numbered_vm_of_an_availability_set_is_listed(arms: Callable[..., Arm]) -> None:
    """Only instances of a scale set are left to their set. Source: Z-1."""
    fleet = "[hosts]\nh = {}\n[groups]\ndb = {}\nweb = {kind = 'scale-set'}\n"
    for name in ("db_1", "web_1", "web_x"):
        fleet += f"[vms.{name}]\nhost = 'h'\ngroup = '{name[:-2]}'\n"
    arm = arms(topology=fleet)
    root = f"/subscriptions/{arm.get('/subscriptions')['value'][0]['subscriptionId']}"
    listed = arm.get(f"{root}/providers/Microsoft.Compute/virtualMachines")["value"]
    assert [each["name"] for each in listed] == ["db_1", "web_x"]
