"""What does not change about a simulated machine: its name, its clock, the habits of its people."""

from forewarn_base.values import value
from tests.simulator.world.agent_habits import AgentHabits
from tests.simulator.world.event_queue import DAY_MS, START_MS


@value
class MachineProfile:
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
    #: Where it and the other VMs of an event announce to each other that they are prepared, one of
    #: `peers.PLACES`; empty where each approves without asking.
    place: str = ""

    def ahead_ms(self, now_ms: int) -> int:
        """How far its clock is ahead of true time, in ms; it gains by day and loses by day."""
        if not self.rate_ppm:
            return self.skew_ms
        passed_ms = (now_ms - START_MS) % (2 * DAY_MS)
        return self.skew_ms + min(passed_ms, 2 * DAY_MS - passed_ms) * self.rate_ppm // 1_000_000
