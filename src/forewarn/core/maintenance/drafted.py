"""Maintenances as a draft sees them: what is, and what the draft has written over it.

Which change is right is decided in `commands.py` and `waves.py`, never here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.maintenance.index import is_failed
from forewarn.core.maintenance.phase import Checking
from forewarn.core.maintenance.records import TargetState, target_key

if TYPE_CHECKING:
    from forewarn.core.maintenance.records import Maintenance, MaintenancePlan, Target
    from forewarn.core.state import Changes, State


class DraftedMaintenances:
    """Reads through a draft's changes to the state."""

    def __init__(self, state: State, changes: Changes) -> None:
        """Read these two; nothing is written by this."""
        self._state, self._changes = state, changes

    def get(self, number: int) -> Maintenance | None:
        """Return a maintenance as drafted, or as it is; None if it is not live."""
        return self._changes.maintenances.get(number) or self._state.maintenances.get(number)

    def live(self) -> tuple[int, ...]:
        """Numbers of those that had not ended before this draft."""
        return tuple(self._state.maintenances)

    def without_plan(self) -> list[int]:
        """Numbers of those of them that wanted a plan made, or a gate checked; costs them all."""
        known = self._state.maintenances.items()
        return [n for n, each in known if each.plan_wanted or isinstance(each.phase, Checking)]

    def due(self, now_ms: int) -> list[int]:
        """Running maintenances that are due since it was last asked."""
        return self._state.waves.due(now_ms)

    def plan(self, plan_id: str) -> MaintenancePlan | None:
        """Return a plan in force, by its id."""
        return self._changes.plans.get(plan_id) or self._state.plans.get(plan_id)

    def target(self, maintenance: int, host: str) -> Target | None:
        """Return what a maintenance has made of a host; None if it has not touched it."""
        key = target_key(maintenance, host)
        if key in self._changes.targets:
            return self._changes.targets[key]
        return self._state.targets.get(key)

    def targets(self, maintenance: int) -> dict[str, Target]:
        """Return every host that a maintenance has touched; costs them all."""
        found = dict(self._state.progress.of(maintenance).targets)
        for key, target in self._changes.targets.items():
            number, _, host = key.partition("/")
            if int(number) == maintenance:
                found.pop(host, None)
                if target is not None:
                    found[host] = target
        return found

    def counts(self, maintenance: int) -> tuple[int, int, int]:
        """Return how many hosts it has touched, works on, and has seen fail.

        Costs what this draft has changed.
        """
        progress = self._state.progress.of(maintenance)
        found = [len(progress.targets), len(progress.working), len(progress.failed)]
        for key, after in self._changes.targets.items():
            number, _, host = key.partition("/")
            if int(number) == maintenance:
                for place, now in enumerate(_counted(after)):
                    found[place] += now - _counted(progress.targets.get(host))[place]
        return found[0], found[1], found[2]

    def working(self, maintenance: int) -> list[Target]:
        """Return the hosts that a maintenance works on; costs them."""
        names = [*self._state.progress.of(maintenance).working]
        names += [each.host for each in self._changes.targets.values() if each]
        found = [self.target(maintenance, name) for name in dict.fromkeys(names)]
        return [each for each in found if each and each.state is TargetState.WORKING]


def _counted(target: Target | None) -> tuple[int, int, int]:
    """Return what a host adds to: touched, worked on, failed."""
    if target is None:
        return 0, 0, 0
    return 1, int(target.state is TargetState.WORKING), int(is_failed(target))
