"""What becomes of drivers' calls: whose operation it is, when the next one is due, what is kept."""

from collections import deque
from collections.abc import Iterator

import pytest

from forewarn_base.values import replace
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import Operation, OperationState
from forewarn_core.fleet.stimulus import Cancel, ChangeTopology, Complete, RequestMaintenance, Retry
from forewarn_core.fleet.topology import Host
from forewarn_drivers import PlatformUnanswered, Progress, Task
from forewarn_drivers.manual import ManualDriver
from forewarn_server.control.driver_calls import CallLimits, DaemonThreads
from forewarn_server.control.driver_host import ABORT_TRIES, UNANSWERED_AGAIN_MS
from tests.control.gated import MINUTE_MS, Gated, started_on
from tests.control.rig import Running
from tests.waiting import LIMIT_S, wait_until

HOUR_MS = 60 * MINUTE_MS


class Scripted(ManualDriver):
    """A driver that says what the test has it say."""

    name = "scripted"

    def __init__(self) -> None:
        """Begin well, and never ask to be asked again."""
        self.calls: list[str] = []
        self.fails: dict[str, str] = {}
        self.said = Progress()

    def begin(self, task: Task) -> None:
        """Begin, or fail."""
        self._call("begin", task)

    def progress(self, task: Task, now_ms: int) -> Progress:
        """Say it; times are from now on."""
        self._call("progress", task)
        return replace(self.said, again_ms=self.said.again_ms and now_ms + self.said.again_ms)

    def abort(self, task: Task) -> None:
        """Abort, or fail."""
        self._call("abort", task)

    def _call(self, verb: str, task: Task) -> None:
        self.calls.append(f"{verb} {task.id}")
        if verb in self.fails:
            raise OSError(self.fails[verb])


@pytest.fixture
def driver() -> Scripted:
    """A driver in the test's hands."""
    return Scripted()


@pytest.fixture
def running(driver: Scripted) -> Iterator[Running]:
    """A run loop of which some operations have been cancelled: numbers are above attempts."""
    made = Running(driver)
    made.ask(ChangeTopology(hosts=(Host("own", driver="scripted"), Host("other"))))
    for _ in range(4):
        made.ask(Cancel(made.announce().number))
    yield made
    made.loop.stop()
    made.store.close()


def started(running: Running, host: str = "own") -> Operation:
    """Start work at once; return it as it is then."""
    asked = RequestMaintenance(cause=Cause.HARDWARE_FAILURE, targets=(host,))
    number = running.ask(asked).operations[0].number
    running.settle()
    return running.loop.read(lambda plane: plane.state.operations[number]).result(LIMIT_S)


def known(running: Running, operation: Operation) -> Operation | None:
    """An operation as it is now; None if it has ended."""
    read = running.loop.read(lambda plane: plane.state.operations.get(operation.number))
    return read.result(LIMIT_S)


@pytest.mark.parametrize("verb", ["begin", "progress"])
def test_failure_is_that_of_its_own_operation(
    running: Running, driver: Scripted, verb: str
) -> None:
    """The reason stands in the operation whose call failed, and in its history. Source: L-8."""
    driver.fails[verb] = "its board is dark"
    operation = known(running, started(running))
    assert operation is not None
    assert (operation.state, operation.reason) == (OperationState.RUNNING, "its board is dark")
    assert running.history(operation)[-1] == "operation.stuck"
    driver.fails.clear()
    running.ask(Retry(operation.number))
    running.settle()
    again = known(running, operation)
    assert again is not None
    assert (again.execution.attempt, again.reason) == (2, "")
    assert driver.calls[-2:] == [f"begin {again.id}/2", f"progress {again.id}/2"]


