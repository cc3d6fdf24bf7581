"""Which time a service goes by: steps of the system's clock, suspensions, and starts over."""

import time

import pytest

from forewarn_base.clock import SystemClock
from forewarn_base.ids import Ids
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import OperationState
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.stimulus import (
    ChangeTopology,
    ClockMarked,
    CreateMaintenance,
    Enable,
    GroupsPolled,
    RequestMaintenance,
    StartMaintenance,
)
from forewarn_core.fleet.topology import Group, Host, Vm
from forewarn_core.requests import ApprovalRequest
from forewarn_server.control.plane import ControlPlane
from forewarn_server.control.timekeeping import Timekeeping
from forewarn_store import open_store
from forewarn_store.errors import StoreFull
from tests.control.rig import Running, refuses
from tests.waiting import LIMIT_S

MINUTE_MS, HOUR_MS = 60_000, 3_600_000


def test_step_that_is_taken_back_at_once_is_nothing(running: Running) -> None:
    """The system's clock is looked at once a minute. Source: N-4."""
    running.pass_time()
    assert running.pass_time(1000, step_ms=HOUR_MS) == running.wall_ms - HOUR_MS
    assert running.pass_time(1000, step_ms=-HOUR_MS) == running.wall_ms
    running.pass_time(1000, step_ms=HOUR_MS)
    assert running.pass_time(57_000) == running.wall_ms


@pytest.mark.parametrize("step_ms", [HOUR_MS, 10 * 24 * HOUR_MS], ids=["hour", "days"])
def test_step_ahead_is_followed_when_no_notice_runs(running: Running, step_ms: int) -> None:
    """The service's clock follows within a minute, and no group is silent for it.

    Source: N-4, B-2.
    """
    assert running.pass_time(step_ms=step_ms) == running.wall_ms
    assert running.loop.read(lambda plane: set(plane.state.enrolments)).result(LIMIT_S) == {"g"}


def test_step_back_is_followed_when_no_notice_runs(running: Running) -> None:
    """The service's clock goes back with the system's, so that the next NotBefore is right. N-4."""
    running.pass_time()
    assert running.pass_time(step_ms=-HOUR_MS) == running.wall_ms
    assert running.announce().not_before_ms == running.wall_ms + 15 * 60_000


def test_poll_does_not_lie_ahead_of_a_clock_that_was_put_back(running: Running) -> None:
    """By a second at least; what was asked before would count as asked afterwards. F-5, N-4."""
    running.pass_time()
    running.pass_time(MINUTE_MS - 1)
    running.ask(GroupsPolled(frozenset({"g"})))
    assert running.plane.state.enrolments["g"].polled_ms == running.wall_ms
    running.pass_time(1, step_ms=-1000)
    assert running.plane.state.enrolments["g"].polled_ms == running.wall_ms


def test_step_back_keeps_no_driver_waiting(running: Running) -> None:
    """A driver that did not hear of an end is told again when it was to be. Source: L-7, N-4."""
    running.driver.deaf = 3
    operation = running.announce()
    running.end(operation)
    told = len(running.driver.told)
    running.pass_time(step_ms=-HOUR_MS)
    running.pass_time()
    assert len(running.driver.told) == told + 2


@pytest.mark.parametrize(("step_ms", "said"), [(1000, 1), (-1000, 1), (999, 0), (-999, 0)])
def test_step_that_is_followed_is_logged(
    running: Running, caplog: pytest.LogCaptureFixture, step_ms: int, said: int
) -> None:
    """From one second on, once: it explains every time that differs from other machines'. N-4."""
    assert running.pass_time(step_ms=step_ms) == running.wall_ms
    running.pass_time()
    actions = [getattr(each, "action", "") for each in caplog.records]
    assert actions.count("clock.stepped") == said


