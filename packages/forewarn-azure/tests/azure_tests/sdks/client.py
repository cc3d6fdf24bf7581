"""What a user does with Azure's SDK for Python: `client.py ARM SUBSCRIPTION GROUP`.

Prints the VMs before and after, or how many seconds a credential takes to find no identity.
"""

import json
import sys
import time

from azure.core.exceptions import ClientAuthenticationError
from azure.identity import DefaultAzureCredential
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.compute.models import Sku, VirtualMachineScaleSetUpdate

arm, subscription, group = sys.argv[1:]
scope = f"{arm}/.default"
credential = DefaultAzureCredential()
taken_s = 0.0
for _ in range(2):  # the first one also loads code
    began = time.monotonic()
    try:
        credential.get_token(scope)
    except ClientAuthenticationError:
        taken_s = time.monotonic() - began
if taken_s:
    print(json.dumps({"no_identity_s": taken_s}))
    sys.exit()

compute = ComputeManagementClient(credential, subscription, base_url=arm, credential_scopes=[scope])
vms, sets = compute.virtual_machines, compute.virtual_machine_scale_sets
instances = compute.virtual_machine_scale_set_vms


def names() -> list[str]:
    """Return the names of VMs and instances."""
    found = [*vms.list(group), *instances.list(group, "web")]
    return sorted(str(each.name) for each in found)


before = names()
vms.begin_restart(group, "db").result()
vms.begin_redeploy(group, "db").result()
vms.simulate_eviction(group, "spot")
sets.begin_update(group, "web", VirtualMachineScaleSetUpdate(sku=Sku(capacity=3))).result()
instances.begin_restart(group, "web", "1").result()
instances.begin_redeploy(group, "web", "1").result()
instances.simulate_eviction(group, "web", "0")
instances.begin_delete(group, "web", "1").result()
vms.begin_delete(group, "db").result()
print(json.dumps({"before": before, "after": names()}))
