"""The control loop from the event loop, with one actor of history."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from forewarn_base.errors import CallerError
from forewarn_base.values import value
from forewarn_core.fleet.step import StepResult
from forewarn_core.fleet.stimulus import PlaneStimulus
from forewarn_core.fleet.topology import Topology
from forewarn_server.control.plane import ControlPlane
from forewarn_server.control.run_loop import ControlLoop

log = logging.getLogger("forewarn.emulator")

T = TypeVar("T")


@value
class ActingControl:
    """The control loop, for one actor."""

    loop: ControlLoop
    actor: str

    async def submit(self, stimulus: PlaneStimulus, actor: str = "") -> StepResult:
        """Apply a stimulus; return its commit.

        Raises:
            ForewarnError: the stimulus is refused.
        """
        return await asyncio.wrap_future(self.loop.submit(stimulus, actor or self.actor))

    async def attempt(self, stimulus: PlaneStimulus, actor: str = "") -> str:
        """Apply a stimulus; log and return the reason of a refusal, or an empty text."""
        try:
            await self.submit(stimulus, actor)
        except CallerError as refusal:
            log.info("%s: %s", self.actor, refusal)
            return str(refusal)
        return ""

    async def read(self, query: Callable[[ControlPlane], T]) -> T:
        """Return the result of a query on the control loop's thread."""
        return await asyncio.wrap_future(self.loop.read(query))


def copied_topology(plane: ControlPlane) -> Topology:
    """Return a copy of the current fleet."""
    return plane.state.topology.copy()
