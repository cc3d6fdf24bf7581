"""Writes the reference page of Azure Resource Manager with every supported path."""

from __future__ import annotations

from forewarn_azure.app import every_route
from forewarn_core.access.roles import Permission
from tools.docs.reference import page

# Each line of a document is a sentence of any length.
# ruff: noqa: E501
HEAD = """\
Forewarn serves these requests of Azure Resource Manager to `az`, the SDK and other tools with a configurable endpoint; [use az against the emulator](../howto/use-az.md).

Every api-version is accepted; an unknown one is answered like the newest, and logged once.
The case of paths does not matter.
`HEAD` on every path of a `GET` answers 204 or 404.
A query parameter that Forewarn does not support is refused with 400 `InvalidParameter`.
Errors have Azure's form, `{"error":{"code","message"}}`.
Requests for work are answered 202 with `Azure-AsyncOperation`, `Location` and `Retry-After`; they succeed when their scheduled event has ended.

Differences from Azure:

- `scheduledEventsProfile` and `scheduledEventsPolicy` belong to the availability set or scale set of a VM, and so to all of its VMs.
- With `enable: false`, `notBeforeTimeout` and `scheduledEventsApiVersion` are checked, stored and shown; without a stored value, the default is shown. In a notification profile or in `eventGridAndResourceGraph`, a `PATCH` keeps omitted members, and a `PUT` sets them to their defaults. Forewarn's own API and topology files neither show nor change the stored values.
- Creating a VM makes no machine. The service refuses it, and also `powerOff`, `deallocate`, `start` and `reapply`, which no driver carries out; the emulator only records them.
- No resource has an ETag. `If-None-Match: *` of a `PUT` creates only and `If-Match: *` changes only; any other condition of a change is refused with 412 `PreconditionFailed`.
- A `PUT` or `PATCH` may repeat present values. Forewarn applies new values of tags, size, priority, image, user, eviction policy, zone of a new VM, `scheduledEventsProfile` and `scheduledEventsPolicy`. The emulator stores some others without effect (network interfaces, disks, protection policy and the like), which the service refuses. All other values are refused with 409 `OperationNotAllowed`, which names them. Passwords are never shown.
- Power states, values without effect, empty resource groups and deletions of empty sets are lost when the process ends.
- Instances always have the model of their scale set; upgrades that roll out an image are refused with 409 `OperationNotAllowed`.
- In the emulator a VM deleted through Azure stays away; after `forewarn vm delete` it comes back after a minute.
- A maintenance configuration is a [window](policy.md#windows-windowsname) of the policy: scope `Host`, with every recurrence that Azure documents; without a duration it lasts 05:00. An assignment has its configuration's name and holds for the VM's whole group; maintenance may then use the window on the hosts with VMs of that group. Anything else is refused.
- Resource Graph has one table, `maintenanceresources`, with the live scheduled events; past ones are in [history](../howto/deliver-transitions.md). A group shows its events there and in Event Grid unless `scheduledEventsAdditionalPublishingTargets` says otherwise.
- Event Grid's events come from an [`event-grid` destination](../howto/deliver-transitions.md#azures-consumers).

The permission that a request needs stands behind it, unless it is `read`.
`{group}` is `/subscriptions/{subscription}/resourceGroups/{resource_group}`, and `{compute}` is `providers/Microsoft.Compute`.

"""


def azure_page() -> str:
    """Return the page; routes with the same effect share a row."""
    routes: dict[tuple[str, str, str], list[str]] = {}
    for each in every_route():
        path = each.path.replace(
            "/subscriptions/{subscription}/resourceGroups/{resource_group}/", "{group}/"
        )
        path = path.replace("providers/Microsoft.Compute", "{compute}")
        permission = "" if each.permission is Permission.READ else f" ({each.permission.value})"
        routes.setdefault((each.method, permission, each.summary), []).append(f"`{path}`")
    rows = [
        f"- {method} {', '.join(paths)}{permission}: {summary}"
        for (method, permission, summary), paths in routes.items()
    ]
    return page("Azure Resource Manager", HEAD + "\n".join(rows))
