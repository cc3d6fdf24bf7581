"""Routes that list blockers: of an operation, host, wave, maintenance, or of everything.

Source: F-4. `planning/blockers.py` defines the blockers.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from forewarn.api.maintenance_schemas import BLOCKER, Waits
from forewarn.api.routes import ApiCall, ApiResponse, Route
from forewarn.api.schemas import TEXT, TEXTS, TIME, WHOLE
from forewarn.core.maintenance_refusals import UnknownMaintenance
from forewarn.core.maintenance_why import blocker_of, why_host, why_maintenance, why_wave
from forewarn.core.refusals import Unknown
from forewarn.validation.durations import written
from forewarn.validation.fields import Text
from forewarn.validation.forms import Field

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forewarn.control.plane import StateView
    from forewarn.planning.blockers import Blocker
    from forewarn.validation.fields import Schema

#: Operations examined at a time, so that approvals are answered in between.
PORTION = 200
#: Names shown in a group of waiting work; the rest is counted.
NAMED_MAX = 20

_WAVE = re.compile(r"(?i:m-)([0-9]{1,15})(?:/([0-9]{1,6}))?")
_BLOCKED: Schema = {
    "type": "object",
    "properties": {
        "id": TEXT,
        "kind": {"type": "string", "enum": ["maintenance", "wave", "host"]},
        "blockers": {"type": "array", "items": BLOCKER.schema()},
    },
    "required": ["id", "kind", "blockers"],
    "additionalProperties": False,
}
_GROUPS: Schema = {
    "type": "object",
    "properties": {
        "groups": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "code": TEXT,
                    "subject": TEXT,
                    "count": WHOLE,
                    "names": TEXTS,
                    "clears": TIME,
                    "text": TEXT,
                },
                "required": ["code", "subject", "count", "names", "clears", "text"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["groups"],
    "additionalProperties": False,
}


async def _why(call: ApiCall) -> ApiResponse:
    """Return the blockers of a maintenance (`m-12`), a wave (`m-12/3`) or a host."""
    name = call.query["id"]
    now_ms = call.control.clock.now_ms()
    matched = _WAVE.fullmatch(name)
    if matched is None:
        blockers = await call.control.read(lambda view: _of_host(view, name, now_ms))
        return ApiResponse({"id": name, "kind": "host", "blockers": BLOCKER.each(blockers)})
    number, wave = int(matched[1]), int(matched[2] or 0)

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
    kind = "wave" if wave else "maintenance"
    return ApiResponse({"id": name, "kind": kind, "blockers": BLOCKER.each(waits or ())})


def _of_host(view: StateView, host: str, now_ms: int) -> list[Waits]:
    """Return the blockers of the work on a host.

    Raises:
        Unknown: neither the fleet nor a maintenance names the host.
    """
    draft, state = view.draft(now_ms), view.state
    blockers = [
        (operation.id, blocker_of(draft, operation))
        for operation in draft.operations(("host", host))
        if not operation.maintenance
    ]
    blockers += [
        (maintenance.id, why_host(draft, maintenance, host))
        for maintenance in state.maintenances.values()
        if host in maintenance.hosts
    ]
    if not blockers and host not in state.topology.hosts:
        raise Unknown(kind="host", name=host)
    return [Waits(name, blocker) for name, blocker in blockers if blocker is not None]


async def _why_all(call: ApiCall) -> ApiResponse:
    """Group waiting work by blocker; costs the live work, in parts."""
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

    waiting += await call.control.read(maintenances)
    return ApiResponse({"groups": _grouped(waiting)})


def _grouped(waiting: Iterable[Waits]) -> list[dict[str, object]]:
    """Return one group for each blocker, the largest first."""
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


def routes() -> tuple[Route, ...]:
    """Return the routes of blockers."""
    return (
        Route(
            method="GET",
            path="/v1/why",
            name="why",
            summary="List the blockers of a maintenance, a wave or a host.",
            act=_why,
            query=(Field("id", Text(144), "m-12, m-12/3 or a host name.", required=True),),
            answer=_BLOCKED,
        ),
        Route(
            method="GET",
            path="/v1/blockers",
            name="list_blockers",
            summary="List all current blockers, grouped.",
            act=_why_all,
            answer=_GROUPS,
        ),
    )
