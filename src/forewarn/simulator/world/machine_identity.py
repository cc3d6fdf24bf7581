"""What does not change about a simulated machine: its name, its clock, the habits of its people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forewarn.simulator.world.agent_habits import AgentHabits


@dataclass(frozen=True, slots=True)
class MachineIdentity:
    """What does not change about a machine."""

    name: str
    address: str
    version: str
    habit: AgentHabits
    #: How far its clock is from true time, in ms.
    skew_ms: int = 0
    #: How many millionths its clock runs too fast one day and too slow the next.
    rate_ppm: int = 0
    #: When in each second it polls, in ms.
    phase_ms: int = 0
    #: Where it and the other VMs of an event tell each other that they are prepared, one of
    #: `peers.PLACES`; empty where each approves without asking.
    place: str = ""
