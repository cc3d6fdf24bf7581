"""Routes that list blockers of an operation, host, wave or maintenance, or all blockers.

Source: F-4. `rules/blockers.py` defines the blockers.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

from forewarn_base.validation.durations import written
from forewarn_base.validation.fields import Schema, Text
from forewarn_base.validation.forms import Field
from forewarn_core.access.roles import Permission
from forewarn_core.fleet.declarations import (
    DeclaredMaintenance,
    DeclaredResource,
    ResourceState,
    declared,
)
from forewarn_core.fleet.refusals import Unknown, UnknownMaintenance, UnknownOperation
from forewarn_core.fleet.why import blocker_of, why_host, why_maintenance, why_wave
from forewarn_core.rules.blockers import Blocker
from forewarn_core.rules.hand_back import HAND_BACK
from forewarn_server.api.auth import NotPermitted
from forewarn_server.api.lookup import NUMBER, find
from forewarn_server.api.maintenance_schemas import BLOCKER, Waits
from forewarn_server.api.routes import ApiCall, ApiResponse, Route
from forewarn_server.api.schemas import TEXT, TEXTS, TIME, WHOLE, list_of, object_schema
from forewarn_server.control.plane import StateView

#: Number of operations examined at a time; approvals are answered between the parts.
PORTION = 200
#: Maximum number of names shown in a group of waiting work; other names are only counted.
NAMED_MAX = 20

#: States of declared work that is not announced yet.
UNANNOUNCED = frozenset(ResourceState) - {
    ResourceState.ANNOUNCED,
    ResourceState.STARTED,
    ResourceState.DONE,
    ResourceState.FAILED,
}
_WAVE = re.compile(r"(?i:m-)([0-9]{1,15})(?:/([0-9]{1,6}))?")
_BLOCKED: Schema = object_schema(
    id=TEXT,
    kind={"type": "string", "enum": ["operation", "maintenance", "wave", "host", "vm"]},
    blockers=list_of(BLOCKER.schema()),
)
_GROUPS: Schema = object_schema(
    groups=list_of(
        object_schema(code=TEXT, subject=TEXT, count=WHOLE, names=TEXTS, clears=TIME, text=TEXT)
    )
)


class UnknownWork(Unknown):
    """No operation, event, maintenance, host or VM has this name."""

    code = "unknown-work"
    message = "There is no operation, event, maintenance, host or VM {name}."
    advice = "List valid names with `forewarn operation list --all` or `forewarn host list`."


@Route(
    "GET /v1/why",
    Permission.READ,
    query=(
        Field(
            "id",
            Text(144),
            "An operation (op-12), event id (or its first characters), maintenance (m-12), "
            "wave (m-12/3), host or VM.",
            required=True,
        ),
    ),
    answer=_BLOCKED,
)
async def why(call: ApiCall) -> ApiResponse:
    """List the blockers of an operation, event, maintenance, wave, host or VM."""
    name = call.query["id"]
    wave = _WAVE.fullmatch(name)
    if wave:
        return await _why_maintenance(call, int(wave[1]), int(wave[2] or 0))
    if not NUMBER.fullmatch(name):
        response = await _why_host(call, name) or await _why_vm(call, name)
        if response is not None:
            return response
    try:
        operation = (await find(call, name)).operation
    except UnknownOperation as error:
        raise UnknownWork(name=name[:64]) from error
    return _answer(operation.id, "operation", await _of_operation(call, operation.number))


async def _why_maintenance(call: ApiCall, number: int, wave: int) -> ApiResponse:
    permission = Permission.READ_FLEET
    if call.control.owners is not None:
        raise NotPermitted(principal=call.principal.name, permission=permission.value)
    now_ms = call.control.clock.now_ms()
    name = f"m-{number}/{wave}" if wave else f"m-{number}"

    def query(view: StateView) -> list[Waits] | None:
        maintenance = view.state.maintenances.get(number)
        if maintenance is None:
            return None
        draft = view.draft(now_ms)
        if wave:
            blocker = why_wave(draft, maintenance, wave)
        else:
            blocker = why_maintenance(draft, maintenance)
        return [Waits(name, blocker)] if blocker else []

    waits = await call.control.read(query)
    if waits is None:
        ended = await call.control.look_up(lambda store: store.maintenances.get(number))
        if ended is None:
            raise UnknownMaintenance(name=f"m-{number}")
    return _answer(name, "wave" if wave else "maintenance", waits or [])


async def _why_host(call: ApiCall, host: str) -> ApiResponse | None:
    """Return the blockers of all work on a host; None for an unknown host."""
    now_ms = call.control.clock.now_ms()

    def query(view: StateView) -> tuple[list[int], list[Waits]] | None:
        draft = view.draft(now_ms)
        of_host = [each for each in view.state.maintenances.values() if host in each.hosts]
        if not of_host and host not in view.state.topology.hosts:
            return None
        numbers = [each.number for each in draft.operations(("host", host))]
        return numbers, _waits_of_planned(view, host, now_ms)

    work = await call.control.read(query)
    if work is None:
        return None
    numbers, planned = work
    waits = [each for number in numbers for each in await _of_operation(call, number)]
    return _answer(host, "host", waits + planned)


async def _why_vm(call: ApiCall, vm: str) -> ApiResponse | None:
    """Return the blockers of all work that disturbs a VM; None for an unknown VM."""
    now_ms = call.control.clock.now_ms()

    def query(view: StateView) -> tuple[list[int], list[Waits]] | None:
        state = view.state
        if vm not in state.topology.vms:
            return None
        numbers = sorted(state.places.of(("vm", vm)))
        return numbers, _waits_of_planned(view, state.topology.vms[vm].host, now_ms)

    work = await call.control.read(query)
    if work is None:
        return None
    numbers, planned = work
    waits = [each for number in numbers for each in await _of_operation(call, number)]
    return _answer(vm, "vm", waits + planned)


def _waits_of_planned(view: StateView, host: str, now_ms: int) -> list[Waits]:
    """Return the blockers of a host's work that is not announced yet.

    Owners see declared work alone, and of it what concerns their own VMs. Source: P-3, T-1.
    """
    draft = view.draft(now_ms)
    if view.unscoped is None:
        of_host = [each for each in view.state.maintenances.values() if host in each.hosts]
        planned = [each for each in of_host if draft.target(each.number, host) is None]
        pairs = [(each.id, why_host(draft, each, host)) for each in planned]
        return [Waits(name, blocker) for name, blocker in pairs if blocker]
    return [
        Waits(each.maintenance.id, _hand_back(each, one))
        for each in declared(view.unscoped.state, view.state.topology, now_ms)
        for one in each.resources
        if one.host == host and one.state in UNANNOUNCED
    ]


def _hand_back(declaration: DeclaredMaintenance, resource: DeclaredResource) -> Blocker:
    """Return the blocker of declared work on VMs of an owner."""
    name, deadline_ms = declaration.maintenance.id, resource.deadline_ms
    state = resource.state.value.replace("-", " ")
    text = f"{name} is declared for host {resource.host} ({state})"
    clears_ms = resource.start_ms or deadline_ms
    return Blocker(HAND_BACK, name, declaration.declaration.declared_ms, clears_ms, text)


async def _of_operation(call: ApiCall, number: int) -> list[Waits]:
    return [Waits(f"op-{number}", each) for each in await call.control.why(number)]


def _answer(name: str, kind: str, waits: list[Waits]) -> ApiResponse:
    return ApiResponse({"id": name, "kind": kind, "blockers": BLOCKER.each(waits)})


@Route("GET /v1/blockers", Permission.READ_FLEET, answer=_GROUPS)
async def list_blockers(call: ApiCall) -> ApiResponse:
    """List all current blockers, grouped; the work of a maintenance counts once.

    It costs O(live work), in parts.
    """
    now_ms = call.control.clock.now_ms()
    numbers = await call.control.read(lambda view: list(view.state.operations))
    waiting: list[Waits] = []
    for start in range(0, len(numbers), PORTION):
        portion = numbers[start : start + PORTION]

        def look(view: StateView, portion: list[int] = portion) -> list[Waits]:
            draft = view.draft(now_ms)
            live = map(view.state.operations.get, portion)
            pairs = [(each.id, blocker_of(draft, each)) for each in live if each is not None]
            return [Waits(name, blocker) for name, blocker in pairs if blocker]

        waiting += await call.control.read(look)

    def maintenances(view: StateView) -> list[Waits]:
        draft = view.draft(now_ms)
        pairs = [(m.id, why_maintenance(draft, m)) for m in view.state.maintenances.values()]
        return [Waits(name, blocker) for name, blocker in pairs if blocker]

    # A maintenance with announced or running work has the blocker of one of its operations.
    counted = {each.blocker for each in waiting}
    waiting += [w for w in await call.control.read(maintenances) if w.blocker not in counted]
    return ApiResponse({"groups": _by_blocker(waiting)})


def _by_blocker(waiting: Iterable[Waits]) -> list[dict[str, object]]:
    """Return waiting work grouped by blocker, the largest group first."""
    by_blocker: dict[tuple[str, str], list[Waits]] = {}
    for each in waiting:
        by_blocker.setdefault(_subject(each.blocker), []).append(each)
    groups = sorted(by_blocker.items(), key=lambda item: (-len(item[1]), item[0]))
    return [
        {
            "code": code,
            "subject": subject,
            "count": len(members),
            "names": [each.name for each in itertools.islice(members, NAMED_MAX)],
            "clears": written(min((each.blocker.clears_ms for each in members), default=0)),
            "text": members[0].blocker.sentence(members[0].name),
        }
        for (code, subject), members in groups
    ]


def _subject(blocker: Blocker) -> tuple[str, str]:
    return blocker.code.value, blocker.subject
