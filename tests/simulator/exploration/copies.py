"""Copies of a state in which only what a step changes is new."""

import copy
from typing import TypeVar

from forewarn_core.fleet.maintenance import TargetProgress
from forewarn_core.fleet.state import State

T = TypeVar("T")
#: Tables of maintenances, which only a world with a declaration has.
_MAINTAINED = (
    *("maintenances", "plans", "targets", "choices", "deferrals", "policies", "tickets"),
    "last_disturbed_ms",
)


def cloned(state: State, *, of_fleet: bool) -> State:
    """A state that can be changed without the other."""
    made = copy.copy(state)
    for name in ("operations", "aborts", "events", "enrolments", "views", "waits", *_MAINTAINED):
        setattr(made, name, dict(getattr(state, name)))
    made._progress = {number: _copied_slots(each) for number, each in state._progress.items()}
    made.durations = {cause: {**samples} for cause, samples in state.durations.items()}
    made._by_group = {group: dict(ids) for group, ids in state._by_group.items()}
    for name in ("looks", "ends", "polls", "closes", "agreements", "decisions", "usage"):
        setattr(made, name, _copied(getattr(state, name)))
    made._undo = []
    made.waiting, made.places = _copied(state.waiting), _copied(state.places)
    if of_fleet:
        made.topology = state.topology.copy()
    return made


def _copied_slots(progress: TargetProgress) -> TargetProgress:
    return TargetProgress({**progress.targets}, {**progress.working}, {**progress.failed})


def _copied(thing: T) -> T:
    """Copy an object, and the containers it holds, and the sets in them."""
    made = copy.copy(thing)
    for name, held in vars(thing).items():
        if isinstance(held, (dict, list, set)):
            own = copy.copy(held)  # of the same type: a counter stays one
            if isinstance(own, dict):
                sets = {key: set(each) for key, each in own.items() if isinstance(each, set)}
                own.update(sets)
            setattr(made, name, own)
    return made
