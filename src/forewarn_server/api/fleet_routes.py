"""Routes of the fleet: hosts, groups, VMs, and whole topologies.

`fleet/fleet_changes.py` restricts changes of records that live work uses.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

from forewarn_base.errors import CallerError
from forewarn_base.garbage import uncollected
from forewarn_base.validation.fields import NAME, Boolean, Choice, Integer, Schema, Text
from forewarn_base.validation.forms import Field, Form, ListOf
from forewarn_base.validation.json_reader import JSON
from forewarn_core.access.roles import Permission
from forewarn_core.fleet.document import Enrolment
from forewarn_core.fleet.draft import Terms
from forewarn_core.fleet.naming import RACK, read_selector
from forewarn_core.fleet.refusals import Unknown
from forewarn_core.fleet.state import Entry
from forewarn_core.fleet.step import step
from forewarn_core.fleet.stimulus import ChangeTopology
from forewarn_core.fleet.topology import Topology, pairs_of
from forewarn_server.api import request_forms as forms
from forewarn_server.api import schemas
from forewarn_server.api.auth import NotPermitted
from forewarn_server.api.file_process import TOPOLOGY_FILE, read_file
from forewarn_server.api.name_index import FleetIndex
from forewarn_server.api.part_stream import PartStream
from forewarn_server.api.routes import ApiCall, ApiResponse, Route
from forewarn_server.api.topology_file import (
    READERS,
    differences,
    exported,
    group_of,
    host_of,
    lone_group,
    pruned,
    records_of,
    vm_of,
)
from forewarn_server.control.plane import StateView

T = TypeVar("T")

#: Records on one page of a list.
LIST_MAX = 1000
#: Maximum number of matches of a search for each kind of record.
FOUND_MAX = 8
#: Maximum number of names in one query; the longest names fit in a URL of 64 KiB.
NAMES_MAX = 400

_PAGE = (
    Field("after", NAME, "Only records whose names sort after this name."),
    Field("limit", Integer(1, LIST_MAX), f"Maximum number of entries (default: {LIST_MAX})."),
)
_OF_GROUPS = (
    Field(
        "enabled",
        Boolean(),
        "Only groups with Scheduled Events enabled (true) or disabled (false).",
    ),
    Field("host", ListOf(NAME, NAMES_MAX, 1), "Only groups with VMs on one of these hosts."),
)
_NAMES = Field("name", ListOf(NAME, NAMES_MAX, 1), "Names of the records.", required=True)
#: Filters by the name of one record.
_WHERE = ("host", "group")
_NAMED = schemas.list_of(
    schemas.object_schema(kind={"enum": ["host", "group", "vm"]}, name=schemas.TEXT)
)
_NO_PLACE = {"zone": "", "rack": "", "owner": ""}
#: A changed record, with its place, by which clients group many changes.
_PLACED: dict[str, dict[str, Any]] = {
    "kind": {"enum": ["host", "group", "vm"]},
    "name": schemas.TEXT,
    "zone": schemas.TEXT,
    "rack": schemas.TEXT,
    "owner": schemas.TEXT,
}
_CHANGED = schemas.list_of(schemas.object_schema(**_PLACED))
#: Most changed records of an answer whose differences it has.
DIFFERENCES_MAX = 100
_DIFFERENT = schemas.list_of(
    schemas.object_schema(
        **_PLACED,
        differences=schemas.list_of(
            schemas.object_schema(member=schemas.TEXT, old=schemas.TEXT, new=schemas.TEXT)
        ),
    )
)
_KINDS = {"host": "host", "vm": "vm", "group": "group"}
_NEW = Field("new", Boolean(), "Refuse to replace an existing record.")


class _Records:
    """The routes for records of one kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    async def list(self, call: ApiCall) -> ApiResponse:
        fleet = await call.control.fleet()
        enrolled: Mapping[str, Enrolment] = {}
        if self.kind != "host":  # a copy for other threads; O(groups)
            enrolled = await call.control.read(lambda view: dict(view.state.enrolments))
        return await call.encode(partial(self._page, call, fleet, enrolled))

    def _page(
        self, call: ApiCall, topology: Topology, enrolled: Mapping[str, Enrolment]
    ) -> dict[str, object]:
        """Return one page of records; run on a thread. O(page + hosts of a zone)."""
        limit = call.query.get("limit", LIST_MAX)
        matches = list(itertools.islice(self._matches(call, topology, enrolled), limit + 1))
        shown = [
            _record_form(call, topology, kind=self.kind, name=name, enrolled=enrolled)
            for name in matches[:limit]
        ]
        following = matches[limit - 1] if len(matches) > limit else None
        return {f"{self.kind}s": shown, "next": following}

    def _matches(
        self, call: ApiCall, topology: Topology, enrolled: Mapping[str, Enrolment]
    ) -> Iterator[str]:
        """Return the names of the records that the query selects, in order."""
        query = dict(call.query)
        hosts = query.pop("host", ()) if self.kind == "group" else ()
        for kind, names in (("host", hosts), *((each, (query.get(each),)) for each in _WHERE)):
            for name in names:
                if name and name not in _table(topology, kind):
                    raise Unknown(kind=kind, name=name)
        wanted: dict[str, str] = {
            name: query[name] for name in ("zone", "host", "group") if name in query
        }
        pairs = frozenset(read_selector(query["selector"]) if "selector" in query else ())
        on_hosts = {topology.vms[vm].group for host in hosts for vm in topology.vms_on(host)}
        records = _table(topology, self.kind)
        for name in self._names(topology, wanted, call.control.index, query.get("after", "")):
            if (
                all(getattr(records[name], each) == value for each, value in wanted.items())
                and (not pairs or pairs <= pairs_of(topology.hosts[name]))
                and query.get("enabled") in {None, name in enrolled}
                and (not hosts or name in on_hosts)
            ):
                yield name

    def _names(
        self, topology: Topology, wanted: Mapping[str, str], index: FleetIndex, after: str
    ) -> Iterable[str]:
        """Return the names after `after`, in order; an index narrows the names if possible."""
        if "group" in wanted:
            return (name for name in topology.vms_in(wanted["group"]) if name > after)
        if "host" in wanted:
            return (name for name in topology.vms_on(wanted["host"]) if name > after)
        return index.of(topology, f"{self.kind}s").after(after)

    async def get(self, call: ApiCall) -> ApiResponse:
        return ApiResponse(await self._current(call))

    async def _current(self, call: ApiCall) -> dict[str, object]:
        """Return the current record of a name; run on the writer's thread. O(1)."""
        kind, name = self.kind, call.path["name"]
        return await call.control.read(
            lambda view: _record_form(
                call, view.state.topology, kind=kind, name=name, enrolled=view.state.enrolments
            )
        )

    async def put(self, call: ApiCall) -> ApiResponse:
        name = call.path["name"]
        change = await call.control.read(lambda view: self._change(name, call, view.state.topology))
        if call.control.owners is not None:
            await self._check_owned(call, change)
        if call.query.get("new"):
            change = replace(change, absent=(*change.absent, (self.kind, name)))
        committed = await call.control.submit(change, call.actor)
        added = any(entry.action == f"{self.kind}.added" for entry in committed.entries)
        return ApiResponse(await self._current(call), 201 if added else 200)

    async def _check_owned(self, call: ApiCall, change: ChangeTopology) -> None:
        """Refuse an owner's change of a group's fields other than the approval settings.

        Source: P-2.
        """
        (group,) = change.groups
        present = (await call.control.fleet()).groups.get(group.name)
        if present is None:
            raise Unknown(kind="group", name=group.name)
        fixed = ("kind", "owner", "fault_domain_count", "keep_apart", "keep_together")
        if any(getattr(present, name) != getattr(group, name) for name in fixed):
            needed = Permission.OPERATE.value
            raise NotPermitted(principal=call.principal.name, permission=needed)

    async def remove(self, call: ApiCall) -> ApiResponse:
        names = dict.fromkeys(call.query.get("name") or (call.path["name"],))
        change = ChangeTopology(removed=tuple((self.kind, name) for name in names))
        await call.control.submit(change, call.actor)
        return ApiResponse(b"", 204)

    def _change(self, name: str, call: ApiCall, topology: Topology) -> ChangeTopology:
        if self.kind == "host":
            return ChangeTopology(hosts=(host_of(name, call.form),))
        if self.kind == "group":
            return ChangeTopology(groups=(group_of(name, call.form),))
        vm = vm_of(name, call.form)
        if "group" in call.form or vm.group in topology.groups:
            return ChangeTopology(vms=(vm,))
        return ChangeTopology(groups=(lone_group(name),), vms=(vm,), absent=(("group", name),))


