"""The route of declared maintenances as a calendar, for calendar programs. Source: T-1."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator

from forewarn_base.protocol.timestamps import iso8601
from forewarn_core.access.roles import Permission
from forewarn_core.fleet.declarations import DeclaredMaintenance, DeclaredResource, ResourceState
from forewarn_core.fleet.impact import SECOND_MS
from forewarn_core.fleet.owner_choices import Decision
from forewarn_server.api.declaration_routes import declared_to
from forewarn_server.api.icalendar import CALENDAR, calendar, text, utc
from forewarn_server.api.routes import ApiCall, ApiResponse, Route

#: States in which the start is certain.
_CERTAIN = frozenset({ResourceState.CHOSEN, ResourceState.ANNOUNCED, ResourceState.STARTED})
#: States in which the owner should choose before the deadline.
_UNDECIDED = frozenset({ResourceState.OPEN, ResourceState.DISPLACED, ResourceState.WAITING})
#: States after the work; its start is no longer known.
_ENDED = frozenset({ResourceState.DONE, ResourceState.FAILED})
_MEANINGS = {
    ResourceState.OPEN: "Nothing is chosen: this is the time if you do nothing.",
    ResourceState.CHOSEN: "This time is chosen.",
    ResourceState.WAITING: "Other owners on the host have not chosen the same time.",
    ResourceState.DISPLACED: "The chosen time cannot be kept: choose again.",
    ResourceState.RELEASED: "Handed back: the work may start at any time.",
    ResourceState.DUE: "The deadline has passed: this is the planned time.",
    ResourceState.HELD: "You hold the host after your test: no choice counts before the deadline.",
    ResourceState.ANNOUNCED: "The work is announced.",
    ResourceState.STARTED: "The work has started.",
}


@Route("GET /v1/declarations.ics", Permission.READ, answer=None, gives=(CALENDAR,))
async def get_calendar(call: ApiCall) -> ApiResponse:
    """Read the declared maintenances as an iCalendar file.

    It has an event for the window of each resource, and one for each hand-back deadline before
    which something is to be chosen.
    """
    key = call.control.store.lineage.key
    every = await declared_to(call)

    def written() -> bytes:
        return calendar("Declared maintenance", (c for each in every for c in _events(each, key)))

    return ApiResponse(await call.control.compute(written), media=CALENDAR)


def _events(declared: DeclaredMaintenance, key: str) -> Iterator[Iterator[str]]:
    for resource in declared.resources:
        if resource.state not in _ENDED:
            yield _window(declared, resource, key)
    undecided = [each for each in declared.resources if each.state in _UNDECIDED]
    for deadline_ms in sorted({each.deadline_ms for each in undecided}):
        hosts = sorted({each.host for each in undecided if each.deadline_ms == deadline_ms})
        yield _deadline(declared, deadline_ms, hosts, key)


def _window(declared: DeclaredMaintenance, resource: DeclaredResource, key: str) -> Iterator[str]:
    """Yield the lines of the event of one owner's VMs on a host."""
    maintenance, deadline_ms = declared.maintenance, resource.deadline_ms
    what = maintenance.cause.value.replace("-", " ").capitalize()
    start_ms = resource.start_ms or deadline_ms
    vms = ", ".join(resource.vms)
    sentences = [
        _MEANINGS[resource.state],
        "" if resource.start_ms else "The time is not planned yet; it is after the deadline.",
        f"Choose by {iso8601(deadline_ms)}." if resource.state in _UNDECIDED else "",
        f"Wanted: {_chosen(resource)}." if resource.choice else "",
        f"Reason: {maintenance.reason}" if maintenance.reason else "",
        f"VMs: {vms}",
        f"Maintenance: {maintenance.id}",
    ]
    description = "\n".join(filter(None, sentences))
    yield "BEGIN:VEVENT"
    yield from _identity(declared, key, f"{resource.host}/{resource.owner}", resource.changed_ms)
    yield f"DTSTART:{utc(start_ms)}"
    yield f"DTEND:{utc(start_ms + maintenance.host_s * SECOND_MS)}"
    yield f"SUMMARY:{text(f'{what} of {resource.host}: {vms}')}"
    yield f"DESCRIPTION:{text(description)}"
    yield f"STATUS:{'CONFIRMED' if resource.state in _CERTAIN else 'TENTATIVE'}"
    yield "TRANSP:TRANSPARENT"
    yield "END:VEVENT"


def _chosen(resource: DeclaredResource) -> str:
    choice = resource.choice
    assert choice is not None
    words = {Decision.NOW: "as soon as possible", Decision.RELEASE: "at any time"}
    return words.get(choice.decision) or iso8601(choice.start_ms)


def _deadline(
    declared: DeclaredMaintenance, deadline_ms: int, hosts: list[str], key: str
) -> Iterator[str]:
    """Yield the lines of the event of a hand-back deadline, with an alarm a day before."""
    maintenance = declared.maintenance
    names = ", ".join(hosts)
    changed_ms = max(each.changed_ms for each in declared.resources)
    deferred = deadline_ms != declared.declaration.deadline_ms
    name = f"deadline/{deadline_ms}" if deferred else ""
    summary = text(f"Last day to choose a time for {maintenance.id}")
    yield "BEGIN:VEVENT"
    yield from _identity(declared, key, name, changed_ms)
    yield f"DTSTART:{utc(deadline_ms)}"
    yield f"SUMMARY:{summary}"
    yield f"DESCRIPTION:{text(f'Until then you choose when these hosts are worked on: {names}')}"
    yield "TRANSP:TRANSPARENT"
    yield from ("BEGIN:VALARM", "ACTION:DISPLAY", "TRIGGER:-P1D")
    yield from (f"DESCRIPTION:{summary}", "END:VALARM")
    yield "END:VEVENT"


def _identity(declared: DeclaredMaintenance, key: str, name: str, changed_ms: int) -> Iterator[str]:
    """Yield which event it is, and which revision: seconds since the declaration, plus changes."""
    declaration = declared.declaration
    word = f"calendar\n{declared.maintenance.id}/{name}".encode()
    digest = hmac.new(key.encode(), word, hashlib.sha256).hexdigest()[:32]
    passed_s = max(changed_ms - declaration.declared_ms, 0) // SECOND_MS
    yield f"UID:{digest}@forewarn"
    yield f"DTSTAMP:{utc(changed_ms)}"
    yield f"CREATED:{utc(declaration.declared_ms)}"
    yield f"LAST-MODIFIED:{utc(changed_ms)}"
    yield f"SEQUENCE:{passed_s + declaration.version - 1}"
