"""T-13 a second and a third time: availability from history, and by the published procedure.

Neither shares a rule with the product. History says when each event was Started and gone, and whose
each VM was; the published procedure reads the records as a tenant exports them.
"""

import json
import runpy
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from forewarn_base.validation.durations import written
from forewarn_base.values import replace
from forewarn_core.fleet.availability import Period, TenureKey, availability
from forewarn_core.fleet.availability_records import AvailabilityRecord
from forewarn_core.fleet.history import Rows
from forewarn_core.fleet.records import Columns
from forewarn_core.fleet.state import Entry, State
from forewarn_server.api.availability_routes import RECORD
from forewarn_store import AvailabilityPage
from forewarn_store.reading import StoreReader
from tests.simulator.world.crash_points import Violation

_PROCEDURE = Path(__file__).resolve().parents[3] / "docs/howto/check-availability.py"
_procedure: Callable[[Iterable[str]], Any] = runpy.run_path(str(_PROCEDURE))["main"]
_FOREVER = 1 << 62

#: VM, group and owner -> counted and disturbed time, in ms.
Figures: TypeAlias = dict[TenureKey, tuple[int, int]]


def check_availability(
    store: StoreReader, state: State, period: Period, premises: Counter[str]
) -> None:
    """Compute each VM's availability in three ways.

    Raises:
        Violation: they differ.
    """
    assert not state.events, "nothing is Started in a world at rest"
    groups = state.topology.groups
    present = [(vm.name, vm.group, groups[vm.group].owner) for vm in state.topology.vms.values()]
    records = list(_records(store))
    report = availability(records, present, period)
    ours = {(vm.vm, vm.group, vm.owner): (vm.counted_ms, vm.disturbed_ms) for vm in report.vms}
    premises["T-13: an event disturbs a VM"] += report.disturbed_ms > 0
    for how, theirs in (
        ("history", _OfHistory(entry for each in store.entries() for entry in [each.entry])),
        ("the published procedure", _OfProcedure(records, present, period)),
    ):
        figures = theirs.figures(period)
        wrong = [key for key in ours.keys() | figures if ours.get(key) != figures.get(key)]
        if wrong:
            key = min(wrong)
            text = f"{key} has {ours.get(key)} ms, and by {how} {figures.get(key)} ms"
            raise Violation("T-13", text)


def _records(store: StoreReader) -> Iterator[AvailabilityRecord]:
    page = AvailabilityPage()
    while recorded := store.availability(page):
        yield from (each.record for each in recorded)
        page = replace(page, after=recorded[-1].place)


class _OfProcedure:
    """What a tenant computes from an export."""

    def __init__(
        self, records: Iterable[AvailabilityRecord], present: Iterable[TenureKey], period: Period
    ) -> None:
        times_ms = {"from": period.from_ms, "to": period.to_ms, "at": period.at_ms}
        lines = [{"kind": "period", **{name: written(at) for name, at in times_ms.items()}}]
        lines += [
            {"kind": "present", "vms": [vm], "group": group, "owner": owner}  # type: ignore[dict-item]
            for vm, group, owner in present
        ]
        self._lines = [*lines, *RECORD.each(records)]

    def figures(self, _: Period) -> Figures:
        """Return what the published procedure computes; names have no spaces here."""
        vms = _procedure(map(json.dumps, self._lines))["vms"]
        return {
            tuple(name.split(" ")): (each["counted_ms"], each["disturbed_ms"])
            for name, each in vms.items()
        }


class _OfHistory:
    """When each VM had which owner and when it was disturbed, from history alone."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._rows: dict[tuple[str, str | int], Columns] = {}
        self._had: defaultdict[TenureKey, list[tuple[int, int]]] = defaultdict(list)
        self._lost: defaultdict[TenureKey, list[tuple[int, int]]] = defaultdict(list)
        self._has: dict[str, tuple[TenureKey, int]] = {}
        self._started_ms: dict[str, int] = {}
        rows = Rows()
        for entry in entries:
            before = dict(self._has)
            for image in rows.whole(entry).images:
                self._apply(image.kind, image.key, image.row, entry.at_ms)
            if any(image.kind in {"vm", "group"} for image in entry.images):
                self._hand_over(before, entry.at_ms)
        for key, since_ms in self._has.values():
            self._had[key].append((since_ms, _FOREVER))

    def _apply(self, kind: str, key: str | int, row: Columns | None, at_ms: int) -> None:
        before = self._rows.get((kind, key))
        if kind == "group" and before and row and before["owner"] != row["owner"]:
            self._leave(str(key), str(before["owner"]), at_ms)
        if row is None:
            self._rows.pop((kind, key), None)
        else:
            self._rows[kind, key] = row
        if kind != "event" or row is None:
            return
        name = str(key)
        if row["state"] == "started":
            self._started_ms.setdefault(name, at_ms)
        elif name in self._started_ms:
            begin_ms = self._started_ms.pop(name)
            measured_ms = int(self._rows["operation", row["operation"]]["interruption_ms"])
            end_ms = at_ms if measured_ms < 0 else min(at_ms, begin_ms + measured_ms)
            self._lose(row, self._owner(str(row["group"])), begin_ms, end_ms)

    def _leave(self, group: str, owner: str, at_ms: int) -> None:
        """Count what is Started for the owner that a group leaves: nothing is measured by then."""
        for name, begin_ms in self._started_ms.items():
            row = self._rows["event", name]
            if row["group"] == group:
                self._lose(row, owner, begin_ms, at_ms)

    def _lose(self, event: Columns, owner: str, begin_ms: int, end_ms: int) -> None:
        for vm in json.loads(str(event["resources"])):
            self._lost[vm, str(event["group"]), owner].append((begin_ms, end_ms))

    def _owner(self, group: str) -> str:
        return str(self._rows["group", group]["owner"])

    def _hand_over(self, before: Mapping[str, tuple[TenureKey, int]], at_ms: int) -> None:
        now = {
            str(name): (str(name), str(row["group"]), self._owner(str(row["group"])))
            for (kind, name), row in self._rows.items()
            if kind == "vm" and ("group", row["group"]) in self._rows
        }
        for vm, (key, since_ms) in before.items():
            if now.get(vm) != key:
                self._had[key].append((since_ms, at_ms))
                del self._has[vm]
        for vm, key in now.items():
            if vm not in self._has:
                self._has[vm] = key, at_ms

    def figures(self, period: Period) -> Figures:
        """Return counted and disturbed time, span by span."""
        figures = {}
        for key, had in self._had.items():
            lost, ends = self._lost.get(key, []), {period.from_ms, period.to_ms}
            points = sorted(ends | {at for span in (*had, *lost) for at in span})
            counted = disturbed = 0
            for one, other in pairwise(at for at in points if period.from_ms <= at <= period.to_ms):
                if any(begin <= one < end for begin, end in had):
                    counted += other - one
                    if any(begin <= one < end for begin, end in lost):
                        disturbed += other - one
            if counted:
                figures[key] = counted, disturbed
        return figures
