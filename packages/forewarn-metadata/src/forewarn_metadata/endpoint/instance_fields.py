"""Attributes of instance metadata, each with its first api-version and default.

A VM's stored attributes have the same dotted names. Source: I-1, I-3. Versions:
https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service
"""

from __future__ import annotations

#: The api-versions of instance metadata, ascending: 35 of them. Source: I-3.
INSTANCE_VERSIONS = (
    *("2017-03-01", "2017-04-02", "2017-08-01", "2017-10-01", "2017-12-01"),
    *("2018-02-01", "2018-04-02", "2018-10-01"),
    *("2019-02-01", "2019-03-11", "2019-04-30", "2019-06-01", "2019-06-04"),
    *("2019-08-01", "2019-08-15", "2019-11-01"),
    *("2020-06-01", "2020-07-15", "2020-09-01", "2020-10-01", "2020-12-01"),
    *("2021-01-01", "2021-02-01", "2021-03-01", "2021-05-01", "2021-08-01", "2021-10-01"),
    *("2021-11-01", "2021-11-15", "2021-12-13"),
    *("2023-07-01", "2023-11-15"),
    *("2024-03-15", "2024-07-17", "2025-04-07"),
)

#: Default location of a VM, also in Azure Resource Manager.
DEFAULT_SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
DEFAULT_RESOURCE_GROUP = "default"

#: First version with a storage profile.
_DISK = "2019-06-01"

#: Attribute of `compute`, by its dotted name -> first version with it, and its default.
COMPUTE: dict[str, tuple[str, str]] = {
    "additionalCapabilities.hibernationEnabled": ("2021-11-01", "false"),
    "azEnvironment": ("2018-10-01", "AzurePublicCloud"),
    "customData": ("2019-02-01", ""),
    "evictionPolicy": ("2020-12-01", ""),
    "extendedLocation.name": ("2021-03-01", ""),
    "extendedLocation.type": ("2021-03-01", ""),
    "host.id": ("2021-11-15", ""),
    "hostGroup.id": ("2021-11-15", ""),
    "isHostCompatibilityLayerVm": ("2020-06-01", "false"),
    "licenseType": ("2020-09-01", ""),
    "location": ("2017-03-01", ""),
    "name": ("2017-03-01", ""),
    "offer": ("2017-03-01", ""),
    "osProfile.adminUsername": ("2020-07-15", ""),
    "osProfile.computerName": ("2020-07-15", ""),
    "osProfile.disablePasswordAuthentication": ("2020-10-01", ""),
    "osType": ("2017-03-01", ""),
    "physicalZone": ("2023-11-15", ""),
    "placementGroupId": ("2017-08-01", ""),
    "plan.name": ("2018-04-02", ""),
    "plan.product": ("2018-04-02", ""),
    "plan.publisher": ("2018-04-02", ""),
    "platformFaultDomain": ("2017-03-01", "0"),
    "platformSubFaultDomain": ("2021-10-01", ""),
    "platformUpdateDomain": ("2017-03-01", "0"),
    "priority": ("2020-12-01", ""),
    "provider": ("2018-10-01", "Microsoft.Compute"),
    "publisher": ("2017-03-01", ""),
    "resourceGroupName": ("2017-08-01", DEFAULT_RESOURCE_GROUP),
    "resourceId": ("2019-03-11", ""),
    "securityProfile.encryptionAtHost": ("2021-11-01", "false"),
    "securityProfile.secureBootEnabled": ("2020-06-01", "false"),
    "securityProfile.securityType": ("2021-12-13", ""),
    "securityProfile.virtualTpmEnabled": ("2020-06-01", "false"),
    "sku": ("2017-03-01", ""),
    "storageProfile.imageReference.id": (_DISK, ""),
    "storageProfile.imageReference.offer": (_DISK, ""),
    "storageProfile.imageReference.publisher": (_DISK, ""),
    "storageProfile.imageReference.sku": (_DISK, ""),
    "storageProfile.imageReference.version": (_DISK, ""),
    "storageProfile.osDisk.caching": (_DISK, "None"),
    "storageProfile.osDisk.createOption": (_DISK, "FromImage"),
    "storageProfile.osDisk.diffDiskSettings.option": (_DISK, ""),
    "storageProfile.osDisk.diskSizeGB": (_DISK, ""),
    "storageProfile.osDisk.encryptionSettings.enabled": (_DISK, "false"),
    "storageProfile.osDisk.image.uri": (_DISK, ""),
    "storageProfile.osDisk.managedDisk.id": (_DISK, ""),
    "storageProfile.osDisk.managedDisk.storageAccountType": (_DISK, ""),
    "storageProfile.osDisk.name": (_DISK, ""),
    "storageProfile.osDisk.osType": (_DISK, ""),
    "storageProfile.osDisk.vhd.uri": (_DISK, ""),
    "storageProfile.osDisk.writeAcceleratorEnabled": (_DISK, "false"),
    "storageProfile.resourceDisk.size": (_DISK, ""),
    "subscriptionId": ("2017-08-01", DEFAULT_SUBSCRIPTION),
    "tags": ("2017-08-01", ""),
    "userData": ("2021-01-01", ""),
    "version": ("2017-03-01", ""),
    "virtualMachineScaleSet.id": ("2021-03-01", ""),
    "vmId": ("2017-03-01", ""),
    "vmScaleSetName": ("2017-12-01", ""),
    "vmSize": ("2017-03-01", ""),
    "zone": ("2017-12-01", ""),
}

