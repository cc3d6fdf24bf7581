"""The mark of a server's current task, in the server's metadata (signed) and in the store.

A mark contains the ids of Nova's newest records of the server before the task. Later records belong
to the task, so that a restarted driver does not repeat this work. Source: R-2.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from forewarn_base.values import value
from forewarn_drivers.task_records import WHOLE, TaskRecords
from forewarn_openstack.client import Nova, NovaBusy

#: Metadata key of the mark, which the server's project can read and delete.
KEY = "forewarn"
#: Characters of the stored signature: 128 bits.
SIGNATURE_LENGTH = 32
#: Placeholder if the server has no action.
NONE = "-"


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


@value
class ServerMark:
    """The task that works on a server, and the server's state before the task."""

    #: `op-12@`, the operation's creation time, and the last successful attempt.
    operation: str
    attempt: int
    generation: int
    #: Whether the server was active before the task.
    ran: bool
    #: Id of the server's newest migration before the task; 0: none.
    migration: int
    #: Request id of the server's newest action before the task.
    action: str

    @property
    def text(self) -> str:
        """The mark as text."""
        numbers = (self.attempt, self.generation, int(self.ran), self.migration)
        return " ".join((self.operation, *map(str, numbers), self.action))


def read_mark(text: str) -> ServerMark | None:
    """Return the mark in a text; None if it is not a mark."""
    try:
        operation, attempt, generation, ran, migration, action = text.split(" ")
        return ServerMark(
            operation, int(attempt), int(generation), ran == "1", int(migration), action
        )
    except ValueError:
        return None


class ServerMarks:
    """The marks of a cloud's servers."""

    def __init__(self, nova: Nova, records: TaskRecords) -> None:
        self._nova = nova
        self._records = records

    def read(self, server: Server, operation: str) -> ServerMark | None:
        """Return the newest mark of an operation on a server, or None."""
        kept = self._records.note(WHOLE, WHOLE, server.id)
        marks = [self._signed(server), read_mark(kept or "")]
        own = [each for each in marks if each is not None and each.operation == operation]
        return max(own, key=lambda each: (each.attempt, each.generation), default=None)

    def put(self, server: Server, mark: ServerMark) -> None:
        """Mark a server, before any work on it.

        Nova refuses metadata for a server in error or during another action. In this case, only the
        store contains the mark.
        """
        self._records.put(WHOLE, WHOLE, {server.id: mark.text})
        signed = f"{mark.text} {self._signature(server, mark.text)}"
        with suppress(NovaBusy):
            self._nova.post(f"/servers/{server.id}/metadata", {"metadata": {KEY: signed}})

    def forget(self, server_id: str) -> None:
        """Delete the mark of a deleted server."""
        self._records.drop(WHOLE, WHOLE, server_id)

    def _signed(self, server: Server) -> ServerMark | None:
        text, _, signature = server.metadata.get(KEY, "").rpartition(" ")
        right = self._signature(server, text)
        return read_mark(text) if hmac.compare_digest(right.encode(), signature.encode()) else None

    def _signature(self, server: Server, text: str) -> str:
        """Return the signature of a mark; projects cannot forge signatures."""
        signed_text = f"forewarn-mark:{server.id}:{text}".encode()
        return hmac.digest(self._nova.secret, signed_text, "sha256").hex()[:SIGNATURE_LENGTH]
