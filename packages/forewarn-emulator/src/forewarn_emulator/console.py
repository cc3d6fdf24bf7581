"""The emulator's terminal output: a banner, then one line per committed change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

from forewarn_base.host_port import host_and_port, joined_address
from forewarn_base.protocol.documents import ScheduledEvent
from forewarn_base.protocol.timestamps import iso8601
from forewarn_base.protocol.versions import EVENTS_PATH, VERSIONS
from forewarn_core.fleet.document import View
from forewarn_core.fleet.lifecycle import Event, Operation
from forewarn_core.fleet.records import Record, from_row
from forewarn_core.fleet.state import Entry
from forewarn_core.fleet.step import StepResult
from forewarn_core.fleet.topology import Topology
from forewarn_server.service.parts import BoundAddresses

METADATA_PATH = f"{EVENTS_PATH}?api-version={VERSIONS[-1]}"
#: Texts of printed actions; other actions are intermediate steps.
_TOLD = {
    "operation.planned": "waits",
    "operation.announced": "is announced",
    "operation.renewed": "starts its notice again",
    "operation.started": "is running",
    "operation.succeeded": "is over",
    "operation.failed": "has failed",
    "operation.cancelled": "is cancelled",
    "operation.stuck": "is stuck",
    "operation.overdue": "runs longer than expected",
}
#: Loopback addresses for connections to servers that listen on all interfaces.
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - replaced
#: Most VM names in one line; the line gives the number of the others.
NAMES_MAX = 4


def banner(
    bound: BoundAddresses,
    *,
    vms: tuple[str, ...],
    speed: float,
    program: str = "forewarn",
) -> str:
    """Return the banner with the addresses, and commands to try."""
    first, *others = sorted(bound.metadata, key=lambda place: place.startswith("unix:"))
    url, curl = f"{_url(first)}{METADATA_PATH}", "curl"
    poll = url
    if first.startswith("unix:"):
        curl = f"curl --unix-socket {first.removeprefix('unix:')}"
        url, poll = f"http://localhost{METADATA_PATH}", first
    places = "".join(f"\n  also             {_url(place)}" for place in others)
    pace = "as real time does" if speed == 1 else f"{speed:g} times as fast as real time"
    operator, page = loopback_url(bound.operator), _page(bound)
    trigger = (
        _trigger(operator, vms, program)
        if operator
        else "\nThe operator API is disabled, so that only --scenario causes events.\n"
    )
    if operator != bound.operator:
        port = urlsplit(bound.operator).port
        means = f"with a token of `{program} access token create`"
        operator += f"\n  also             port {port} of every address, {means}"
    elif not _here(operator):
        operator += "\n                   which needs a token"
    azure = _azure(bound) if bound.azure else ""
    return f"""\
Forewarn emulator. Ctrl-C stops the emulator.

  poll             {poll}{places}
  VM of callers    {_caller(vms)}
  operator API     {operator or "none"}
  page             {page or "none"}
  clock            {pace}; all times are the emulator's

Read and approve events, as a VM does:
  {curl} -H Metadata:true '{url}'
  {curl} -H Metadata:true -d '{{"StartRequests":[{{"EventId":"ID"}}]}}' '{url}'
{azure}{trigger}"""


def _page(bound: BoundAddresses) -> str:
    """Return the address of the page; empty if browsers cannot connect."""
    operator = loopback_url(bound.operator)
    return f"{operator}/" if operator.startswith("http") else ""


def _azure(bound: BoundAddresses) -> str:
    """Return the instructions for Azure's command line and SDK. Source: Z-3."""
    return f"""
Point `az` and the SDK at the emulator, in another terminal:
  export REQUESTS_CA_BUNDLE={bound.azure_certificate}
  az cloud register --name Forewarn --endpoint-resource-manager {bound.azure}
  az cloud set --name Forewarn
  az login --service-principal --username me --password any --tenant adfs
"""


def _caller(vms: tuple[str, ...]) -> str:
    if not vms:
        return "none: the fleet has no VMs"
    return vms[0] if len(vms) == 1 else f"{vms[0]} (or ?vm=NAME: {_names(vms)})"


def _trigger(operator: str, vms: tuple[str, ...], program: str) -> str:
    """Return example commands."""
    server = "" if operator == "http://127.0.0.1:8470" else f" --server {operator}"
    if not vms:
        return f"\nAdd VMs, from another terminal:\n  {program} topology apply FILE{server}\n"
    return f"""
Cause an event, from another terminal:
  {program} emulator scenario list{server}
  {program} emulator scenario run host-reboot{server}
  {program} vm reboot {vms[0]}{server}
  {program} emulator clock advance 16m{server}
"""