#: List in `compute`, by its dotted name -> first version with it; empty by default.
LISTS: dict[str, str] = {
    "publicKeys": "2018-04-02",
    "storageProfile.dataDisks": _DISK,
    "tagsList": "2019-06-04",
}

#: First version that distinguishes ultra disks from other disks.
_ULTRA = "2021-05-01"
#: Attribute of a data disk -> first version with it, and its default.
DATA_DISK: dict[str, tuple[str, str]] = {
    "bytesPerSecondThrottle": (_ULTRA, ""),
    "caching": (_DISK, "None"),
    "createOption": (_DISK, "Empty"),
    "diskCapacityBytes": (_ULTRA, ""),
    "diskSizeGB": (_DISK, ""),
    "image.uri": (_DISK, ""),
    "isSharedDisk": (_ULTRA, "false"),
    "isUltraDisk": (_ULTRA, "false"),
    "lun": (_DISK, ""),
    "managedDisk.id": (_DISK, ""),
    "managedDisk.storageAccountType": (_DISK, ""),
    "name": (_DISK, ""),
    "opsPerSecondThrottle": (_ULTRA, ""),
    "vhd.uri": (_DISK, ""),
    "writeAcceleratorEnabled": (_DISK, "false"),
}
_WORD = f"({'|'.join(DATA_DISK)})=[^ \\n]*".replace(".", r"\.")
_LINE = f"{_WORD}( {_WORD})*"
#: Form of data disks: one per line, with attributes as `NAME=VALUE` between spaces.
DATA_DISKS_PATTERN = f"({_LINE}(\\n{_LINE})*\\n?)?"

#: Attributes derived from other members of the topology.
FROM_TOPOLOGY = frozenset(
    {
        *("location", "name", "osType", "placementGroupId", "platformFaultDomain"),
        *("platformUpdateDomain", "resourceGroupName", "resourceId", "subscriptionId", "tags"),
        *("vmId", "vmScaleSetName", "vmSize", "zone"),
    }
)

#: Attributes that the member `instance` of a VM may set.
SETTABLE = tuple(name for name in COMPUTE if name not in FROM_TOPOLOGY)

#: Attribute -> the attribute that provides its default.
SAME_AS: dict[str, str] = {
    "osProfile.computerName": "name",
    "storageProfile.imageReference.offer": "offer",
    "storageProfile.imageReference.publisher": "publisher",
    "storageProfile.imageReference.sku": "sku",
    "storageProfile.imageReference.version": "version",
    "storageProfile.osDisk.osType": "osType",
}
