"""Cleanup of a scenario: undoes its changes, if necessary one machine at a time.

Work requested by others continues, and can delay the cleanup.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forewarn.core.stimulus import ChangeTopology, Repair
from forewarn.core.topology import Health
from forewarn.emulator.default_fleet import is_empty
from forewarn.emulator.scenario_machines import Touched, taken_back
from forewarn.errors import CallerError

if TYPE_CHECKING:
    from collections.abc import Generator

    from forewarn.control.engine import ControlEngine
    from forewarn.control.plane import ControlPlane
    from forewarn.core.stimulus import Stimulus
    from forewarn.core.topology import Topology


class TidyUp:
    """The changes of one run, with the actions that undo them; used only on the event loop."""

    def __init__(self, control: ControlEngine, actor: str, before: Topology) -> None:
        """Store the arguments of the cleanup.

        Args:
            control: the control loop, which applies the changes.
            actor: actor of the changes in history.
            before: the fleet to restore.
        """
        self._control = control
        self._actor = actor
        self._before = before
        self.touched = Touched()
        #: Remaining changes, such as `vm upgrade-2`, each with the reason.
        self.left: dict[str, str] = {}

    async def attempt(self) -> None:
        """Undo as many changes as possible; O(machines of the scenario)."""
        left: dict[str, str] = {}
        before, now = self._before, await self._topology()
        for name in sorted(self.touched.hosts & now.hosts.keys()):
            was_healthy = name not in before.hosts or before.hosts[name].health is Health.HEALTHY
            if was_healthy and now.hosts[name].health is not Health.HEALTHY:
                refusal = await self._refusal(Repair(name))
                if refusal:
                    left[f"host {name}"] = refusal
        change = taken_back(before, await self._topology(), self.touched)
        attempts = in_parts(change)
        try:
            part = next(attempts)
            while True:
                part = attempts.send(await self._refusal(part))
        except StopIteration as end:
            self.left = left | end.value

    async def _refusal(self, stimulus: Stimulus) -> str:
        """Apply a change; return the reason of a refusal, or an empty text."""
        try:
            await asyncio.wrap_future(self._control.submit(stimulus, self._actor))
        except CallerError as refusal:
            return str(refusal)
        return ""

    async def _topology(self) -> Topology:
        return await asyncio.wrap_future(self._control.read(_topology))


def in_parts(change: ChangeTopology) -> Generator[ChangeTopology, str, dict[str, str]]:
    """Yield a change; after a refusal, yield its parts as long as some succeed.

    The caller sends the reason of each refusal, or an empty text. The generator returns the
    remaining parts with reasons.
    """
    if is_empty(change) or not (yield change):
        return {}
    parts = _parts(change)
    while True:
        left: dict[str, str] = {}
        for subject, part in parts.items():
            refusal = yield part
            if refusal:
                left[subject] = refusal
        if not left or len(left) == len(parts):
            return left
        parts = {subject: parts[subject] for subject in left}


def _parts(change: ChangeTopology) -> dict[str, ChangeTopology]:
    """Return the parts of a change by kind and name, in the order most likely to succeed."""
    parts = {f"host {each.name}": ChangeTopology(hosts=(each,)) for each in change.hosts}
    parts |= {f"group {each.name}": ChangeTopology(groups=(each,)) for each in change.groups}
    parts |= {f"vm {each.name}": ChangeTopology(vms=(each,)) for each in change.vms}
    for kind, name in change.removed:
        parts[f"{kind} {name}"] = ChangeTopology(removed=((kind, name),))
    return parts


def _topology(plane: ControlPlane) -> Topology:
    return plane.state.topology.copy()