@Route(
    "GET /v1/search",
    Permission.READ,
    query=(
        Field("text", Text(), "Prefix of the name.", required=True),
        Field("kind", ListOf(Choice(_KINDS), len(_KINDS), 1), "Only records of these kinds."),
    ),
    answer=schemas.object_schema(found=_NAMED),
)
async def search_names(call: ApiCall) -> ApiResponse:
    """Find hosts, VMs and groups whose names begin with a text.

    It costs O(matches).
    """
    fleet = await call.control.fleet()
    kinds = call.query.get("kind", ()) or tuple(_KINDS.values())

    def matches() -> list[dict[str, str]]:
        text = call.query["text"]
        names = []
        for kind in kinds:
            records = _table(fleet, kind)
            rest = call.control.index.of(fleet, f"{kind}s").after(text)
            longer = itertools.takewhile(lambda name: name.startswith(text), rest)
            first = (text,) if text in records else ()
            names += [
                {"kind": kind, "name": name}
                for name in itertools.islice(itertools.chain(first, longer), FOUND_MAX)
            ]
        return names

    return ApiResponse({"found": await call.control.compute(matches)})


@Route(
    "PUT /v1/topology",
    Permission.OPERATE,
    query=(
        Field("prune", Boolean(), "Also remove records that are missing from the topology."),
        Field("dry_run", Boolean(), "Return the changes without applying them."),
        Field(
            "revision",
            Text(forms.REASON_LENGTH_MAX),
            "Revision of the file, such as a git commit, for history.",
        ),
    ),
    takes=tuple(READERS),
    taken=forms.TOPOLOGY.schema(),
    answer=schemas.object_schema(
        added=_CHANGED, changed=_DIFFERENT, removed=_CHANGED, applied=schemas.FLAG
    ),
    abandonable=True,
)
async def apply_topology(call: ApiCall) -> ApiResponse:
    """Apply a whole topology or nothing. Records missing from the topology are kept.

    The first 100 changed records have their differences, of which an empty text is a default.
    """
    try:
        return await _apply_change(call)
    except CallerError as refusal:
        if not call.query.get("dry_run", False):
            call.control.loop.refused_records.add(str(refusal))
        raise


