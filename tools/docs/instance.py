"""Writes the reference page of instance metadata: every attribute, its version and its source."""

from __future__ import annotations

from forewarn_metadata.endpoint.instance_fields import (
    COMPUTE,
    DATA_DISK,
    INSTANCE_VERSIONS,
    LISTS,
    SAME_AS,
)
from tools.docs.reference import page, table

#: Attribute -> source of its value, for attributes with sources besides `instance`.
FROM_THE_TOPOLOGY = {
    "evictionPolicy": "`Deallocate` for a Spot VM",
    "location": "the VM's `location`",
    "name": "the VM's name",
    "osType": "the VM's `os_type`",
    "placementGroupId": "the scale set's name",
    "platformFaultDomain": "the host's `fault_domain`",
    "platformUpdateDomain": "the host's `update_domain`",
    "priority": "`instance` (default: `Spot` or `Regular`)",
    "resourceGroupName": "the VM's `resource_group` (default: `default`)",
    "resourceId": "made from subscription, resource group and name",
    "subscriptionId": "the VM's `subscription` (default: zeros)",
    "tags": "the VM's `tags`",
    "tagsList": "the VM's `tags`",
    "vmId": "the VM's `vm_id`",
    "vmScaleSetName": "the scale set's name",
    "vmSize": "the VM's `size`",
    "zone": "the host's `zone`",
    "osProfile.disablePasswordAuthentication": "`true` if the VM has public keys",
    "publicKeys": "`instance`, one key on each line",
    "storageProfile.dataDisks": "`instance`, one disk on each line, [see below](#data-disks)",
}


def instance_page() -> str:
    """Return the reference page of instance metadata: every attribute, with its source."""
    known = {name: (since, default) for name, (since, default) in COMPUTE.items()}
    known |= {name: (since, "") for name, since in LISTS.items()}
    rows = [
        (f"`{name}`", since, _source(name, default))
        for name, (since, default) in sorted(known.items(), key=lambda row: row[0].lower())
    ]
    versions = ", ".join(f"`{version}`" for version in INSTANCE_VERSIONS)
    return page(
        "Instance metadata",
        "`GET /metadata/instance?api-version=V` describes the calling VM in the public cloud's"
        " form.",
        "Every attribute that a version documents is present; an unknown one is empty.",
        "Set attributes without their own member of the topology in the VM's member `instance`, a"
        " table by the dotted names below.",
        "The service answers `GET /metadata/attested/document` with 404; the"
        " [emulator](../howto/emulator.md#read-an-attested-document) signs one with its own key.",
        "",
        f"Versions: {versions}.",
        "",
        "## compute",
        "",
        *table(("attribute", "since", "value"), rows),
        "",
        *_data_disks(),
        "## network",
        "",
        "One interface with the VM's addresses.",
        "A VM without an IPv4 address in the topology shows `privateIpAddress` of `instance`.",
        "`instance` may also set `macAddress` and `subnet`. By default the hardware address is"
        " made from the first IPv4 address (`0242` and its four bytes), and the subnet is a /24.",
    )


def _data_disks() -> tuple[str, ...]:
    """Return the section about data disks."""
    return (
        "## Data disks",
        "",
        "Each line of `storageProfile.dataDisks` is a disk; spaces separate its attributes:",
        "",
        "```toml",
        "[vms.db.instance]",
        '"storageProfile.dataDisks" = """',
        "lun=0 name=data diskSizeGB=128 managedDisk.storageAccountType=Premium_LRS",
        "lun=1 name=log diskSizeGB=32",
        '"""',
        "```",
        "",
        *table(
            ("attribute", "since", "default"),
            [
                (f"`{name}`", since, f"`{default}`" if default else "empty")
                for name, (since, default) in DATA_DISK.items()
            ],
        ),
        "",
    )


def _source(name: str, default: str) -> str:
    if name in FROM_THE_TOPOLOGY:
        return FROM_THE_TOPOLOGY[name]
    if name in SAME_AS:
        return f"`instance` (default: `{SAME_AS[name]}`)"
    return f"`instance` (default: `{default}`)" if default else "`instance`"
