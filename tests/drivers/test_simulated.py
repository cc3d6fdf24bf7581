"""The simulated driver: how long events are Started, and how long VMs are interrupted."""

import pytest

from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import Operation, with_execution
from forewarn_drivers import Task
from forewarn_drivers.registry import DriverUnusable, make_driver
from forewarn_drivers.simulated import SimulatedDriver, WorkCourse
from tests.core.rig import START_MS, small

MINUTE_MS = 60_000


def running(cause: Cause = Cause.HOST_UPDATE, duration_s: int | None = 7) -> Operation:
    """Work that has just started."""
    rig = small(enabled=())
    return rig.now(rig.ask(cause, "h0", duration_s=duration_s))


def driver(**options: object) -> SimulatedDriver:
    """A driver with options."""
    made = make_driver("simulated", options)
    assert isinstance(made, SimulatedDriver)
    return made


def test_event_is_started_as_long_as_its_interruption_by_default() -> None:
    """The announced interruption is measured, and ends the work. Source: X-1, D-9."""
    own, task = driver(), Task(running())
    assert own.progress(task, START_MS).again_ms == START_MS + 7000
    ended = own.progress(task, START_MS + 7000)
    assert (ended.done, ended.interruption_ms) == (True, 7000)


def test_event_may_be_started_for_longer_than_its_interruption() -> None:
    """As in Azure: ten minutes Started, seven seconds interrupted. Source: D-9."""
    own, task = driver(started_for_s=600), Task(running())
    assert not own.progress(task, START_MS + 599_999).done
    ended = own.progress(task, START_MS + 10 * MINUTE_MS)
    assert (ended.done, ended.interruption_ms) == (True, 7000)


def test_work_that_takes_longer_is_not_cut_short() -> None:
    """The setting is the least time. Source: D-9."""
    own, task = driver(started_for_s=60), Task(running(Cause.HARDWARE_FAILURE, None))
    assert own.end_ms(task.operation) == START_MS + 5 * MINUTE_MS


def test_retry_takes_as_long_as_the_first_attempt() -> None:
    """A retry a day later does not end at once. Source: L-8, D-9."""
    first = running()
    begun_ms = START_MS + 1440 * MINUTE_MS
    waiting = with_execution(first, attempt=2, begun_ms=None)
    again = with_execution(first, attempt=2, begun_ms=begun_ms)
    assert not driver().progress(Task(waiting), begun_ms).done
    assert driver().progress(Task(again), begun_ms).again_ms == begun_ms + 7000
    assert driver().progress(Task(again), begun_ms + 7000).done


def test_shorter_interruption_may_follow() -> None:
    """It is reported when it comes; the longest one is measured. Source: D-9, X-1."""
    own, task = driver(), Task(running())
    own.courses[task.operation.number] = WorkCourse(600, ((240, 2),))
    first, second = (own.progress(task, START_MS + after_ms) for after_ms in (0, 4 * MINUTE_MS))
    assert (first.text, first.again_ms) == (
        "its VMs are interrupted, for 7 s",
        START_MS + 4 * MINUTE_MS,
    )
    assert second.text == "its VMs are interrupted once more, for 2 s"
    assert own.progress(task, START_MS + 10 * MINUTE_MS).interruption_ms == 7000


@pytest.mark.parametrize("options", [{"started_for_s": -1}, {"started": 1}])
def test_wrong_option_is_refused(options: dict[str, object]) -> None:
    """The error names the table. Source: R-4."""
    with pytest.raises(DriverUnusable, match=r"\[drivers.simulated\]"):
        make_driver("simulated", options)
