"""Writes the reference page of Azure Resource Manager: every path that is served."""

from __future__ import annotations

from forewarn.azure.app import every_route
from tools.docs.reference import page

# The lines of a document are sentences, as long as they are.
# ruff: noqa: E501
HEAD = """\
What Forewarn serves of Azure Resource Manager, for `az`, the SDK and other tools that can be pointed at an endpoint.
[Use az against the emulator](../howto/use-az.md) says how.

Any api-version is taken; one that is not known is answered like the newest, and logged once.
Paths are compared without case.
`HEAD` on every path of a `GET` answers 204 or 404.
A parameter of the query that would not be obeyed is refused with 400 `InvalidParameter`.
Errors have Azure's form, `{"error":{"code","message"}}`.
Work answers 202 with `Azure-AsyncOperation`, `Location` and `Retry-After`; it has succeeded when its scheduled event has ended.

What differs from Azure:

- `scheduledEventsProfile` and `scheduledEventsPolicy` belong to the availability set or scale set of a VM, and so to all of its VMs.
- Creating is bookkeeping: nothing makes a machine. The service refuses it, as it refuses `powerOff`, `deallocate`, `start` and `reapply`, which no driver carries out; the emulator books them.
- No resource has an ETag. `If-None-Match: *` of a `PUT` creates only and `If-Match: *` changes only; any other condition of a change is refused with 412 `PreconditionFailed`.
- A `PUT` or `PATCH` may repeat what is shown. What it says besides is carried out (tags, size, priority, image, user, eviction policy, zone of a new VM, `scheduledEventsProfile` and `-Policy`), or kept and shown again by the emulator (network interfaces, disks, protection policy and the like), or refused with 409 `OperationNotAllowed`, which names it. The service keeps nothing that it would not carry out. Passwords are never shown.
- Power states, what is merely kept, empty resource groups and which empty sets were deleted are forgotten when the process ends.
- Instances have the model of their scale set always; upgrades that roll an image out are refused with 409 `OperationNotAllowed`.
- A deleted VM stays away in the emulator, while one deleted by `forewarn vm delete` comes back after a minute.
- Resource Graph has one table, `maintenanceresources`, with the live scheduled events; those that have ended are in [history](../howto/deliver-transitions.md). Queries have `where` (`==`, `=~`, `!=`, `!~`, `and`), `project`, `sort by`, `take` and `count`.
- Event Grid's events come from an [`event-grid` destination](../howto/deliver-transitions.md#azures-consumers).

`{group}` is `/subscriptions/{subscription}/resourceGroups/{resource_group}`, and `{compute}` is `providers/Microsoft.Compute`.

"""


def azure_page() -> str:
    """Return the page; routes that do the same share a row."""
    routes: dict[str, list[str]] = {}
    for each in every_route():
        path = each.path.replace(
            "/subscriptions/{subscription}/resourceGroups/{resource_group}/", "{group}/"
        )
        path = path.replace("providers/Microsoft.Compute", "{compute}")
        routes.setdefault(each.summary, []).append(f"`{each.method} {path}`")
    rows = [f"- {', '.join(paths)}: {summary}" for summary, paths in routes.items()]
    return page("Azure Resource Manager", HEAD + "\n".join(rows))
