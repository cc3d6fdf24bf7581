"""How far each maintenance has come, counted as its hosts change; derived, never durable.

No rule about change may live here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forewarn.core.maintenance import Target, TargetState

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(slots=True)
class TargetProgress:
    """The hosts that one maintenance has touched."""

    targets: dict[str, Target] = field(default_factory=dict)
    working: dict[str, None] = field(default_factory=dict)
    #: Hosts that failed, and those whose drivers have, by name.
    failed: dict[str, None] = field(default_factory=dict)

    def put(self, target: Target) -> None:
        """Count a host in its current state."""
        self.drop(target.host)
        self.targets[target.host] = target
        if target.state is TargetState.WORKING:
            self.working[target.host] = None
        if is_failed(target):
            self.failed[target.host] = None

    def drop(self, host: str) -> None:
        """Remove a host from the counts."""
        self.targets.pop(host, None)
        self.working.pop(host, None)
        self.failed.pop(host, None)

    @property
    def counts(self) -> tuple[int, int, int]:
        """How many hosts it has touched, works on, and has seen fail."""
        return len(self.targets), len(self.working), len(self.failed)

    @property
    def worked_on(self) -> list[Target]:
        """The hosts it works on; costs them."""
        return [self.targets[host] for host in self.working]


def is_failed(target: Target) -> bool:
    """Whether a host counts against its maintenance's limit of failures."""
    return target.state is TargetState.FAILED or bool(target.reason)


class Maintenances:
    """The progress of every maintenance that has not ended; a change costs its host."""

    def __init__(self) -> None:
        """Begin with none."""
        self._of: dict[int, TargetProgress] = {}

    def of(self, number: int) -> TargetProgress:
        """Return the progress of a maintenance; callers must not change it."""
        return self._of.get(number) or TargetProgress()

    def put(self, before: Target | None, after: Target | None) -> None:
        """Take a change in."""
        if after is not None:
            self._of.setdefault(after.maintenance, TargetProgress()).put(after)
        elif before is not None:
            self._of[before.maintenance].drop(before.host)

    def drop(self, number: int) -> Iterable[str]:
        """Forget a maintenance that has ended; return the hosts it had touched."""
        known = self._of.pop(number, None)
        return known.targets if known else ()
