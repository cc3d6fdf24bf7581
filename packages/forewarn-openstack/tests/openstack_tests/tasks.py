"""Tasks of the nova driver, and their way to the end."""

import itertools
from pathlib import Path

import pytest

from forewarn_base.clock import SystemClock
from forewarn_core.fleet.impact import TRAITS, Cause, Impact
from forewarn_core.fleet.lifecycle import Execution, Operation
from forewarn_drivers import Progress, Task
from forewarn_drivers.task_records import TaskRecords
from forewarn_openstack.config import NovaConfig
from forewarn_openstack.driver import NovaDriver
from forewarn_store import open_store
from tests.waiting import LOOK_EVERY_S, wait_until

#: openstacksdk warns of a default of its own.
UNWARNED = pytest.mark.filterwarnings("ignore:Support for InfluxDB")
NUMBERS = itertools.count(1)
#: How long a task may take, in seconds: Nova is slow on a loaded machine.
TASK_S = 180


def nova(config: NovaConfig, store: str = "store") -> NovaDriver:
    """Return the driver of a process, with the records in one of the test's stores."""
    path = f"{config.clouds_file}.{store}.db"
    if not Path(path).exists():
        open_store(path).close()
    return NovaDriver(config, TaskRecords(path, "nova"))


def task(
    cause: Cause, host: str, *vms: str, impact: Impact | None = None, attempt: int = 1
) -> Task:
    """Return an operation on a host, or on a VM on it."""
    traits, number = TRAITS[cause], next(NUMBERS)
    return Task(
        Operation(
            number=number,
            request=number,
            cause=cause,
            impact=impact or traits.impact,
            source=traits.source,
            routine=traits.routine,
            host=host,
            vms=vms,
            of_vm=traits.target.value == "vm",
            description=traits.description,
            duration_s=traits.duration_s,
            created_ms=number,
            execution=Execution(SystemClock().now_ms(), attempt=attempt),
        ),
        generation=7,
    )


def look(driver: NovaDriver, given: Task) -> Progress:
    """Ask after a task once."""
    return driver.progress(given, SystemClock().now_ms())


def carried_out(driver: NovaDriver, given: Task, every_s: float = LOOK_EVERY_S) -> Progress:
    """Begin a task, and ask after it until it has ended."""
    driver.begin(given)
    said: list[Progress] = []

    def ended() -> bool:
        said.append(look(driver, given))
        return said[-1].done or bool(said[-1].failed)

    wait_until(ended, what="the task", limit_s=TASK_S, every_s=every_s)
    return said[-1]
