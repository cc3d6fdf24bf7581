"""What drivers say: in the record, in history and in `why`, not too often, and many at once."""

import threading

import pytest

from forewarn_base.values import replace
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import with_execution
from forewarn_core.fleet.stimulus import ChangeTopology, RequestMaintenance
from forewarn_core.fleet.topology import Host
from forewarn_core.requests import ApprovalRequest
from forewarn_drivers import Progress, Task
from forewarn_drivers.manual import ManualDriver
from forewarn_server.control.driver_calls import DaemonThreads
from forewarn_server.control.driver_host import ProgressReports
from tests.control.rig import Running
from tests.drivers.tasks import task as task_of
from tests.waiting import LIMIT_S

SECOND_MS = 1000
HOUR_MS = 3_600_000


class Telling(ManualDriver):
    """A driver that says what the test has it say, and is asked every second."""

    said = Progress()

    def begin(self, task: Task) -> None:
        """Begin nothing."""

    def progress(self, task: Task, now_ms: int) -> Progress:  # noqa: ARG002
        """Say it."""
        return replace(self.said, again_ms=now_ms + SECOND_MS)


def telling(said: Progress) -> tuple[Running, Telling, int]:
    """Run an operation whose driver says this."""
    driver = Telling()
    driver.said = said
    running = Running(driver)
    operation = running.announce()
    running.settle()
    running.ask(ApprovalRequest("v", operation.events, ""))
    running.settle()
    return running, driver, operation.number


def entries(running: Running, number: int) -> int:
    """Return how many entries of history tell of progress."""
    running.settle()
    operation = running.plane.state.operations[number]
    return running.history(operation).count("operation.progressed")


def test_progress_is_reported_to_people() -> None:
    """Text and share stand in the record, in history, and in why. Source: R-1."""
    running, _, number = telling(Progress(text="migrating web_0\x1b[2J", share=0.4))
    try:
        [waiting] = running.loop.why(number).result(LIMIT_S)
        assert "the driver works on h: migrating web_0\N{REPLACEMENT CHARACTER}[2J, 40 % done" in (
            waiting.text
        )
        assert entries(running, number) == 1
    finally:
        running.loop.stop()
        running.store.close()


def test_progress_is_not_recorded_more_often_than_every_5_s() -> None:
    """A driver that talks all the time does not fill history. Source: R-1."""
    running, driver, number = telling(Progress(share=0.0))
    try:
        for step in range(1, 20):
            driver.said = Progress(share=step / 20)
            running.pass_time(SECOND_MS)
            running.settle()
        assert 3 <= entries(running, number) <= 5
    finally:
        running.loop.stop()
        running.store.close()


@pytest.mark.parametrize("share", [float("nan"), 1.01, -0.1, True, "all"], ids=str)
def test_share_that_is_none_is_left_out(share: object) -> None:
    """A share out of its range harms no work and is not shown. Source: R-1."""
    running, _, number = telling(Progress(text="working", share=share))  # type: ignore[arg-type]
    try:
        running.settle()
        assert running.plane.state.operations[number].execution.progress_percent == -1
        assert running.plane.state.operations[number].execution.progress == "working"
    finally:
        running.loop.stop()
        running.store.close()


def test_measured_interruption_is_kept() -> None:
    """What a driver has measured stands in the operation. Source: X-1, R-1."""
    running, driver, number = telling(Progress(share=0.5))
    try:
        driver.said = Progress(done=True, interruption_ms=340)
        running.pass_time(20 * SECOND_MS)
        running.settle()
        ended = running.store.operation(number)
        assert ended is not None
        assert (ended.state.value, ended.execution.interruption_ms) == ("succeeded", 340)
    finally:
        running.loop.stop()
        running.store.close()


class Choosing(Telling):
    """A driver that chooses a host at its second answer, and is done at its third."""

    name = "choosing"
    asked = 0

    def progress(self, task: Task, now_ms: int) -> Progress:  # noqa: ARG002
        """Say what it has chosen by now."""
        self.asked += 1
        placements = {"v": "h2", "nobody": "h2"} if self.asked > 1 else {}
        text = "moving" if self.asked == 1 else "moved"
        again_ms = now_ms + SECOND_MS
        return Progress(done=self.asked > 2, again_ms=again_ms, text=text, placements=placements)


def test_host_that_a_driver_chooses_is_recorded_at_once() -> None:
    """However often it talks, and before it is done: the VM is where it took it. Source: M-1."""
    driver = Choosing()
    running = Running(driver)
    try:
        running.ask(ChangeTopology((Host("h", driver="choosing"), Host("h2"))))
        ask = RequestMaintenance(cause=Cause.LIVE_MIGRATION, targets=("h",))
        operation = running.ask(ask).operations[0]
        running.settle()
        running.ask(ApprovalRequest("v", operation.events, ""))
        running.settle()
        running.pass_time(SECOND_MS)
        assert running.plane.state.operations[operation.number].execution.placements == (
            ("v", "h2"),
        )
        running.pass_time(SECOND_MS)
        assert running.plane.state.topology.vms["v"].host == "h2"
        texts = [entry.text for entry in running.entries(operation)]
        assert "op-1: moved: v goes to h2" in texts
    finally:
        running.loop.stop()
        running.store.close()


