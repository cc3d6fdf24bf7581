"""A server, its actions and its migrations, as Nova's API reports them.

Nothing is changed and nobody is asked from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Mapping

#: States of a server.
ACTIVE, SHUTOFF, PAUSED, ERROR = "ACTIVE", "SHUTOFF", "PAUSED", "ERROR"
VERIFY_RESIZE = "VERIFY_RESIZE"
GONE = frozenset({"DELETED", "SOFT_DELETED"})
#: States of a migration that is over and has not moved its server.
FAILED = frozenset({"error", "failed", "cancelled", "reverted"})


@value
class Server:
    """One server."""

    id: str
    name: str
    #: Its compute host; empty if it is on none.
    host: str
    status: str
    #: What Nova does with it right now; empty: nothing.
    task: str
    metadata: Mapping[str, str]
    #: Id of its image; empty if it boots from a volume.
    image: str
    #: Why it is in error; empty if it is not.
    fault: str


@value
class Action:
    """One entry of what was done to a server."""

    request: str
    name: str
    #: Id of the user who asked; empty if that was Nova.
    user: str


def server_of(form: Mapping[str, Any]) -> Server:
    """Return a server from Nova's JSON."""
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
    """Return what was done to a server, the newest first, from Nova's JSON."""
    listed = sorted(form["instanceActions"], key=lambda each: each["start_time"], reverse=True)
    return [Action(each["request_id"], each["action"], each["user_id"] or "") for each in listed]