def test_driver_that_is_gone_leaves_its_work_to_people(
    running: Running, driver: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    """Its operation says what is missing; nobody can be told of its end either. Source: R-3."""
    running.drivers["scripted"] = driver
    operation = started(running)
    del running.drivers["scripted"]
    running.restart(1000)
    running.settle()
    stuck = known(running, operation)
    assert stuck is not None
    assert stuck.reason.startswith("There is no driver scripted")
    running.ask(Complete(operation.number))
    for _ in range(ABORT_TRIES):
        running.pass_time(2 * MINUTE_MS)
    ended = running.entries(operation)[-1]
    assert ended.action == "operation.abort-failed"
    assert "There is no driver scripted" in ended.text
    said = [getattr(each, "action", "") for each in caplog.records]
    assert said.count("driver.abort-failed") == 1


def test_driver_that_does_not_hear_of_an_end_is_told_again(
    running: Running, driver: Scripted
) -> None:
    """After 1, 2, 4 … s, eight times in all, which takes two minutes; then people look. L-7."""
    operation = started(running)
    driver.fails["abort"] = "its board is dark"
    running.ask(Complete(operation.number))
    running.settle()
    times, passed_ms = [0], 0
    while running.history(operation)[-1] != "operation.abort-failed":
        before = driver.calls.count(f"abort {operation.id}/1")
        assert passed_ms < HOUR_MS
        running.pass_time(1000)
        passed_ms += 1000
        if driver.calls.count(f"abort {operation.id}/1") > before:
            times.append(passed_ms)
    assert times == [1000 * (2**n - 1) for n in range(8)]
    assert running.entries(operation)[-1].text.endswith("its board is dark")


def test_driver_is_asked_again_when_it_wants_to_be(running: Running, driver: Scripted) -> None:
    """Not before, and after a day in any case; 0 means never. Source: R-4."""
    driver.said = Progress(again_ms=10 * MINUTE_MS, waits="the board wakes")
    operation = started(running)
    asked = f"progress {operation.id}/1"
    assert driver.calls.count(asked) == 1
    [waiting] = running.loop.why(operation.number).result(LIMIT_S)
    assert "the board wakes" in waiting.text
    running.pass_time(10 * MINUTE_MS - 1)
    assert driver.calls.count(asked) == 1
    driver.said = Progress(again_ms=100 * HOUR_MS)
    running.pass_time(1)
    assert driver.calls.count(asked) == 2
    [waiting] = running.loop.why(operation.number).result(LIMIT_S)
    assert "the board wakes" not in waiting.text
    running.pass_time(24 * HOUR_MS - 1)
    assert driver.calls.count(asked) == 2
    driver.said = Progress()
    running.pass_time(1)
    assert driver.calls.count(asked) == 3
    running.pass_time(100 * HOUR_MS)
    assert driver.calls.count(asked) == 3


def test_driver_that_wants_to_be_asked_in_the_past_is_asked_at_once(
    running: Running, driver: Scripted
) -> None:
    """A clock of its own that is behind does not stop its work. Source: R-1, N-4."""
    driver.said = Progress(again_ms=-HOUR_MS)
    operation = started(running)
    for _ in range(3):
        before = len(driver.calls)
        running.pass_time(1)
        assert driver.calls[before:] == [f"progress {operation.id}/1"]


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS], ids=["ahead", "back"])
def test_step_of_the_clock_is_no_time_that_passes(
    running: Running, driver: Scripted, step_ms: int
) -> None:
    """A driver is asked when so much time has passed as it said. Source: N-4, R-1."""
    running.driver.again_after_ms = HOUR_MS
    started(running, "other")  # has its turn later, though it was the first
    driver.said = Progress(again_ms=10 * MINUTE_MS)
    operation = started(running)
    running.pass_time(2 * MINUTE_MS, step_ms=step_ms)
    running.pass_time(8 * MINUTE_MS - 1)
    assert driver.calls.count(f"progress {operation.id}/1") == 1
    running.pass_time(1)
    assert driver.calls.count(f"progress {operation.id}/1") == 2


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS], ids=["ahead", "back"])
def test_step_of_the_clock_makes_no_call_hang(step_ms: int) -> None:
    """A call is given up when it has taken so long, whatever the clock shows. Source: N-4, R-1."""
    driver = Gated("begin")
    limits = CallLimits(timeout_ms=10 * MINUTE_MS)
    running = Running(driver, executor=DaemonThreads(), limits=limits)
    try:
        operation = started_on(running, "own")
        assert driver.called.acquire(timeout=LIMIT_S)
        running.pass_time(2 * MINUTE_MS, step_ms=step_ms)
        running.pass_time(8 * MINUTE_MS - 1)
        assert "operation.stuck" not in running.history(operation)
        running.pass_time(1)
        assert running.history(operation)[-1] == "operation.stuck"
    finally:
        driver.gate.set()
        running.loop.stop()
        running.store.close()


def kept_of(thing: object) -> dict[str, object]:
    """What an object of ours and those it holds keep in tables and lists that are not empty."""
    found: dict[str, object] = {}
    for name, held in vars(thing).items():
        if isinstance(held, dict | set | list | deque) and held:
            found[name] = held
        elif type(held).__module__.startswith("forewarn_server.control.driver_") and hasattr(
            held, "__dict__"
        ):
            found |= {f"{name}.{each}": kept for each, kept in kept_of(held).items()}
    return found


def test_abort_waits_for_a_call_that_hangs_no_longer_than_it_may() -> None:
    """Once the call before it was given up, the driver is told of the end. Source: R-1, L-7."""
    driver = Gated("begin")
    limits = CallLimits(timeout_ms=MINUTE_MS)
    running = Running(driver, executor=DaemonThreads(), limits=limits)
    try:
        operation = started_on(running, "own")
        assert driver.called.acquire(timeout=LIMIT_S)
        running.ask(Complete(operation.number, failed=True))
        running.settle()
        running.pass_time(MINUTE_MS - 1)
        assert driver.calls == [("begin", "op-1/1")]
        running.pass_time(1)
        wait_until(lambda: running.history(operation)[-1] == "operation.aborted")
        assert driver.calls == [("begin", "op-1/1"), ("abort", "op-1/1")]
    finally:
        driver.gate.set()
        running.loop.stop()
        running.store.close()


