"""Those who ask a simulated service for something."""

from concurrent.futures import Future
from typing import Protocol

from forewarn_core.fleet.step import StepResult
from forewarn_core.fleet.stimulus import PlaneStimulus
from tests.simulator.world.deployment import Deployment


class Operators(Protocol):
    """Those who ask the service for something, and where they do."""

    @property
    def world(self) -> Deployment:
        """What they look after."""

    def ask(self, stimulus: PlaneStimulus, actor: str) -> Future[StepResult]:
        """Ask the service; return its answer, which may not have come yet."""

    def submit(self, stimulus: PlaneStimulus, actor: str) -> bool:
        """Ask the service; return whether it agreed."""