class Held(ManualDriver):
    """A driver that wants to be asked again a second after the first question, which takes long."""

    name = "held"

    def __init__(self) -> None:
        """Let nothing through yet."""
        self.asked = threading.Semaphore(0)
        self.may_answer = threading.Event()

    def begin(self, task: Task) -> None:
        """Begin nothing."""

    def progress(self, task: Task, now_ms: int) -> Progress:  # noqa: ARG002
        """Answer once the test has it so, by the time at which it was asked."""
        self.asked.release()
        self.may_answer.wait(LIMIT_S)
        return Progress(again_ms=now_ms + SECOND_MS)


def test_driver_is_asked_again_at_its_time_though_its_answer_came_late() -> None:
    """The clock may stand still afterwards, as an emulator's does. Source: R-1."""
    driver = Held()
    running = Running(driver, executor=DaemonThreads())
    try:
        running.ask(ChangeTopology((Host("h", driver="held"),)))
        operation = running.announce()
        running.settle()
        running.ask(ApprovalRequest("v", operation.events, ""))
        assert driver.asked.acquire(timeout=LIMIT_S)
        running.pass_time(SECOND_MS)
        driver.may_answer.set()
        assert driver.asked.acquire(timeout=LIMIT_S)
    finally:
        driver.may_answer.set()
        running.loop.stop()
        running.store.close()


@pytest.mark.parametrize(
    ("begun_ms", "later_ms", "told"),
    [
        (0, 0, False),
        (0, 4999, False),
        (0, 5000, True),
        (-HOUR_MS, 180 * SECOND_MS - 1, False),
        (-HOUR_MS, 200 * SECOND_MS, True),
        (0, -1, True),
    ],
)
def test_progress_is_told_less_often_the_longer_it_takes(
    begun_ms: int, later_ms: int, told: bool
) -> None:
    """Five seconds apart, a twentieth of the time at least; a clock put back keeps none. R-1."""
    now_ms = 10 * HOUR_MS
    operation = with_execution(task_of(7).operation, begun_ms=now_ms + begun_ms, attempt=3)
    reports = ProgressReports()
    first = reports.report(operation, Progress(share=0.999), now_ms)
    assert first is not None
    assert (first.operation, first.attempt, first.percent, first.text) == (7, 3, 99, "")
    second = reports.report(operation, Progress(text="more"), now_ms + later_ms)
    assert (second is not None) is told
    if second is not None:
        assert (second.operation, second.attempt, second.percent) == (7, 3, -1)
        assert second.text == "more"


@pytest.mark.parametrize(
    "said", [Progress(), Progress(done=True, text="x"), Progress(failed="no", text="x")]
)
def test_end_and_silence_are_not_progress(said: Progress) -> None:
    """Neither is what is on record already. Source: R-1."""
    operation = task_of(7).operation
    assert ProgressReports().report(operation, said, HOUR_MS) is None
    assert ProgressReports().report(operation, Progress(share=0.0), HOUR_MS) is not None
    known = with_execution(operation, progress="x", progress_percent=0)
    assert ProgressReports().report(known, Progress(text="x", share=0.0), HOUR_MS) is None
    for news in (Progress(text="x", share=0.5), Progress(text="y", share=0.0)):
        assert ProgressReports().report(known, news, HOUR_MS) is not None


def test_host_that_a_driver_chooses_is_that_of_its_own_operation() -> None:
    """And of the attempt that is under way. Source: M-1, R-1."""
    operation = with_execution(task_of(7).operation, attempt=3)
    report = ProgressReports().report(operation, Progress(placements={"v": "h2"}), HOUR_MS)
    assert report is not None
    assert (report.operation, report.attempt, report.placements) == (7, 3, (("v", "h2"),))


def test_new_attempt_and_forgotten_one_are_told_at_once() -> None:
    """What was told of another attempt says nothing of this one. Source: R-1, L-8."""
    operation = task_of(7).operation
    reports = ProgressReports()
    assert reports.report(operation, Progress(text="a"), HOUR_MS)
    assert not reports.report(operation, Progress(text="b"), HOUR_MS)
    again = with_execution(operation, attempt=operation.execution.attempt + 1)
    assert reports.report(again, Progress(text="b"), HOUR_MS)
    assert not reports.report(again, Progress(text="c"), HOUR_MS)
    reports.forget(7)
    assert reports.report(again, Progress(text="c"), HOUR_MS)
