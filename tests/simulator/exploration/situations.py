"""The real core as a graph: each situation once, and what each stimulus makes of it.

A situation is the durable state, what the core derives from it, and how far every time in it is
from now; two that differ in nothing else are one. Which stimuli there are is said in `worlds.py`,
what must hold in `promises.py`.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeAlias

from forewarn_base.errors import CallerError
from forewarn_core.fleet.draft import Terms
from forewarn_core.fleet.lifecycle import Alert, Operation, OperationState
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.state import Changes, State
from forewarn_core.fleet.step import next_deadline_ms, step
from forewarn_core.fleet.stimulus import PlaneStimulus, Recover, Tick
from forewarn_server.control.planning import PlanRefused, plan_made, planner_task
from tests.simulator.exploration import promises
from tests.simulator.exploration.copies import cloned
from tests.simulator.exploration.situation_promises import check_situation
from tests.simulator.exploration.worlds import START_MS
from tests.simulator.world.crash_points import Violation

#: Time passes by at most this much at once: all notices of the worlds are multiples of it.
GRAIN_MS = 300_000

#: A document: how often its group was enabled, incarnation, id and status of each event.
Shown: TypeAlias = tuple[int, int, tuple[tuple[str, str], ...]]
S = OperationState
#: Tables of maintenances, their owners' words and tickets.
MAINTAINED = ("maintenances", "plans", "targets", "choices", "deferrals", "policies", "tickets")


class Effect(NamedTuple):
    """What follows from a stimulus: the situation after it, and what the process must do."""

    after: int
    #: Documents to be shown, None where there is none any more.
    publish: tuple[tuple[str, Shown | None], ...]
    #: Operation, attempt, and the events by which it is shown. VMs that arrive later are told of
    #: what is under way where they are; the driver does not wait for that.
    begin: tuple[tuple[int, int, tuple[str, ...]], ...]
    abort: tuple[int, ...]
    announced: tuple[int, ...]
    #: Events of enabled groups whose operations started since their time has come, with the least
    #: notice of each, in ms.
    due: tuple[tuple[str, int], ...]


@dataclass(slots=True)
class Situation:
    """One of all that are alike."""

    state: State
    now_ms: int
    #: Event ids given out.
    guids: int
    #: Which wishes of the world were uttered, as bits.
    uttered: int
    #: Group -> how often it was enabled.
    epochs: dict[str, int]
    effects: dict[object, Effect | None] = field(default_factory=dict)
    #: Everything it shows, by view.
    shown: dict[str, Shown] = field(default_factory=dict)


class Situations:
    """Every situation that was met, and what leads from one to another."""

    def __init__(self, policy: NoticePolicy, *, silence: bool) -> None:
        """Begin with none; without `silence` no group is ever disabled."""
        self.policy = policy
        self.all: list[Situation] = []
        self._silence = silence
        self._numbers: dict[object, int] = {}
        #: How often the real step was called, and how often it refused.
        self.steps = self.refused = 0

    def first(self, *stimuli: PlaneStimulus) -> int:
        """Return the situation that some stimuli lead to from nothing at all."""
        number = self._note(Situation(State(), START_MS, 0, 0, {}))
        for stimulus in stimuli:
            effect = self.effect(number, stimulus)
            assert effect is not None, stimulus
            number = effect.after
        return number

    def effect(self, number: int, stimulus: PlaneStimulus, wish: int = 0) -> Effect | None:
        """What a stimulus does in a situation; None if it is refused or changes nothing."""
        effects = self.all[number].effects
        key = (stimulus, wish)
        if key not in effects:
            effects[key] = self._step(number, stimulus, wish, wait_ms=0)
        return effects[key]

    def planned(self, number: int, maintenance: int) -> Effect | None:
        """Have the plan made that a maintenance waits for. Source: F-2."""
        situation, key = self.all[number], ("plan", maintenance)
        if key not in situation.effects:
            task = planner_task(
                situation.state,
                situation.state.maintenances[maintenance],
                policy=self.policy,
                now_ms=situation.now_ms,
            )
            try:
                plan = plan_made(task)
            except PlanRefused as refused:
                raise Violation("F-2", str(refused)) from refused
            situation.effects[key] = self._step(number, plan, 0, wait_ms=0)
        return situation.effects[key]

    def passing(self, number: int) -> Effect | None:
        """Let time pass until something is due, a grain of it at most."""
        situation = self.all[number]
        if "passing" not in situation.effects:
            now_ms = situation.now_ms
            due_ms = next_deadline_ms(situation.state, self.policy, now_ms)
            wait_ms = GRAIN_MS if due_ms is None else min(due_ms - now_ms, GRAIN_MS)
            situation.effects["passing"] = self._step(number, Tick(), 0, wait_ms=wait_ms)
        return situation.effects["passing"]

    def absent(self, number: int) -> Effect | None:
        """Let time pass while no process runs."""
        situation = self.all[number]
        if "absent" not in situation.effects:
            after = self._moved(situation, situation.now_ms + GRAIN_MS)
            found = self._note(after)
            same = Effect(found, (), (), (), (), ())
            situation.effects["absent"] = None if found == number else same
        return situation.effects["absent"]

    def restarted(self, number: int) -> Effect:
        """Start a process: it loads what is durable, and takes up what was cut off."""
        situation = self.all[number]
        if "restarted" not in situation.effects:
            loaded = State()
            loaded.adopt(everything(situation.state))
            fresh = self._moved(situation, situation.now_ms)
            fresh.state = loaded
            found = self._note(fresh)
            effect = self.effect(found, Recover()) or Effect(found, (), (), (), (), ())
            shown = self.all[effect.after].shown
            situation.effects["restarted"] = effect._replace(publish=tuple(sorted(shown.items())))
        effect_known = situation.effects["restarted"]
        assert effect_known is not None
        return effect_known

    # ---- making them ---------------------------------------------------------------------------

    def _step(
        self, number: int, stimulus: PlaneStimulus, wish: int, *, wait_ms: int
    ) -> Effect | None:
        before = self.all[number]
        now_ms = before.now_ms + wait_ms
        given = before.guids

        def new_guid() -> str:
            nonlocal given
            given += 1
            return f"{given:08X}-0000-4000-8000-000000000000"

        terms = Terms(self.policy, "somebody", new_guid, "manual")
        self.steps += 1
        try:
            outcome = step(before.state, stimulus, now_ms=now_ms, terms=terms)
        except CallerError:
            self.refused += 1
            promises.check_untouched(before, self._numbers[self._key(before)] == number)
            return None
        except Exception as bug:
            raise Violation("bug", f"{type(stimulus).__name__} raises {bug!r}") from bug
        assert not outcome.remaining, outcome
        changes = outcome.changes
        state = cloned(before.state, of_fleet=changes.of_fleet)
        state.keep()
        before.state.rollback()
        promises.check_untouched(before, self._numbers[self._key(before)] == number)
        epochs = dict(before.epochs)
        for group, enrolment in changes.enrolments.items():
            if enrolment is not None and group not in before.state.enrolments:
                epochs[group] = epochs.get(group, 0) + 1
        after = Situation(state, now_ms, given, before.uttered | wish, epochs)
        due = promises.check_step(before, stimulus, outcome, after, self.policy)
        found = self._note(after)
        effect = Effect(
            found,
            tuple(
                (key, self.all[found].shown[key] if view is not None else None)
                for key, view in sorted(changes.views.items())
            ),
            tuple((o.number, o.execution.attempt, o.events) for o in outcome.begin),
            tuple(each.number for each in outcome.abort),
            outcome.announced,
            due,
        )
        return effect if found != number or any(effect[1:]) else None

    def _moved(self, situation: Situation, now_ms: int) -> Situation:
        state, guids, uttered = situation.state, situation.guids, situation.uttered
        return Situation(state, now_ms, guids, uttered, situation.epochs)

    def _note(self, situation: Situation) -> int:
        key = self._key(situation)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.all)
            self.all.append(situation)
            situation.shown = {
                key: (
                    situation.epochs[view.group],
                    view.document.incarnation,
                    tuple((event.event_id, event.status) for event in view.document.events),
                )
                for key, view in situation.state.views.items()
            }
            check_situation(situation)
        return found

    def _key(self, situation: Situation) -> object:
        state, now_ms = situation.state, situation.now_ms
        topology = state.topology
        return (
            tuple(
                [_operation_key(op, now_ms) for _, op in sorted(state.operations.items())]
                + [(op.number, op.execution.attempt) for _, op in sorted(state.aborts.items())]
            ),
            tuple(
                sorted(
                    (e.id, e.operation, e.state.value, e.approved_by) for e in state.events.values()
                )
            ),
            tuple(
                sorted(
                    (e.group, e.polled_ms - now_ms if self._silence else 0)
                    for e in state.enrolments.values()
                )
            ),
            tuple(sorted((key, view.document.incarnation) for key, view in state.views.items())),
            tuple(sorted((vm.name, vm.host, vm.group, vm.gpu) for vm in topology.vms.values())),
            tuple(
                sorted((h.name, h.health.value, h.fault_domain) for h in topology.hosts.values())
            ),
            tuple(sorted((g.name, g.strict_approval) for g in topology.groups.values())),
            tuple(sorted(state.waits.items())),
            frozenset(each for each in state.looks._passed if each[1] == "start"),
            tuple(_relative(each, now_ms) for name in MAINTAINED for each in _table(state, name)),
            state.last_number,
            situation.guids,
            situation.uttered,
            tuple(sorted(situation.epochs.items())),
        )


def _table(state: State, name: str) -> list[object]:
    """Return the records of a table in order; plans in order of their maintenances."""
    table = getattr(state, name)
    return [table[key] for key in sorted(table, key=str)] if name != "plans" else [*table.values()]


def _relative(thing: object, now_ms: int) -> object:
    """Return what of a record can matter to anything that comes: times that are still ahead."""
    if isinstance(thing, (tuple, list)):
        return tuple(_relative(each, now_ms) for each in thing)
    if isinstance(thing, dict):
        return tuple((key, _relative(each, now_ms)) for key, each in thing.items())
    names = getattr(type(thing), "__match_args__", None)
    if not names or isinstance(thing, Enum):
        return thing
    return (type(thing).__name__, *(_member(thing, name, now_ms) for name in names))


def _member(thing: object, name: str, now_ms: int) -> object:
    held = getattr(thing, name)
    if name in {"id", "parent", "plan"} and isinstance(held, str):
        return bool(held)  # a plan is the same whenever it was made
    if name.endswith("_ms") and isinstance(held, int):
        return max(held - now_ms, -1)
    return _relative(held, now_ms)


def _operation_key(operation: Operation, now_ms: int) -> object:
    """What of an operation can matter to anything that comes."""
    o = operation
    if o.maintenance:
        return _relative(o, now_ms)
    asked = (max(o.requested_start_ms - now_ms, 0),) if o.requested_start_ms else ()
    fixed = (o.number, o.request, o.cause.value, o.host, o.vms, o.destination, o.silent, asked)
    if o.state is S.PLANNED:
        return fixed
    if o.state is S.ANNOUNCED:
        since_ms = 0 if o.notice.shown_ms else now_ms - o.announced_ms
        return fixed, bool(o.notice.shown_ms), o.not_before_ms - now_ms, since_ms, o.alert, o.events
    since_ms = 0 if o.alert is not Alert.NONE else now_ms - o.execution.since_ms
    return (
        fixed,
        o.execution.attempt,
        bool(o.execution.begun_ms),
        bool(o.reason),
        o.alert,
        since_ms,
        o.events,
    )


def everything(state: State) -> Changes:
    """The durable part of a state, as it is loaded from a store."""
    changes = Changes(
        last_number=state.last_number,
        topology=state.topology.copy(),
        operations={**state.operations, **state.aborts},
        events=dict(state.events),
        enrolments=dict(state.enrolments),
        views=dict(state.views),
    )
    for name in MAINTAINED:
        getattr(changes, name).update(getattr(state, name))
    return changes