def greeting(bound: BoundAddresses, *, vms: tuple[str, ...], speed: float) -> dict[str, object]:
    """Return the addresses, as JSON for programs."""
    return {
        "metadata": [_url(place) for place in bound.metadata],
        "operator": loopback_url(bound.operator),
        "page": _page(bound),
        "azure": bound.azure,
        "azure_certificate": bound.azure_certificate,
        "vms": list(vms),
        "speed": speed,
    }


class Dated:
    """Prefixes each line with the time, and prints the date of each new day."""

    def __init__(self, now_ms: int) -> None:
        """Set the first day; dates are printed only for later days."""
        self._day = iso8601(now_ms)[:10]

    def lines(self, text: str, now_ms: int) -> str:
        """Return the text with its time; on a new day, first a line with the date."""
        day, _, time = iso8601(now_ms).partition("T")
        before = "" if day == self._day else f"{day}\n"
        self._day = day
        return f"{before}{time[:8]}  {text}\n"


class Console:
    """Prints one line per committed change."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self.say = write

    def show(self, committed: StepResult, topology: Topology) -> None:
        """Print a commit, and the resulting documents of VMs."""
        for line in lines_of(committed, topology):
            self.say(line)


def lines_of(committed: StepResult, topology: Topology) -> Iterator[str]:
    """Return the lines for a commit."""
    announced = {e.operation for e in committed.entries if e.action == "operation.announced"}
    for entry in committed.entries:
        record = _first_record(entry)
        if isinstance(record, Operation) and entry.action in _TOLD:
            waits = entry.action == "operation.planned"
            if not (
                waits
                and (record.number in announced or record.events or _has_unannounced(committed))
            ):
                yield _of_operation(entry, record)
        elif isinstance(record, Event) and entry.action in {"event.approved", "event.counted"}:
            done = (
                "approves"
                if entry.action == "event.approved"
                else "approves, with other approvals missing,"
            )
            yield f"{entry.actor.removeprefix('vm ')} {done} {record.id}"
        elif entry.action.startswith(("vm.", "host.", "group.")):
            yield entry.text
    day = iso8601(committed.entries[0].at_ms)[:10] if committed.entries else ""
    for key, view in committed.changes.views.items():
        yield from _document(key, view, topology, day=day)


def _has_unannounced(committed: StepResult) -> bool:
    return any(entry.action == "operation.unannounced" for entry in committed.entries)


def _first_record(entry: Entry) -> Record | None:
    if not entry.images or entry.images[0].row is None:
        return None
    return from_row(entry.images[0].kind, entry.images[0].row)


def _of_operation(entry: Entry, operation: Operation) -> str:
    what = f"{operation.id} {operation.cause.value} of {operation.target}"
    _, colon, reason = entry.text.partition(": ")
    because = f": {reason}" if colon and entry.action != "operation.planned" else ""
    if entry.action == "operation.announced":  # perhaps without a VM
        return what + entry.text.removeprefix(operation.id)
    return f"{what} {_TOLD[entry.action]}{because}"


def _document(key: str, view: View | None, topology: Topology, *, day: str) -> Iterator[str]:
    group, _, vm = key.partition("/")
    vms = (vm,) if vm else topology.vms_in(group)
    if not vms:
        return
    if view is None:
        yield f"  {_names(vms)}: not enabled until a VM polls"
        return
    events = "; ".join(_event(event, day) for event in view.document.events)
    verb = "sees" if len(vms) == 1 else "see"
    yield f"  {_names(vms)} {verb} incarnation {view.document.incarnation}: {events or 'nothing'}"


def _event(event: ScheduledEvent, day: str) -> str:
    by = ""
    if event.not_before_ms is not None:
        date, _, time = iso8601(event.not_before_ms).partition("T")
        by = f", not before {'' if date == day else f'{date} '}{time[:8]}"
    return f"{event.event_type} {event.status} ({_names(event.resources)}{by})"


def _names(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:NAMES_MAX])
    return shown if len(names) <= NAMES_MAX else f"{shown} and {len(names) - NAMES_MAX} more"


def _url(place: str) -> str:
    """Return a metadata address as a URL; return a Unix socket unchanged."""
    if place.startswith("unix:"):
        return place
    host, port = host_and_port(place)
    return "http://" + joined_address(_LOOPBACK.get(host, host), None if port == 80 else port)


def loopback_url(operator: str) -> str:
    """Return the operator API's URL for connections from this machine."""
    scheme, _, place = operator.partition("://")
    if not place:
        return operator
    host, port = host_and_port(place)
    return f"{scheme}://{joined_address(_LOOPBACK.get(host, host), port)}"


def _here(operator: str) -> bool:
    """Return whether the operator API at a URL requires no token from this machine."""
    host = urlsplit(operator).hostname or ""
    return not host or host == "::1" or host.startswith("127.")
