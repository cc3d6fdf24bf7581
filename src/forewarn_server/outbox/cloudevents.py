"""Conversion of each entry of history into a CloudEvent 1.0 with the same number.

All data come from history, so that an event describes the state at the time of its entry. The sinks
send the events.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

from forewarn_base.audit_chain import head_of
from forewarn_base.protocol.timestamps import iso8601
from forewarn_base.protocol.versions import VERSIONS
from forewarn_base.values import replace
from forewarn_core.access.roles import actor_for_owner
from forewarn_core.fleet.actions import ACTIONS
from forewarn_core.fleet.lifecycle import Event, Operation
from forewarn_core.fleet.outcomes import EventOutcome
from forewarn_core.fleet.records import Columns, from_row, to_row
from forewarn_core.fleet.state import Entry, Image
from forewarn_server.outbox.declared_events import DeclaredEvents
from forewarn_store import HistoryPage, Recorded, Store
from forewarn_store.audit import AuditEntry

#: A CloudEvent as a JSON object.
CloudEvent: TypeAlias = dict[str, Any]
_Rows: TypeAlias = "dict[tuple[str, str | int], Columns]"

#: Media types of one event and of a batch.
MEDIA, BATCH_MEDIA = "application/cloudevents+json", "application/cloudevents-batch+json"
#: Prefix of all event types.
TYPE_PREFIX = "forewarn."
#: Type of the event that replaces entries deleted from history.
GAP = "outbox.gap"
#: Action of the event with the audit's head, sent only if named in `include`.
AUDIT_HEAD = "audit.head"
#: Most operations with cached records.
CACHED_OPERATIONS_MAX = 1024
#: Entries of one operation read at a time.
PAGE = 1000


class EventMaker:
    """Creates the events of one destination.

    Cost: O(entry); for the first entry of an uncached operation, also O(operation's history).
    """

    def __init__(self, store: Store, source: str = "") -> None:
        """Set the store and the events' `source`; empty: derived from the store's epoch."""
        self._store = store
        self._declared = DeclaredEvents(store)
        self._source = source or f"/forewarn/{store.epoch}"
        #: Cached operations, each with its last processed entry, and its records after this entry.
        self._known: OrderedDict[int, tuple[int, _Rows]] = OrderedDict()

    def is_declared_to(self, recorded: Recorded, owner: str) -> bool:
        """Whether an entry shows an owner something of a declared maintenance. Source: T-1."""
        return self._declared.form(recorded.entry, owner) is not None

    def make(
        self, recorded: Recorded, groups: Collection[str] | None = None, owner: str = ""
    ) -> CloudEvent:
        """Return the event of an entry, limited to data that the owner of `groups` may read.

        With `groups` None, the event contains all data. The function raises a `ForewarnError` if
        the store cannot be read.
        """
        entry = recorded.entry
        data: CloudEvent = {
            "sequence": recorded.seq,
            "action": entry.action,
            "actor": entry.actor,
            "text": entry.text,
            "group": entry.group,
            "vm": entry.vm,
            "host": entry.host,
        }
        if entry.operation:
            rows = self._rows_at(recorded)
            touched = [i.key for i in entry.images if i.kind == "event" and i.row is not None]
            if entry.event and entry.event not in touched:
                touched.append(entry.event)
            operation = rows.get(("operation", entry.operation))
            events = [rows[place] for each in touched if (place := ("event", each)) in rows]
            data["operation"] = _operation(operation) if operation else None
            data["events"] = [self._event_form(each, operation) for each in events]
            if groups is not None:
                _narrow(data, entry, rows, groups)
        ticket = next((i.row for i in entry.images if i.kind == "ticket"), None)
        if ticket is not None and groups is None:
            data["ticket"] = _ticket(ticket)
        declaration = self._declared.form(entry, owner)
        if declaration is not None:
            data["declaration"] = declaration
            if groups is not None:
                data["actor"] = actor_for_owner(entry.actor, ())
                data["text"] = f"{declaration['id']}: {ACTIONS[entry.action]}"
        return self._event(recorded.seq, entry, data)

    def gap(self, first: int, last: int, at_ms: int) -> CloudEvent:
        """Return the event about entries that were removed before their delivery."""
        text = f"history {first} to {last} was removed before its delivery; see the export"
        data = {"sequence": last, "first": first, "last": last, "action": GAP, "text": text}
        return {**self._head(last, at_ms), "type": TYPE_PREFIX + GAP, "data": data}

    def head(self, newest: AuditEntry) -> CloudEvent:
        """Return the event with the signed head of the audit."""
        head = head_of(newest.seq, newest.digest)
        data = {
            "sequence": newest.seq,
            "action": AUDIT_HEAD,
            "text": f"the head of the audit is {head}",
            "head": head,
            "signature": newest.signature,
        }
        event = {**self._head(newest.seq, newest.record.at_ms), "type": TYPE_PREFIX + AUDIT_HEAD}
        return {**event, "id": f"audit-{newest.seq}", "data": data}

    def _event(self, seq: int, entry: Entry, data: Mapping[str, object]) -> CloudEvent:
        operation = f"op-{entry.operation}" if entry.operation else ""
        subject = entry.event or operation or entry.vm or entry.group or entry.host
        event = {**self._head(seq, entry.at_ms), "type": TYPE_PREFIX + entry.action}
        if subject:
            event["subject"] = subject
        return {**event, "data": data}

    def _event_form(self, row: Columns, operation: Columns | None) -> dict[str, object]:
        group = self._store.group(str(row["group"]))
        return {**_event(row, operation), "published": group.published if group else VERSIONS[-1]}

    def _head(self, seq: int, at_ms: int) -> CloudEvent:
        number = f"{seq:012}"
        return {
            "specversion": "1.0",
            "id": number,
            "source": self._source,
            "time": iso8601(at_ms),
            "datacontenttype": "application/json",
            "sequence": number,
        }

    def _rows_at(self, recorded: Recorded) -> _Rows:
        """Return the records of an entry's operation after that entry."""
        number = recorded.entry.operation
        seq, rows = self._known.pop(number, (0, {}))
        if not rows or seq >= recorded.seq:
            rows = self._replay(number, recorded.seq)
        _apply(rows, recorded.entry.images)
        self._known[number] = recorded.seq, rows
        if len(self._known) > CACHED_OPERATIONS_MAX:
            self._known.popitem(last=False)
        return rows

    def _replay(self, number: int, before: int) -> _Rows:
        """Return the records of an operation before an entry, from history."""
        rows: _Rows = {}
        operation = self._store.operation(number)
        if operation is not None:  # a later record contains the effects of the removed history
            rows["operation", number] = to_row(operation)
            for event in self._store.events_of(number):
                rows["event", event.id] = to_row(event)
        page = HistoryPage(operation=number, before=before, limit=PAGE, images=True)
        while entries := self._store.history(page):
            for recorded in entries:
                _apply(rows, recorded.entry.images)
            page = replace(page, after=entries[-1].seq)
        return rows


def _narrow(data: CloudEvent, entry: Entry, rows: _Rows, groups: Collection[str]) -> None:
    """Remove data that the owner of `groups` may not read."""
    own: set[str] = set()
    for (kind, _), row in rows.items():
        if kind == "event" and row["group"] in groups:
            own.update(json.loads(str(row["resources"])))
    data["actor"] = actor_for_owner(entry.actor, own)
    data["events"] = [each for each in data["events"] if each["group"] in groups]
    if not entry.group:
        data["text"] = f"op-{entry.operation}: {ACTIONS[entry.action]}"
        data["vm"] = entry.vm if entry.vm in own else ""
    operation = data["operation"]
    if operation and not own.issuperset(operation["vms"]):
        operation["vms"] = [each for each in operation["vms"] if each in own]
        operation["reason"] = ""


def body_of(events: Sequence[CloudEvent], *, batch: bool) -> bytes:
    """Return the body of a request: a list of events, or without `batch`, the only event."""
    assert batch or len(events) == 1, len(events)
    return json.dumps(list(events) if batch else events[0], ensure_ascii=False).encode()


def _apply(rows: _Rows, images: Sequence[Image]) -> None:
    for image in images:
        if image.kind in {"operation", "event"} and image.row is not None:
            place = image.kind, image.key
            rows[place] = {**rows.get(place, {}), **image.row}


def _ticket(row: Columns) -> dict[str, object]:
    """Return a ticket as another ticket system needs it; images of tickets are complete."""
    names = ("type", "state", "target_kind", "target", "category", "description", "evidence")
    form: dict[str, object] = {"id": f"t-{row['number']}"}
    form |= {name: row[name] for name in (*names, "action", "external")}
    form["owners"] = json.loads(str(row["owners"]))
    for name in ("opened", "updated", "closed", "due"):
        at_ms = int(row[f"{name}_ms"])
        form[name] = iso8601(at_ms) if at_ms else None
    return form


def _operation(row: Columns) -> dict[str, object]:
    maintenance, not_before_ms = row.get("maintenance", 0), int(row["not_before_ms"])
    return {
        "id": f"op-{row['number']}",
        "cause": row["cause"],
        "impact": row["impact"],
        "source": row["source"],
        "state": row["state"],
        "host": row["host"],
        "vms": json.loads(str(row["vms"])),
        "description": row["description"],
        "duration_s": row["duration_s"],
        "notice_s": row["notice_s"],
        "not_before": iso8601(not_before_ms) if not_before_ms else None,
        "maintenance": f"m-{maintenance}" if maintenance else None,
        "reason": row["reason"],
    }


def _event(row: Columns, operation: Columns | None) -> dict[str, object]:
    """Return an event from its stored row; an ended event includes its outcome. Source: X-1."""
    event = from_row("event", row)
    assert isinstance(event, Event)
    outcome = None
    if operation and not event.live:
        work = from_row("operation", operation)
        assert isinstance(work, Operation)
        outcome = EventOutcome(event, work).form()
    return {
        "id": event.id,
        "group": event.group,
        "resources": list(event.resources),
        "state": event.state.value,
        "outcome": outcome,
    }