async def _apply_change(call: ApiCall) -> ApiResponse:
    control, dry_run = call.control, call.query.get("dry_run", False)
    change = await control.read_file(partial(_read, call))
    change = replace(change, revision=call.query.get("revision", ""))
    if call.query.get("prune", False):
        change = await control.compute(partial(pruned, change, await control.fleet()))
    places, different = await control.read(
        lambda view: (
            _places(view.state.topology, change),
            _differences(view.state.topology, change),
        )
    )
    if dry_run:
        entries = await control.read(lambda view: _dry_run(view, change, call))
    else:
        entries = (await control.submit(change, call.actor)).entries
    return await call.encode(partial(_result, entries, places, different, applied=not dry_run))


def _read(call: ApiCall) -> ChangeTopology:
    with uncollected():
        return records_of(read_file(TOPOLOGY_FILE, call.body, call.media))


_Key: TypeAlias = tuple[str, str]
_Differences: TypeAlias = list[dict[str, str]]


def _result(
    entries: Iterable[Entry],
    places: Mapping[_Key, Mapping[str, str]],
    different: Mapping[_Key, _Differences],
    *,
    applied: bool,
) -> dict[str, object]:
    changes: dict[str, list[dict[str, object]]] = {"added": [], "changed": [], "removed": []}
    for entry in entries:
        kind, _, action = entry.action.partition(".")
        if kind in {"host", "group", "vm"} and action in changes:
            name = getattr(entry, kind)
            record: dict[str, object] = {"kind": kind, "name": name}
            record |= places.get((kind, name), _NO_PLACE)
            if action == "changed":
                record["differences"] = different.get((kind, name), [])
            changes[action].append(record)
    return {**changes, "applied": applied}


def _differences(before: Topology, change: ChangeTopology) -> dict[_Key, _Differences]:
    """Return what changes in the first `DIFFERENCES_MAX` records that differ; O(named records)."""
    named = (
        ("host", before.hosts, change.hosts),
        ("group", before.groups, change.groups),
        ("vm", before.vms, change.vms),
    )
    by_record: dict[_Key, _Differences] = {}
    for kind, known, records in named:
        for each in records:
            present = known.get(each.name)
            if present is not None and present != each and (some := differences(present, each)):
                by_record[kind, each.name] = some
                if len(by_record) >= DIFFERENCES_MAX:
                    return by_record
    return by_record


def _places(before: Topology, change: ChangeTopology) -> dict[tuple[str, str], dict[str, str]]:
    """Return zone, rack and owner of each record that a change names; O(named records)."""
    hosts = {each.name: each for each in change.hosts}
    groups = {each.name: each for each in change.groups}
    vms = {each.name: each for each in change.vms}
    names = [("host", name) for name in hosts] + [("group", name) for name in groups]
    places = {}
    for kind, name in (*names, *(("vm", name) for name in vms), *change.removed):
        vm = (vms.get(name) or before.vms.get(name)) if kind == "vm" else None
        host_name = vm.host if vm else name if kind == "host" else ""
        group_name = vm.group if vm else name if kind == "group" else ""
        host = hosts.get(host_name) or before.hosts.get(host_name)
        group = groups.get(group_name) or before.groups.get(group_name)
        places[kind, name] = {
            "zone": host.zone if host else "",
            "rack": dict(host.labels).get(RACK, "") if host else "",
            "owner": group.owner if group else "",
        }
    return places


