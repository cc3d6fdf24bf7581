"""What scenarios of an emulator that was killed have left in its store, and taking it back.

It is read from history, which has what scenarios did, and what machines were before.
No scenario is run in here. For the start only, before anybody can ask anything.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeAlias

from forewarn.core.history import Rows
from forewarn.core.lifecycle import Operation, OperationState
from forewarn.core.maintenance.stimuli import ApplyPolicy, CancelMaintenance
from forewarn.core.records import from_row
from forewarn.core.stimulus import Cancel, Complete, Repair
from forewarn.core.topology import Health
from forewarn.drivers.simulated import SimulatedDriver
from forewarn.emulator.default_fleet import ACTOR, SCENARIO
from forewarn.emulator.scenario_machines import FormerFleet, Touched, taken_back
from forewarn.emulator.scenario_tidy import in_parts
from forewarn.errors import CallerError
from forewarn.planning.policy_text import read_policy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from forewarn.control.plane import ControlPlane
    from forewarn.core.records import Row
    from forewarn.core.state import Entry, Image
    from forewarn.core.stimulus import ChangeTopology, Stimulus
    from forewarn.core.topology import Topology
    from forewarn.planning.policy import Policy

    #: Kind and name of a machine.
    Key: TypeAlias = tuple[str, str | int]

log = logging.getLogger("forewarn.emulator")

REASON = "the emulator was killed while its scenario ran"
#: The actor that ends work for somebody who asked for it.
_CLOCKWORK = frozenset({"clock", SimulatedDriver.name})
_MACHINES = frozenset({"host", "group", "vm"})


def take_back(plane: ControlPlane, now_ms: int) -> tuple[str, ...]:
    """Take back what scenarios that were cut off have left; return their names, sorted."""
    rows = Rows()
    traces = ScenarioTraces(rows.whole(recorded.entry) for recorded in plane.store.entries())
    live = [each for each in plane.state.operations.values() if each.actor.startswith(SCENARIO)]
    actors = {each.actor for each in live} | traces.actors
    try:
        actors |= _end_maintenances(plane, traces.policy, now_ms)
        for operation in live:
            if operation.number in plane.state.operations:
                plane.commit(_ending(operation), actor=operation.actor, now_ms=now_ms)
        for host in traces.failed(plane.state.topology):
            plane.commit(Repair(host), actor=ACTOR, now_ms=now_ms)
    except CallerError as refusal:
        log.warning("what scenarios have left cannot be taken back: %s", refusal)
        return ()
    attempts = in_parts(taken_back(*traces.compared(plane.state.topology)))
    try:
        part = next(attempts)
        while True:
            part = attempts.send(_refusal(plane, part, now_ms))
    except StopIteration as end:
        for subject, why in end.value.items():  # somebody's work or machines stand in the way
            log.warning("%s, which a scenario has left, cannot be taken back: %s", subject, why)
    return tuple(sorted(actor.removeprefix(SCENARIO) for actor in actors))


def _end_maintenances(plane: ControlPlane, before: Policy | None, now_ms: int) -> set[str]:
    """End the maintenances of scenarios and put the policy before theirs in force; say whose."""
    actors = set()
    for maintenance in list(plane.state.maintenances.values()):
        if maintenance.actor.startswith(SCENARIO):
            actors.add(maintenance.actor)
            word = CancelMaintenance(maintenance.number, REASON)
            plane.commit(word, actor=maintenance.actor, now_ms=now_ms)
    applied = plane.state.applied_policy
    if applied is not None and applied.actor.startswith(SCENARIO):
        actors.add(applied.actor)
        policy = before or plane.policy.maintenance
        plane.commit(ApplyPolicy(policy), actor=ACTOR, now_ms=now_ms)
    return actors


def _refusal(plane: ControlPlane, change: ChangeTopology, now_ms: int) -> str:
    try:
        plane.commit(change, actor=ACTOR, now_ms=now_ms)
    except CallerError as refusal:
        return str(refusal)
    return ""


class ScenarioTraces:
    """What machines were before scenarios changed them, for those that are not so again."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        """Follow history from its beginning."""
        self._before: dict[Key, Row | None] = {}
        self._by: dict[Key, str] = {}
        self._known: dict[Key, Row | None] = {}
        #: The scenario whose work was the last that names a machine; drivers act for it.
        self._worked_by: dict[Key, str] = {}
        #: The last policy that was not a scenario's; None: none was applied.
        self.policy: Policy | None = None
        for entry in entries:
            for image in entry.images:
                if image.kind == "operation" and image.row is not None:
                    self._work(image.row)
                elif image.kind == "policy" and image.row is not None:
                    if not entry.actor.startswith(SCENARIO):
                        self.policy = read_policy(str(image.row["body"]))
                elif image.kind in _MACHINES:
                    self._machine(entry.actor, image)

    @property
    def actors(self) -> set[str]:
        """The scenarios that have left something, as history calls them."""
        return set(self._by.values())

    def failed(self, now: Topology) -> Iterator[str]:
        """Yield the hosts that are well no more, but were."""
        for (kind, name), row in self._before.items():
            if kind == "host" and row is not None and name in now.hosts:
                ill = now.hosts[str(name)].health is not Health.HEALTHY
                if ill and row["health"] == Health.HEALTHY.value:
                    yield str(name)

    def compared(self, now: Topology) -> tuple[FormerFleet, Topology, Touched]:
        """Return the fleet as it was, as it is, and the machines in which they may differ."""
        before: dict[str, dict[str, Any]] = {
            "host": dict(now.hosts),
            "group": dict(now.groups),
            "vm": dict(now.vms),
        }
        touched: dict[str, set[str]] = {kind: set() for kind in before}
        for (kind, key), row in self._before.items():
            name = str(key)
            touched[kind].add(name)
            before[kind].pop(name, None)
            if row is not None:
                before[kind][name] = from_row(kind, row)
        hosts, groups, vms = (frozenset(touched[kind]) for kind in ("host", "group", "vm"))
        then = FormerFleet(before["host"], before["group"], before["vm"])
        return then, now, Touched(hosts, groups, vms)

    def _work(self, row: Row) -> None:
        story = str(row["actor"])
        if not story.startswith(SCENARIO):
            if not self._worked_by:
                return
            story = ""
        operation = from_row("operation", row)
        assert isinstance(operation, Operation)
        for key in (("host", operation.host), *(("vm", name) for name in operation.vms)):
            self._worked_by[key] = story

    def _machine(self, actor: str, image: Image) -> None:
        key = (image.kind, image.key)
        story = actor if actor.startswith(SCENARIO) else ""
        if actor in _CLOCKWORK:
            story = self._worked_by.get(key, "")
        if story:
            self._before.setdefault(key, self._known.get(key))
            self._by[key] = story
        self._known[key] = image.row
        if key in self._before and (not story or self._before[key] == image.row):
            del self._before[key], self._by[key]


def _ending(operation: Operation) -> Stimulus:
    """Return what ends work without any further effect on the fleet."""
    if operation.state is OperationState.RUNNING:
        return Complete(operation.number, failed=True, reason=REASON)
    return Cancel(operation.number, REASON)