def test_step_while_the_service_was_down_is_logged(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """A notice goes on by the old time, which is not other machines' any more. Source: N-4."""
    running.announce()
    running.restart(5000, step_ms=HOUR_MS)
    actions = [getattr(each, "action", "") for each in caplog.records]
    assert actions.count("clock.stepped") == 1


@pytest.mark.parametrize("suspended_ms", [1000, 10 * MINUTE_MS])
def test_suspended_machine_puts_no_notice_off(running: Running, suspended_ms: int) -> None:
    """Its VMs were suspended with it, and so was their notice's clock. Source: N-4."""
    late_ms = running.clock.now_ms() + 5 * HOUR_MS
    work = RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h",), not_before_ms=late_ms)
    operation = running.ask(work).operations[0]
    running.settle()
    running.suspended_ms = suspended_ms
    assert running.pass_time(suspended_ms) == running.wall_ms - suspended_ms
    running.pass_time(2 * MINUTE_MS)
    assert running.pass_time(HOUR_MS) == running.wall_ms
    assert running.state_of(operation) is OperationState.ANNOUNCED
    assert "operation.put-off" not in running.history(operation)


def test_step_never_shortens_a_running_notice(running: Running) -> None:
    """While a notice runs a step is not followed; once it has ended it is. Source: N-4."""
    operation = running.announce()
    assert running.pass_time(step_ms=HOUR_MS) == running.wall_ms - HOUR_MS
    assert running.state_of(operation) is OperationState.ANNOUNCED
    running.ask(ApprovalRequest("v", operation.events, ""))
    assert running.state_of(operation) is OperationState.RUNNING
    assert running.pass_time() == running.wall_ms


def test_earliest_start_counts_anew_where_the_clock_is_put_back(running: Running) -> None:
    """It had passed before, so that nothing would have looked at it any more. L-1, N-4."""
    groups, vms = (Group("g2"),), (Vm("v2", "h2", "g2"),)
    running.ask(ChangeTopology((Host("h2"),), groups, vms))
    late_ms = running.clock.now_ms() + 3 * HOUR_MS
    running.ask(RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h2",), not_before_ms=late_ms))
    begun_ms = running.pass_time(step_ms=-6 * HOUR_MS)
    for _ in range(50):
        running.pass_time(MINUTE_MS)
    earliest_ms = running.clock.now_ms() + 5 * MINUTE_MS
    running.ask(CreateMaintenance(Cause.HOST_REBOOT, ("h",), 600, earliest_ms=earliest_ms))
    running.ask(StartMaintenance(2))
    while running.pass_time(MINUTE_MS) > begun_ms:
        pass
    [operation] = [o for o in running.plane.state.operations.values() if o.maintenance]
    assert operation.earliest_start_ms == earliest_ms < operation.not_before_ms
    running.ask(ApprovalRequest("v", operation.events, ""))
    assert running.state_of(operation) is OperationState.ANNOUNCED
    running.pass_time(earliest_ms - running.clock.now_ms())
    assert running.state_of(operation) is OperationState.RUNNING


STEPS_MS = [HOUR_MS, -6 * HOUR_MS, 50 * 24 * HOUR_MS]


@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_notice_is_the_same_over_a_restart(running: Running, step_ms: int) -> None:
    """A step while the service was down neither shortens nor stretches a notice. Source: N-4."""
    operation = running.announce()
    assert running.restart(5000, step_ms=step_ms) == 0
    assert running.restart(5000) == 0
    left_ms = operation.not_before_ms - running.clock.now_ms()
    running.pass_time(left_ms - 1)
    assert running.state_of(operation) is OperationState.ANNOUNCED
    running.pass_time(1)
    assert running.state_of(operation) is OperationState.RUNNING
    assert running.pass_time() >= running.wall_ms


@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_restart_follows_the_system_clock_when_no_notice_runs(
    running: Running, step_ms: int
) -> None:
    """A service without a notice starts over by the system's clock; nobody is silent for it.

    Source: N-4, B-2.
    """
    assert running.restart(5000, step_ms=step_ms) == step_ms
    assert running.clock.now_ms() == running.wall_ms
    running.pass_time()
    assert running.loop.read(lambda plane: set(plane.state.enrolments)).result(LIMIT_S) == {"g"}
    operation = running.announce()
    assert running.restart(5000, step_ms=HOUR_MS) == 0
    assert running.state_of(operation) is OperationState.ANNOUNCED


def test_restart_follows_a_drift_once_it_is_a_step(running: Running) -> None:
    """A tenth of a second costs a write; what is less adds up. Source: N-4."""
    assert running.restart(5000, step_ms=99) == 0
    assert running.restart(5000, step_ms=1) == 100


@pytest.mark.parametrize("boot", ["another boot", ""], ids=["other", "none"])
def test_mark_of_another_boot_means_nothing(running: Running, boot: str) -> None:
    """After a reboot, or on another machine, the system's clock is followed. Source: N-4."""
    running.announce()
    assert running.restart(5000, step_ms=HOUR_MS, boot=boot) == HOUR_MS
    assert running.restart(5000, boot="a boot") == 0


def test_mark_is_durable_before_anything_is_decided_by_its_time(running: Running) -> None:
    """A service that is killed at once goes on by the same time. Source: N-4."""
    running.loop.stop()
    running.boot = "another boot"
    running.start(runs=False)
    assert running.plane.state.mark == running.clock.mark
    assert running.clock.mark[0] == "another boot"


def test_absurd_mark_means_nothing(running: Running) -> None:
    """A mark far beyond what is known of the time is not believed. Source: N-4."""
    running.announce()
    for absurd_ms in (0, -(10**15), 10**15, 2 * running.wall_ms):
        running.ask(ClockMarked("a boot", absurd_ms))
        assert running.restart(5000) == 0
        assert running.clock.now_ms() == running.wall_ms


@pytest.mark.parametrize("away_ms", [5000, 5 * HOUR_MS])
def test_silence_is_forgiven_where_nobody_was_there_to_hear(running: Running, away_ms: int) -> None:
    """As long as the service was away; what was done before shows that it was not. B-2."""
    polled_ms = running.plane.state.enrolments["g"].polled_ms
    running.pass_time(5 * HOUR_MS)
    running.ask(ChangeTopology(hosts=(Host("new"),)))
    running.restart(away_ms)
    forgiven_ms = away_ms if away_ms > HOUR_MS else 0
    assert running.plane.state.enrolments["g"].polled_ms == polled_ms + forgiven_ms


def test_clock_that_is_not_stepped_costs_no_write(running: Running) -> None:
    """The clock's mark is written at the first start and after a step only. Source: N-4.

    With a step back the marks of polls that lie ahead are put back, too. Source: F-5.
    """
    written = running.store.generation
    for _ in range(3):
        running.pass_time()
    assert running.store.generation == written
    running.pass_time(step_ms=-HOUR_MS)
    assert running.store.generation == written + 2
    running.restart(5000)
    assert running.store.generation == written + 3, "only the claim of the writer"


def test_clock_is_chosen_once_though_its_mark_cannot_be_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A step of the system's clock between two tries cuts no running notice. Source: N-4."""
    fleet = ChangeTopology((Host("h1"),), (Group("web"),), (Vm("web_0", "h1", "web"),))
    reboot = RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h1",))
    store, ahead_s = open_store(":memory:"), 0
    plane = ControlPlane(store, NoticePolicy(), lambda: Ids().guid("event"))
    Timekeeping(SystemClock(boot_id=lambda: "one"), plane).take_up()
    clock = SystemClock(lambda: time.time_ns() + ahead_s * 10**9, boot_id=lambda: "two")
    for stimulus in (fleet, Enable("web"), reboot):
        plane.commit(stimulus, actor="test", now_ms=clock.now_ms())
    keeping = Timekeeping(clock, plane)
    with monkeypatch.context() as patch:
        patch.setattr(store, "commit", refuses(StoreFull(place="here", reason="full")))
        with pytest.raises(StoreFull):
            keeping.take_up()
    before_ms, ahead_s = clock.now_ms(), 6 * 3600
    keeping.take_up()
    assert clock.now_ms() < before_ms + 3_600_000
    store.close()
