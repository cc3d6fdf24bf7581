"""Everything that may happen next in a state of a small world, and what must hold of it.

The process, its node, VMs and drivers; what people may do is in `people.py`.
"""

from collections.abc import Iterator

from forewarn_core.fleet.lifecycle import OperationState
from forewarn_core.fleet.stimulus import (
    DriverAborted,
    DriverBegun,
    DriverDone,
    DriverFailed,
    Enable,
    NoticeShown,
    PlaneStimulus,
)
from forewarn_core.requests import ApprovalRequest
from tests.simulator.exploration.people import People
from tests.simulator.exploration.points import Duty, Point
from tests.simulator.exploration.situations import GRAIN_MS, Effect, Shown, Situations
from tests.simulator.exploration.worlds import SmallWorld
from tests.simulator.world.crash_points import Violation

S = OperationState
#: The longest notice of an impact, in grains of time: older than that is all the same.
AGE_GRAINS_MAX = 3


class Moves:
    """What may happen in one small world."""

    def __init__(self, world: SmallWorld) -> None:
        """Begin at its start."""
        self._world = world
        self.cores = Situations(world.policy, silence=world.silence)
        self._people = People(world, self.cores)

    def start(self) -> Point:
        """The first state: the fleet is there and shown."""
        world = self._world
        enabled = (Enable(group) for group in world.enabled)
        core = self.cores.first(world.start, *enabled, *world.before)
        shown = tuple(sorted(self.cores.all[core].shown.items()))
        return Point(core, True, (), (), shown, (), (), (), world.crashes, world.failovers)

    # ---- what may happen -----------------------------------------------------------------------

    def moves(self, point: Point) -> Iterator[tuple[str, Point]]:
        """Yield everything that may happen next, and where it leads."""
        if not point.up:
            yield from self._moves_without_process(point)
            return
        if not point.duties:
            self._check_done(point)
        for label, effect in self._people.offered(point.core):
            yield label, self._follows(point, effect)
        passing = self.cores.passing(point.core)
        if passing is not None:
            yield "time passes", self._ages(self._follows(point, passing))
        yield from self._moves_of_duties(point)
        yield from self._moves_of_vms(point)
        yield from self._moves_of_drivers(point)
        if point.crashes:
            told = tuple((number, attempt, False) for number, attempt, _ in point.told)
            yield (
                "crash",
                point._replace(up=False, duties=(), late=(), told=told, crashes=point.crashes - 1),
            )
        if point.failovers:
            late = tuple(duty.publish for duty in point.duties if duty.publish)
            gone = point._replace(up=False, duties=(), failovers=point.failovers - 1, late=late)
            yield "another writer takes over", self._start(gone)

    def _check_done(self, point: Point) -> None:
        """Invariants 12 and 13: who has done all of its duties owes nothing. Source: L-7."""
        state = self.cores.all[point.core].state
        told = {(number, attempt) for number, attempt, by_this in point.told if by_this}
        for number, operation in state.operations.items():
            if operation.state is S.ANNOUNCED and not operation.notice.shown_ms:
                raise Violation("12", f"nobody confirms the notice of {operation.id}")
            due = operation.state is S.RUNNING and not operation.execution.begun_ms
            if due and (number, operation.execution.attempt) not in told:
                raise Violation("13", f"nobody begins {operation.id}")
        if state.aborts:
            raise Violation("L-7", f"no driver is told that {sorted(state.aborts)} have ended")
        shown = self.cores.all[point.core].shown
        if dict(point.node) != shown:
            raise Violation("13", f"the node shows {point.node}, and {shown} is true")

    def _moves_without_process(self, point: Point) -> Iterator[tuple[str, Point]]:
        yield "restart", self._start(point)
        effect = self.cores.absent(point.core)
        if effect is not None:
            yield "time passes without a process", self._ages(point._replace(core=effect.after))
        yield from self._reads(point)

    def _start(self, point: Point) -> Point:
        effect = self.cores.restarted(point.core)
        self._people.heals(effect.after)
        duty = Duty(effect.publish, effect.begin, effect.abort, effect.announced, whole=True)
        told = tuple((number, attempt, False) for number, attempt, _ in point.told)
        started = point._replace(core=effect.after, up=True, duties=(duty,), told=told)
        self._check_due(started, effect)
        return started

    def _follows(self, point: Point, effect: Effect) -> Point:
        duties = point.duties
        if effect.publish or effect.begin or effect.abort or effect.announced:
            duty = Duty(effect.publish, effect.begin, effect.abort, effect.announced, whole=False)
            duties = (*duties, duty)
        self._check_due(point, effect)
        return point._replace(core=effect.after, duties=duties)

    def _check_due(self, point: Point, effect: Effect) -> None:
        """Invariant 6, as VMs see it: what starts by time was to be read for its whole notice."""
        if not effect.due or self._world.silence:
            return
        ages = dict(point.ages)
        for event_id, notice_ms in effect.due:
            if event_id not in ages:
                raise Violation("8", f"{event_id} starts, and no VM could read of it")
            if ages[event_id] * GRAIN_MS + GRAIN_MS <= notice_ms - GRAIN_MS:
                raise Violation("6", f"{event_id} starts after {ages[event_id]} grains of notice")

    def _ages(self, point: Point) -> Point:
        aged = tuple((event_id, min(age + 1, AGE_GRAINS_MAX)) for event_id, age in point.ages)
        return point._replace(ages=aged)

    # ---- the process and the node --------------------------------------------------------------

    def _moves_of_duties(self, point: Point) -> Iterator[tuple[str, Point]]:
        if point.late:
            taken = self._show(point, point.late[0], whole=False)
            yield "the node takes what the old writer sent", taken._replace(late=point.late[1:])
        if not point.duties:
            return
        duty, *more = point.duties
        if duty.publish or duty.whole:
            taken = self._show(point, duty.publish, whole=duty.whole)
            left = duty._replace(publish=(), whole=False)
            yield "the node shows it", self._without_empty(taken, left, more)
        elif duty.begin:
            yield from self._begins(point, duty, more)
        elif duty.abort:
            number, left = duty.abort[0], duty._replace(abort=duty.abort[1:])
            for said in ("", "it cannot be reached"):
                effect = self.cores.effect(point.core, DriverAborted(number, said))
                rest = self._without_empty(point, left, more)
                name = f"abort op-{number}" + (" in vain" if said else "")
                yield name, self._follows(rest, effect) if effect else rest
        else:
            effect = self.cores.effect(point.core, NoticeShown(duty.announced))
            rest = self._without_empty(point, duty._replace(announced=()), more)
            yield "the notice is confirmed", self._follows(rest, effect) if effect else rest

    def _begins(self, point: Point, duty: Duty, more: list[Duty]) -> Iterator[tuple[str, Point]]:
        (number, attempt, events), left = duty.begin[0], duty._replace(begin=duty.begin[1:])
        rest = self._without_empty(point, left, more)
        state = self.cores.all[point.core].state
        operation = state.operations.get(number)
        if operation is None or operation.execution.attempt != attempt:
            yield f"op-{number} has ended", rest
            return
        if (number, attempt, True) in point.told:
            raise Violation("9", f"op-{number} is begun twice")
        node = dict(point.node)
        for event_id in events:
            group = state.events[event_id].group
            for key in state.views:
                about = key == group or key in {f"{group}/{vm}" for vm in operation.vms}
                if not about or key not in node or self._is_late(key, node[key], point):
                    continue
                if (event_id, "Started") not in node[key][2]:
                    raise Violation("8", f"op-{number} is begun, {key} does not show it yet")
        told = {each for each in point.told if each[:2] != (number, attempt)}
        told.add((number, attempt, True))
        yield f"begin op-{number}", rest._replace(told=tuple(sorted(told)))

    def _is_late(self, key: str, shown: Shown, point: Point) -> bool:
        """Whether a group was enabled again, and the node has not heard of that yet."""
        return shown[0] != self.cores.all[point.core].shown[key][0]

    def _without_empty(self, point: Point, left: Duty, more: list[Duty]) -> Point:
        done = not (left.publish or left.whole or left.begin or left.abort or left.announced)
        return point._replace(duties=tuple(more) if done else (left, *more))

    def _show(
        self, point: Point, publish: tuple[tuple[str, Shown | None], ...], *, whole: bool
    ) -> Point:
        node = {} if whole else dict(point.node)
        for key, shown in publish:
            if shown is None:
                node.pop(key, None)
            else:
                node[key] = shown
        scheduled = {
            event_id
            for _, _, rows in node.values()
            for event_id, status in rows
            if status == "Scheduled"
        }
        known = dict(point.ages)
        ages = tuple(sorted((event_id, known.get(event_id, 0)) for event_id in scheduled))
        late = () if whole else point.late
        return point._replace(node=tuple(sorted(node.items())), ages=ages, late=late)

    # ---- VMs and drivers -----------------------------------------------------------------------

    def _reads(self, point: Point) -> Iterator[tuple[str, Point]]:
        topology = self.cores.all[point.core].state.topology
        node = dict(point.node)
        known = {name: (view, shown) for name, view, shown in point.read}
        for name in sorted(topology.vms):
            view = topology.view_of(name)
            shown = node.get(view)
            if shown is None or known.get(name) == (view, shown):
                continue
            if name in known:
                self._check_read(name, known[name], (view, shown))
            after = {**known, name: (view, shown)}
            read = tuple((vm, *after[vm]) for vm in sorted(after) if vm in topology.vms)
            yield f"{name} reads", point._replace(read=read)

    def _check_read(self, name: str, before: tuple[str, Shown], after: tuple[str, Shown]) -> None:
        """D-1, as a client sees it: the incarnation never goes back but with a reset."""
        (_, (epoch, incarnation, rows)), (view, (now, later, others)) = before, after
        group = view.partition("/")[0]
        if before[0].partition("/")[0] != group or now > epoch:
            return
        if (now, later) < (epoch, incarnation) or (later == incarnation and rows != others):
            raise Violation("2", f"{name} read {before}, and then {after}")

    def _moves_of_vms(self, point: Point) -> Iterator[tuple[str, Point]]:
        yield from self._reads(point)
        events = self.cores.all[point.core].state.events
        for name, _, (_, _, rows) in point.read:
            for event_id, status in rows:
                known = events.get(event_id)
                if status != "Scheduled" or known is None:
                    continue
                effect = self.cores.effect(point.core, ApprovalRequest(name, (event_id,), ""))
                if effect is not None:
                    yield f"{name} approves {event_id[:8]}", self._follows(point, effect)

    def _moves_of_drivers(self, point: Point) -> Iterator[tuple[str, Point]]:
        running = self.cores.all[point.core].state.operations
        for number, attempt, _ in point.told:
            if number not in running:
                continue
            reports: list[PlaneStimulus] = [
                DriverBegun(number, attempt),
                DriverDone(number, attempt),
            ]
            if self._world.operators:
                reports.append(DriverFailed(number, attempt, "it broke"))
            for report in reports:
                effect = self.cores.effect(point.core, report)
                if effect is not None:
                    yield f"{type(report).__name__} op-{number}", self._follows(point, effect)
