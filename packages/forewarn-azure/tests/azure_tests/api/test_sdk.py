"""Azure's own SDK, unmodified, against the emulator: its acts become scheduled events. Z-1."""

import asyncio

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.mgmt.compute.aio import ComputeManagementClient as AsyncClient

from azure_tests.api.conftest import GROUP, SUBSCRIPTION, Arm, Password

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("act", "shown"),
    [
        ("begin_restart", "Reboot Scheduled db-0 User"),
        ("begin_redeploy", "Redeploy Scheduled db-0 User"),
        ("begin_perform_maintenance", "Redeploy Scheduled db-0 User"),
    ],
)
def test_sdk_work_is_announced_and_ends_with_its_event(arm: Arm, act: str, shown: str) -> None:
    """What a user does is a scheduled event, and the poller ends when that has. Source: Z-1, O."""
    poller = getattr(arm.sdk().virtual_machines, act)(GROUP, "db-0")
    assert arm.sees("db-0") == [shown]
    assert poller.status() == "InProgress"
    arm.approve("db-0")
    assert arm.wait(poller) == "Succeeded"
    assert arm.sees("db-0") == []


def test_sdk_deletion_waits_for_its_terminate_notice(arm: Arm) -> None:
    """Terminate notification set by the SDK makes a deletion an event. Source: Z-1, N-1."""
    vms = arm.sdk().virtual_machines
    profile = {"terminateNotificationProfile": {"enable": True, "notBeforeTimeout": "PT7M"}}
    vms.begin_update(GROUP, "db-0", {"properties": {"scheduledEventsProfile": profile}}).result()
    poller = vms.begin_delete(GROUP, "db-0")
    assert arm.sees("db-0") == ["Terminate Scheduled db-0 User"]
    arm.approve("db-0")
    assert arm.wait(poller) == "Succeeded"
    assert [vm.name for vm in vms.list(GROUP)] == []


def test_sdk_books_vms_power_and_tags_at_once(arm: Arm) -> None:
    """What nobody is warned of is booked: power, tags, a new VM. Source: Z-1."""
    vms = arm.sdk().virtual_machines
    vms.begin_power_off(GROUP, "db-0").result()
    assert vms.instance_view(GROUP, "DB-0").statuses[1].code == "PowerState/stopped"
    vms.begin_start(GROUP, "db-0").result()
    assert vms.instance_view(GROUP, "db-0").statuses[1].code == "PowerState/running"
    vm = vms.get(GROUP, "db-0")
    vm.tags = {"role": "standby"}
    assert vms.begin_create_or_update(GROUP, "db-0", vm).result().tags == {"role": "standby"}
    made = {"location": "here", "properties": {"priority": "Spot"}}
    assert vms.begin_create_or_update(GROUP, "new", made).result().provisioning_state == "Succeeded"
    vms.simulate_eviction(GROUP, "new")
    assert arm.sees("new") == ["Preempt Scheduled new Platform"]


def test_sdk_acts_on_instances_of_a_scale_set(arm: Arm) -> None:
    """Instances are named by number; one request's work ends together. Source: Z-1."""
    sets, instances = arm.sdk().virtual_machine_scale_sets, arm.sdk().virtual_machine_scale_set_vms
    assert [each.instance_id for each in instances.list(GROUP, "web")] == ["0", "1"]
    poller = sets.begin_restart(GROUP, "web")
    assert arm.sees("web_0") == ["Reboot Scheduled web_0 User", "Reboot Scheduled web_1 User"]
    arm.approve("web_0")
    assert arm.wait(poller) == "Succeeded"
    instances.simulate_eviction(GROUP, "web", "0")
    assert arm.sees("web_1") == ["Preempt Scheduled web_0 Platform"]


def test_sdk_scales_a_set_in_with_terminate_notice(arm: Arm) -> None:
    """A smaller capacity deletes the newest instances, announced as asked. Source: O-2, Z-1."""
    sets = arm.sdk().virtual_machine_scale_sets
    profile = {"terminateNotificationProfile": {"enable": True, "notBeforeTimeout": "PT5M"}}
    model = {"virtualMachineProfile": {"scheduledEventsProfile": profile}}
    sets.begin_update(GROUP, "web", {"properties": model, "sku": {"capacity": 3}}).result()
    poller = sets.begin_update(GROUP, "web", {"sku": {"capacity": 2}})
    assert arm.sees("web_0") == ["Terminate Scheduled web_2 User"]
    arm.approve("web_0")
    assert arm.wait(poller) == "Succeeded"
    assert sets.get(GROUP, "web").sku.capacity == 2


def test_sdk_learns_of_errors_in_azures_codes(arm: Arm) -> None:
    """Errors have Azure's form and codes. Source: Z-4."""
    vms = arm.sdk().virtual_machines
    with pytest.raises(ResourceNotFoundError) as missing:
        vms.get(GROUP, "nobody")
    assert missing.value.error is not None
    assert missing.value.error.code == "ResourceNotFound"
    with pytest.raises(HttpResponseError) as refused:
        vms.simulate_eviction(GROUP, "db-0")
    assert refused.value.error is not None
    assert refused.value.error.code == "InvalidParameter"
    vms.begin_restart(GROUP, "db-0", polling=False)


def test_async_sdk_restarts_a_vm(arm: Arm) -> None:
    """The asynchronous SDK is served alike. Source: Z-1."""

    class Credential(Password):
        async def get_token(self, *scopes: str, **options: object) -> object:  # type: ignore[override]
            return super().get_token(*scopes, **options)

        async def close(self) -> None: ...

    async def restart() -> str:
        async with AsyncClient(
            Credential(arm),  # type: ignore[arg-type]
            SUBSCRIPTION,
            base_url=arm.url,
            credential_scopes=[f"{arm.url}/.default"],
            connection_verify=arm.certificate,
        ) as client:
            poller = await client.virtual_machines.begin_restart(GROUP, "db-0")
            await asyncio.to_thread(arm.approve, "db-0")
            await poller.result()
            return str(poller.status())

    assert asyncio.run(restart()) == "Succeeded"
