"""The audit record of one call, written with its change or after its response. Source: P-7."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from forewarn_base.audit_chain import CallRecord
from forewarn_base.errors import ForewarnError
from forewarn_base.validation.fields import Values
from forewarn_base.values import replace
from forewarn_core.access.roles import Authority
from forewarn_server.api.auth import NotPermitted
from forewarn_server.api.connections import SAFE
from forewarn_server.control.readable import ReadableControl

#: Longest description of a request, in characters.
REQUEST_LENGTH_MAX = 256


class CallAudit:
    """Writes the audit record of a call, in the transaction of a change or after the response."""

    def __init__(self, loop: ReadableControl, record: CallRecord) -> None:
        self._loop = loop
        self.record = record
        #: Whether a change has been committed with the record.
        self.written = False
        #: Whether the call only shows what would change: no record unless it is refused.
        self.preview = False
        #: Whether a call without a commit is recorded; None: not decided yet.
        self._may_record: bool | None = None

    def name_objects(self, form: Values) -> None:
        """Set the objects of the call from its body."""
        named = form.get("targets") or form.get("hosts") or form.get("principal")
        if named:
            text = (
                named if isinstance(named, str) else ", ".join(map(str, named[:REQUEST_LENGTH_MAX]))
            )
            self.record = replace(self.record, object=text[:REQUEST_LENGTH_MAX])

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Write the record after the call, unless the change's transaction wrote it."""
        try:
            yield
        except ForewarnError as error:
            self.record = replace(self.record, outcome=error.code)
            if (self._changes or isinstance(error, NotPermitted)) and self.is_stored:
                self._loop.record(self.record)
            raise
        if self._changes and not self.written and not self.preview and self.is_stored:
            self._loop.record(self.record)

    @property
    def is_stored(self) -> bool:
        """Whether the call's record is stored: with a change, or within its principal's limit."""
        if self._may_record is None:
            self._may_record = self.written or self._loop.may_record(self.record)
        return self._may_record

    @property
    def _changes(self) -> bool:
        """Whether the call changes something; history records the reports of drivers."""
        changes = self.record.request.partition(" ")[0] not in SAFE
        return changes and bool(self.record.principal)


def call_record(
    now_ms: int, caller: Authority, address: str, *, method: str, path: str
) -> CallRecord:
    """Return the audit record of a call; the path names the object."""
    request = f"{method} {path}"[:REQUEST_LENGTH_MAX]
    named = (path.split("/")[3:4] or [""])[0][:REQUEST_LENGTH_MAX]
    return CallRecord(now_ms, caller.principal, address, request, named, token=caller.token)
