"""The mark of the task that is done to a server: kept in its metadata, signed, and in the store.

It says what Nova had recorded of the server before: what came after it is the task's own work, and
is not done again by a driver that starts after a crash, on this machine or another. Source: R-2.
"""

from __future__ import annotations

import hmac
from contextlib import suppress
from typing import TYPE_CHECKING

from forewarn.drivers.nova.client import NovaBusy
from forewarn.drivers.task_records import WHOLE
from forewarn.values import value

if TYPE_CHECKING:
    from forewarn.drivers.nova.client import Nova
    from forewarn.drivers.nova.server import Server
    from forewarn.drivers.task_records import TaskRecords

#: The member of a server's metadata that holds the mark. Its project can read and delete it.
KEY = "forewarn"
#: Characters of the signature that are kept: 128 bits.
SIGNATURE_LENGTH = 32
#: In place of an action where the server has none.
NONE = "-"


@value
class ServerMark:
    """Which task works on a server, and what had happened to the server before it."""

    #: `op-12@`, when it was asked for, and the last attempt that ended well.
    operation: str
    attempt: int
    generation: int
    #: Whether the server was active.
    ran: bool
    #: Id of its newest migration; 0 if it had none.
    migration: int
    #: Request id of its newest action.
    action: str

    @property
    def text(self) -> str:
        """What is kept of it."""
        numbers = (self.attempt, self.generation, int(self.ran), self.migration)
        return " ".join((self.operation, *map(str, numbers), self.action))


def read_mark(text: str) -> ServerMark | None:
    """Return the mark that a text holds; None if that is not one."""
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
        """Read nothing yet."""
        self._nova = nova
        self._records = records

    def read(self, server: Server, operation: str) -> ServerMark | None:
        """Return the newest mark of an operation; None if the server has none of it."""
        kept = self._records.note(WHOLE, WHOLE, server.id)
        marks = [self._signed(server), read_mark(kept or "")]
        own = [each for each in marks if each is not None and each.operation == operation]
        return max(own, key=lambda each: (each.attempt, each.generation), default=None)

    def put(self, server: Server, mark: ServerMark) -> None:
        """Mark a server, before anything is done to it.

        Nova takes no metadata of a server in error or in the middle of something: then the store
        alone holds it.
        """
        self._records.put(WHOLE, WHOLE, {server.id: mark.text})
        signed = f"{mark.text} {self._signature(server, mark.text)}"
        with suppress(NovaBusy):
            self._nova.post(f"/servers/{server.id}/metadata", {"metadata": {KEY: signed}})

    def forget(self, server_id: str) -> None:
        """Forget a server that is gone."""
        self._records.drop(WHOLE, WHOLE, server_id)

    def _signed(self, server: Server) -> ServerMark | None:
        text, _, signature = server.metadata.get(KEY, "").rpartition(" ")
        right = self._signature(server, text)
        return read_mark(text) if hmac.compare_digest(right.encode(), signature.encode()) else None

    def _signature(self, server: Server, text: str) -> str:
        """Return what no project can make up: it could call off the maintenance of its hosts."""
        signed_text = f"forewarn-mark:{server.id}:{text}".encode()
        return hmac.digest(self._nova.secret, signed_text, "sha256").hex()[:SIGNATURE_LENGTH]