@Route(
    "GET /v1/topology",
    Permission.READ,
    query=(
        Field(
            "format",
            Choice({name: media for media, name in READERS.items()}),
            "Format of the file (default: json).",
        ),
    ),
    answer=forms.TOPOLOGY.schema(),
    gives=(JSON, *(media for media in READERS if media != JSON)),
)
async def export_topology(call: ApiCall) -> ApiResponse:
    """Export the whole fleet in the format that `PUT` accepts."""
    media = call.query.get("format", JSON)
    parts = exported(await call.control.fleet(), media)
    return ApiResponse(None, stream=PartStream(call.control, parts, media))


def _dry_run(view: StateView, change: ChangeTopology, call: ApiCall) -> Iterable[Entry]:
    """Return the history entries that a change would write; O(changed records)."""
    count = itertools.count()
    terms = Terms(view.policy, call.actor, lambda: f"DRY-RUN-{next(count)}")
    now_ms = call.control.clock.now_ms()
    outcome = step(view.state, change, now_ms=now_ms, terms=terms)
    view.state.rollback()
    return outcome.changes.entries


def _table(topology: Topology, kind: str) -> Mapping[str, object]:
    records: Mapping[str, object] = getattr(topology, f"{kind}s")
    return records


def _record_form(
    call: ApiCall, topology: Topology, *, kind: str, name: str, enrolled: Mapping[str, Enrolment]
) -> dict[str, object]:
    if name not in _table(topology, kind):
        raise Unknown(kind=kind, name=name)
    if kind == "host":
        return schemas.HOST.of(schemas.Placed(topology.hosts[name], topology))
    poll_of, now_ms = call.control.loop.poll_of, call.control.clock.now_ms()
    if kind == "group":
        placed = schemas.Placed(
            topology.groups[name], topology, enrolled.get(name), poll_of, now_ms
        )
        return schemas.GROUP.of(placed)
    vm = topology.vms[name]
    return schemas.VM.of(schemas.Placed(vm, topology, enrolled.get(vm.group), poll_of, now_ms))


def _routes_of(
    kind: str, form: Form, shape: Schema, *, filters: tuple[Field, ...]
) -> tuple[Route, ...]:
    acts, path, word = _Records(kind), f"/v1/{kind}s", "VM" if kind == "vm" else kind
    change = Permission.SET_APPROVAL if kind == "group" else Permission.OPERATE
    return (
        Route(
            f"GET {path}",
            Permission.READ,
            query=(*filters, *_PAGE),
            answer=schemas.page_schema(f"{kind}s", shape, paged="string"),
            name=f"list_{kind}s",
            summary=f"List {word}s by name.",
        )(acts.list),
        Route(
            f"GET {path}/{{name}}",
            Permission.READ,
            answer=shape,
            name=f"get_{kind}",
            summary=f"Read one {word}.",
        )(acts.get),
        Route(
            f"PUT {path}/{{name}}",
            change,
            query=(_NEW,),
            form=form,
            answer=shape,
            also={201: "The record is new."},
            name=f"put_{kind}",
            summary=f"Add or replace a {word}.",
        )(acts.put),
        Route(
            f"DELETE {path}/{{name}}",
            Permission.OPERATE,
            answer=None,
            status=204,
            name=f"remove_{kind}",
            summary=f"Remove a {word} from the fleet.",
        )(acts.remove),
        Route(
            f"DELETE {path}",
            Permission.OPERATE,
            query=(_NAMES,),
            answer=None,
            status=204,
            name=f"remove_{kind}s",
            summary=f"Remove several {word}s from the fleet, all or none.",
        )(acts.remove),
    )


_RECORDS = (
    *_routes_of(
        "host",
        forms.HOST,
        schemas.HOST.schema(),
        filters=(Field("zone", Text(), "Only hosts in this zone."), forms.SELECTOR),
    ),
    *_routes_of("group", forms.GROUP, schemas.GROUP.schema(), filters=_OF_GROUPS),
    *_routes_of(
        "vm",
        forms.VM,
        schemas.VM.schema(),
        filters=(
            Field("host", NAME, "Only VMs on this host."),
            Field("group", NAME, "Only VMs of this group."),
        ),
    ),
)
