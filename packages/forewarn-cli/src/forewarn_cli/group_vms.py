"""The VMs of an owner, of a group, or of groups without notice, for the filters of lists."""

from __future__ import annotations

from forewarn_server.cli.api_client import ApiClient, part
from forewarn_server.cli.listing import records


def vms_of_groups(
    client: ApiClient, *, owner: str | None = None, group: str | None = None, silent: bool = False
) -> set[str | None]:
    """Return the names of the VMs of all groups that match.

    Args:
        client: the client of the server.
        owner: only groups of this owner.
        group: only this group.
        silent: only groups without notice, because none of their VMs polls.

    Raises:
        ApiRefused: the group is unknown.
    """
    if group:
        groups = [client.get(f"/v1/groups/{part(group)}")]
    else:
        groups = list(records(client, "/v1/groups", "groups", enabled="false" if silent else None))
    return {
        vm
        for each in groups
        if (not owner or each["owner"] == owner) and not (silent and each["enabled"])
        for vm in each["vms"]
    }
