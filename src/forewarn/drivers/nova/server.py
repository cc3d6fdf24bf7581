"""Values from Nova's API: servers and their actions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Mapping

#: States of a server.
ACTIVE, SHUTOFF, PAUSED, ERROR = "ACTIVE", "SHUTOFF", "PAUSED", "ERROR"
VERIFY_RESIZE = "VERIFY_RESIZE"
GONE = frozenset({"DELETED", "SOFT_DELETED"})
#: States of a failed or cancelled migration.
FAILED = frozenset({"error", "failed", "cancelled", "reverted"})


@value
class Server:
    """One server."""

    id: str
    name: str
    #: Compute host of the server; empty: none.
    host: str
    status: str
    #: Nova's current task on the server; empty: none.
    task: str
    metadata: Mapping[str, str]
    #: Id of the server's image; empty for boots from a volume.
    image: str
    #: Reason of the server's error state; empty: no error.
    fault: str


@value
class Action:
    """One entry in a server's list of actions."""

    request: str
    name: str
    #: Id of the requesting user; empty: Nova.
    user: str


def server_of(form: Mapping[str, Any]) -> Server:
    """Parse a server from Nova's JSON."""
    image = form.get("image") or {}
    return Server(
        id=form["id"],
        name=form["name"],
        host=form.get("OS-EXT-SRV-ATTR:host") or "",
        status=form["status"],
        task=form.get("OS-EXT-STS:task_state") or "",
        metadata=form.get("metadata", {}),
        image=image.get("id", ""),
        fault=form.get("fault", {}).get("message", ""),
    )


def actions_of(form: Mapping[str, Any]) -> list[Action]:
    """Parse a server's actions from Nova's JSON, newest first."""
    listed = sorted(form["instanceActions"], key=lambda each: each["start_time"], reverse=True)
    return [Action(each["request_id"], each["action"], each["user_id"] or "") for each in listed]