def test_no_more_calls_of_a_driver_are_made_at_a_time_than_it_may_have() -> None:
    """The others wait, in their order, and no other driver waits for them. Source: R-1."""
    driver = Gated("begin")
    limits = CallLimits(timeout_ms=MINUTE_MS, max_concurrent=2)
    running = Running(driver, executor=DaemonThreads(), limits=limits)
    try:
        for number in range(4):
            started_on(running, f"h{number}")
        running.settle()
        for _ in range(2):
            assert driver.called.acquire(timeout=LIMIT_S)
        assert driver.calls == [("begin", "op-1/1"), ("begin", "op-2/1")]
        driver.gate.set()
        wait_until(lambda: len([each for each in driver.calls if each[0] == "begin"]) == 4)
        begun = [task for verb, task in driver.calls if verb == "begin"]
        assert sorted(begun) == [f"op-{number}/1" for number in range(1, 5)]
    finally:
        driver.gate.set()
        running.loop.stop()
        running.store.close()


def test_what_needs_people_is_logged_as_a_warning(
    running: Running, driver: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    """Everything else of history is information. Source: L-8."""
    caplog.set_level("INFO")
    driver.fails["begin"] = "its board is dark"
    started(running)
    levels = {
        getattr(each, "action", ""): each.levelname
        for each in caplog.records
        if str(getattr(each, "action", "")).startswith("operation.")
    }
    assert levels["operation.stuck"] == "WARNING"
    others = {level for action, level in levels.items() if action != "operation.stuck"}
    assert others == {"INFO"}


class Silent(Scripted):
    """A driver whose platform gives no answer so often."""

    name = "silent"

    def __init__(self, verb: str, times: int) -> None:
        """Have no answer to the next calls of this kind."""
        super().__init__()
        self.said = Progress(done=True)
        self._verb, self._left = verb, times

    def _call(self, verb: str, task: Task) -> None:
        super()._call(verb, task)
        if verb == self._verb and self._left:
            self._left -= 1
            raise PlatformUnanswered(platform="the board", reason="connection refused")


@pytest.mark.parametrize("verb", ["begin", "progress"])
def test_call_without_an_answer_is_made_again(
    running: Running, verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What is unknown has not failed; people see what is waited for. Source: R-1, R-2, L-8."""
    silent = running.drivers["silent"] = Silent(verb, 3)
    running.ask(ChangeTopology(hosts=(Host("still", driver="silent"),)))
    operation = started(running, "still")
    waits = running.loop.read(lambda _: running.loop._drivers.waits(operation.number)).result(
        LIMIT_S
    )
    assert waits == "driver silent to have an answer: the board does not answer: connection refused"
    for _ in range(3):
        running.pass_time(UNANSWERED_AGAIN_MS)
    assert silent.calls.count(f"{verb} {operation.id}/1") == 4
    assert known(running, operation) is None, "it has ended well"
    assert "operation.stuck" not in running.history(operation)
    assert caplog.text.count("is called again") == 1


@pytest.mark.parametrize("verb", ["begin", "progress"])
def test_work_without_an_answer_is_stuck_in_the_end(running: Running, verb: str) -> None:
    """After the time of the settings an operator decides, who may retry. Source: L-8, R-1."""
    silent = running.drivers["silent"] = Silent(verb, 1_000_000)
    running.ask(ChangeTopology(hosts=(Host("still", driver="silent"),)))
    operation = started(running, "still")
    running.pass_time(running.limits.unanswered_ms - 1)
    assert "operation.stuck" not in running.history(operation)
    running.pass_time(UNANSWERED_AGAIN_MS)
    assert running.history(operation)[-1] == "operation.stuck"
    stuck = known(running, operation)
    assert stuck is not None
    assert stuck.reason == "the board does not answer: connection refused"
    silent._left = 0
    running.ask(Retry(operation.number))
    running.settle()
    assert known(running, operation) is None


def test_end_of_work_without_an_answer_is_kept_by_nobody(running: Running) -> None:
    """An operator completes it meanwhile. Source: R-1."""
    running.drivers["silent"] = Silent("begin", 1_000_000)
    running.ask(ChangeTopology(hosts=(Host("still", driver="silent"),)))
    operation = started(running, "still")
    running.ask(Complete(operation.number))
    running.pass_time(UNANSWERED_AGAIN_MS)
    assert "_unanswered" not in kept_of(running.loop._drivers)
