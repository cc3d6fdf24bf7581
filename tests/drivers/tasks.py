"""Tasks for drivers, and waiting until they have ended."""

import time

from forewarn_core.fleet.impact import Cause, Impact, Source
from forewarn_core.fleet.lifecycle import Execution, Operation, OperationState
from forewarn_drivers import Driver, Progress, Task
from tests.waiting import wait_until


def now_ms() -> int:
    """Return the time, ms since the epoch UTC."""
    return int(time.time() * 1000)


def task(number: int = 12, attempt: int = 1, generation: int = 1, **facts: object) -> Task:
    """Return a task: the reboot of a host."""
    operation = Operation(
        number=number,
        request=number,
        cause=Cause.HOST_REBOOT,
        impact=Impact.REBOOT,
        source=Source.PLATFORM,
        routine=True,
        host="h1",
        vms=("web_0", "web_1"),
        of_vm=False,
        description="kernel",
        state=OperationState.RUNNING,
        execution=Execution(now_ms(), attempt=attempt),
    )
    for name, fact in facts.items():
        setattr(operation, name, fact)
    return Task(operation, generation)


def ended(driver: Driver, of: Task) -> Progress:
    """Return what a driver says of a task once it has ended."""
    said: list[Progress] = []

    def over() -> bool:
        said.append(driver.progress(of, now_ms()))
        return bool(said[-1].done or said[-1].failed)

    wait_until(over)
    return said[-1]
