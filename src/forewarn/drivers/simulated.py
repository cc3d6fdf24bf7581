"""The simulated driver, in which every operation takes its announced time.

The service chooses the destinations of VMs that leave their host.
"""

from __future__ import annotations

from collections.abc import Mapping

from forewarn.core.impact import SECOND_MS, TRAITS, Impact
from forewarn.core.lifecycle import Operation
from forewarn.drivers import Progress, Task

#: Durations of impacts without an announced duration, in seconds, as in published examples: freezes
#: of 5 to 9 s and reboots of less than a minute.
USUAL_S: dict[Impact, int] = {
    Impact.FREEZE: 9,
    Impact.REBOOT: 60,
    Impact.REDEPLOY: 180,
    Impact.PREEMPT: 10,
    Impact.TERMINATE: 10,
}

#: Duration of a failed host's return, in seconds.
FAILURE_S = 300


def create(name: str, options: Mapping[str, object], _: str = "") -> SimulatedDriver:
    """Create a driver, which has no options.

    Raises:
        ValueError: there is an option.
    """
    if options:
        raise ValueError(f"unknown option {', '.join(options)}")
    return SimulatedDriver(name)


class SimulatedDriver:
    """Reports the end of each operation after its announced duration."""

    name = "simulated"
    #: See `registry.unscheduled`.
    unscheduled = True

    def __init__(self, name: str = "") -> None:
        self.name = name or self.name

    def begin(self, task: Task) -> None:
        """Do nothing, because `progress` counts from the operation's start."""

    def progress(self, task: Task, now_ms: int) -> Progress:
        """Report the end once the announced time is over."""
        ends_ms = end_ms(task.operation)
        return Progress(done=True) if now_ms >= ends_ms else Progress(again_ms=ends_ms)

    def abort(self, task: Task) -> None:
        """Do nothing, because the driver has begun no work."""


def end_ms(operation: Operation) -> int:
    """Return the end of running work, ms since the epoch UTC."""
    assert operation.execution.started_ms is not None, operation
    return operation.execution.started_ms + duration_s(operation) * SECOND_MS


def duration_s(operation: Operation) -> int:
    """Return the announced or else usual duration of an operation, in seconds."""
    if operation.duration_s >= 0:
        return operation.duration_s
    return FAILURE_S if TRAITS[operation.cause].fault else USUAL_S[operation.impact]
