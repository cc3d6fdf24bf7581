"""The maintenance window of each host's work, and the incident when one overruns.

All operations of the work on a host share one window: the move of its VMs, the work, and the VMs'
return. The window is planned with the announcement, opens with the first start, and ends with the
last operation. Only an open window can overrun, and a pause stops no clock. Source: T-5.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from forewarn_base.protocol.timestamps import duration_text, iso8601
from forewarn_base.values import replace
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.durations import host_s, span_s
from forewarn_core.fleet.impact import SECOND_MS, TRAITS, Source
from forewarn_core.fleet.lifecycle import FollowedBy, MaintenanceWindow, Operation, OperationState
from forewarn_core.fleet.ticket import (
    TEXTS_MAX,
    Ticket,
    TicketMove,
    TicketTarget,
    TicketText,
    TicketType,
    move_ticket,
)
from forewarn_core.fleet.usage import disturbed_owners

#: Label of a host with the serial number of its hardware. Source: T-10.
SERIAL = "serial"
#: When a window has passed its planned close, in ms after it.
PASSED_MS = 1


def with_window(draft: Draft, operation: Operation) -> Operation:
    """Return announced work with its planned window; a user's own work and a failure have none."""
    has_window = operation.source is Source.PLATFORM and not operation.of_vm
    if operation.window.opened_ms or not has_window or TRAITS[operation.cause].fault:
        return operation
    open_ms = operation.not_before_ms
    close_ms = open_ms + _length_s(draft, operation) * SECOND_MS
    return replace(operation, window=MaintenanceWindow(open_ms, close_ms))


def opened(draft: Draft, operation: Operation) -> Operation:
    """Return starting work with its window open; the late start of all work moves its close."""
    window = operation.window
    if window.planned_open_ms is None or window.opened_ms:
        return operation
    assert window.planned_close_ms is not None, operation
    close_ms = window.planned_close_ms + max(0, draft.now_ms - window.planned_open_ms)
    window = replace(window, planned_close_ms=close_ms, opened_ms=draft.now_ms)
    return replace(operation, window=window)


def check_windows(draft: Draft) -> None:
    """Open an incident for each open window whose planned close has passed; O(those windows).

    Work that ends at its planned close is in time.
    """
    for number in draft.state.closes.due(draft.now_ms - PASSED_MS):
        operation = draft.operation(number)
        assert operation is not None, "ended work has no deadline"
        if operation.closes_ms is not None:  # other work in the window may have its incident
            _open_incident(draft, operation)


def with_overrun(draft: Draft, operation: Operation) -> Operation:
    """Return work that is about to end, with the incident of an overrun that no tick has seen."""
    closes_ms = operation.closes_ms
    if closes_ms is None or closes_ms >= draft.now_ms:
        return operation
    _open_incident(draft, operation)
    return replace(operation, window=draft.state.operations[operation.number].window)


def _open_incident(draft: Draft, operation: Operation) -> None:
    close_ms, host = operation.window.planned_close_ms, operation.window_host
    assert close_ms is not None, operation
    shared = list(_in_window(draft, operation))
    description = f"the maintenance window was to close at {iso8601(close_ms)}"
    ticket = _incident(draft, operation, shared, description)
    several = [
        replace(each, window=replace(each.window, incident=ticket.number)) for each in shared
    ]
    text = f"{ticket.id}: the maintenance window of host {host} has passed its planned close"
    draft.put("ticket.opened", text, ticket, *several)


def window_left(draft: Draft, ended: Operation) -> None:
    """Close the incident of a window when the last operation in it has ended."""
    ticket = draft.state.tickets.get(ended.window.incident)
    if ticket is None or any(True for _ in _in_window(draft, ended)):
        return
    close_ms = ended.window.planned_close_ms
    assert close_ms is not None, ended
    overrun_s = (draft.now_ms - close_ms) // SECOND_MS
    _close(draft, ticket, f"the work ended {duration_text(overrun_s)} after the planned close")


def open_incident(draft: Draft, operation: Operation, description: str) -> None:
    """Open an incident about running work, which closes when the work ends.

    If one is open, the description becomes a further text of it; O(live tickets).
    """
    for incident in _incidents_of(draft, operation):
        if len(incident.texts) < TEXTS_MAX:
            entry = TicketText(draft.now_ms, draft.actor, f"{description} once more")
            more = replace(incident, texts=(*incident.texts, entry), updated_ms=draft.now_ms)
            draft.put("ticket.answered", f"{incident.id}: {entry.text}", more)
        return
    ticket = _incident(draft, operation, (operation,), description)
    draft.put("ticket.opened", f"{ticket.id}: host {ticket.host}: {description}", ticket)


def close_incidents(draft: Draft, ended: Operation) -> None:
    """Close the incidents about ended work, apart from its window's; O(live tickets)."""
    how = "has failed" if ended.state is OperationState.FAILED else "has ended"
    action = f"{ended.id} {how}" + (f": {ended.reason}" if ended.reason else "")
    for ticket in _incidents_of(draft, ended):
        _close(draft, ticket, action)


def _incidents_of(draft: Draft, operation: Operation) -> tuple[Ticket, ...]:
    """Return the open incidents about an operation, apart from its window's."""
    return tuple(
        each
        for each in draft.state.tickets.values()
        if each.type is TicketType.INCIDENT
        and each.operation == operation.number
        and each.number != operation.window.incident
    )


def _close(draft: Draft, ticket: Ticket, action: str) -> None:
    closed = replace(move_ticket(ticket, TicketMove.CLOSE, draft.now_ms), action=action)
    entry = TicketText(draft.now_ms, draft.actor, action)
    closed = replace(closed, texts=(*closed.texts, entry))
    draft.put("ticket.closed", f"{closed.id} is closed: {action}", closed)


def _incident(
    draft: Draft, operation: Operation, shared: Iterable[Operation], description: str
) -> Ticket:
    """Return a new incident about an operation, for the owners of all work in its window."""
    host = operation.window_host
    owners = {name for each in shared for name in disturbed_owners(each, draft.topology)}
    return Ticket(
        draft.next_number(),
        TicketType.INCIDENT,
        TicketTarget.HOST,
        host,
        opened_ms=draft.now_ms,
        updated_ms=draft.now_ms,
        owners=tuple(sorted(owners - {""})),
        host=host,
        serial=serial_of(draft, host),
        description=description,
        operation=operation.number,
        maintenance=operation.maintenance,
        actor=draft.actor,
    )


def _in_window(draft: Draft, operation: Operation) -> Iterator[Operation]:
    """Yield the live operations of an open window; O(work on its host)."""
    host, opened_ms = operation.window_host, operation.window.opened_ms
    for each in draft.operations(("host", host), ("destination", host)):
        same = each.window_host == host and each.maintenance == operation.maintenance
        if same and each.window.opened_ms == opened_ms:
            yield each


def _length_s(draft: Draft, operation: Operation) -> int:
    """Return the planned length of the window that an operation opens, in seconds."""
    maintenance = draft.maintenances.get(operation.maintenance)
    if maintenance is None:
        return operation.duration_s if operation.duration_s > 0 else draft.policy.overdue_after_s
    if operation.followed_by is FollowedBy.NOTHING:
        return span_s(draft.state, maintenance, operation)
    return host_s(draft.state, maintenance, operation.host)


def serial_of(draft: Draft, host: str) -> str:
    """Return the serial number of a host's hardware: its label, or the host's name."""
    record = draft.topology.hosts.get(host)
    return dict(record.labels).get(SERIAL, host) if record else host
