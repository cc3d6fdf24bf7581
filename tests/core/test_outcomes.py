"""What became of events: how they ended, and whether their notice was kept."""

import pytest

from forewarn_base.values import replace
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import Operation
from forewarn_core.fleet.outcomes import EventOutcome, EventResult, StartTiming
from forewarn_core.fleet.stimulus import Cancel, Complete, DriverDone, Restored, Retry
from tests.core.rig import MINUTE_MS, Rig, small


@pytest.fixture
def rig() -> Rig:
    """A small fleet whose groups are enabled."""
    return small()


def outcome_of(rig: Rig, operation: Operation) -> EventOutcome:
    """Return what became of the first event of an operation."""
    ended = rig.operations[operation.number]
    return EventOutcome(rig.events[ended.events[0]], ended)


def test_event_that_was_approved_began_early(rig: Rig) -> None:
    """Promised and given notice stand side by side. Source: X-1."""
    operation = rig.ask(Cause.REBOOT, "web_0")
    rig.show()
    assert outcome_of(rig, operation).result is EventResult.UNKNOWN
    rig.wait(2 * MINUTE_MS)
    rig.approve("web_0", operation)
    rig.finish(operation)
    ended = outcome_of(rig, operation)
    assert (ended.result, ended.start) == (EventResult.COMPLETED, StartTiming.EARLY)
    assert (ended.operation.notice_s, ended.notice_given_s) == (900, 120)


@pytest.mark.parametrize("enabled", [("web", "far"), ()], ids=["polls", "silent"])
def test_event_of_vms_that_do_not_poll_was_not_asked(enabled: tuple[str, ...]) -> None:
    """It begins at once, and its outcome says so; an approved one does not. Source: B-3, X-1."""
    rig = small(enabled=enabled)
    operation = rig.ask(Cause.REBOOT, "web_0")
    rig.show()
    if enabled:
        rig.approve("web_0", operation)
    rig.finish(operation)
    ended = replace(outcome_of(rig, operation), approvers=("web_0",) if enabled else ())
    assert (ended.start, ended.not_asked) == (StartTiming.EARLY, not enabled)


def test_event_that_nobody_approved_began_on_time(rig: Rig) -> None:
    """It got all of its notice. Source: X-1."""
    operation = rig.ask(Cause.REBOOT, "web_0")
    rig.show()
    rig.wait(16 * MINUTE_MS)
    rig.finish(operation)
    ended = outcome_of(rig, operation)
    assert ended.start is StartTiming.ON_TIME
    assert ended.notice_given_s is not None
    assert ended.notice_given_s >= ended.operation.notice_s


def test_event_that_was_withdrawn_never_began(rig: Rig) -> None:
    """Cancelled work has disturbed nobody. Source: X-1, L-3."""
    operation = rig.ask(Cause.REBOOT, "web_0")
    rig.tell(Cancel(operation.number, "not now"))
    ended = outcome_of(rig, operation)
    assert (ended.result, ended.start) == (EventResult.CANCELLED, StartTiming.NEVER)
    assert ended.lasted_s is None


@pytest.mark.parametrize("running", [False, True])
def test_failure_of_the_host_takes_the_place_of_its_work(rig: Rig, *, running: bool) -> None:
    """Announced and running work is replaced by the failure, which came without notice. X-1."""
    operation = rig.ask(Cause.HOST_UPDATE, "h0")
    if running:
        rig.show()
        rig.wait(16 * MINUTE_MS)
    failure = rig.ask(Cause.HARDWARE_FAILURE, "h0")
    replaced = outcome_of(rig, operation)
    assert replaced.result is EventResult.REPLACED
    assert replaced.operation.replaced_by == failure.number
    rig.finish(failure)
    assert outcome_of(rig, failure).start is StartTiming.UNANNOUNCED


@pytest.mark.parametrize(("measured_ms", "known_ms"), [(0, 0), (-1, None)])
def test_interruption_of_no_time_is_measured(
    rig: Rig, measured_ms: int, known_ms: int | None
) -> None:
    """A driver that measures 0 ms has measured; one that measures nothing has not. Source: X-1."""
    operation = rig.ask(Cause.REBOOT, "web_0")
    rig.approve("web_0", operation)
    rig.tell(DriverDone(operation.number, 1, interruption_ms=measured_ms))
    assert outcome_of(rig, operation).interruption_ms == known_ms


def test_failed_event_and_measured_interruption_are_kept(rig: Rig) -> None:
    """A driver's measurement stays with the attempt that ended well. Source: X-1, L-8."""
    operation = rig.ask(Cause.REBOOT, "web_0")
    rig.approve("web_0", operation)
    rig.tell(Retry(operation.number), DriverDone(operation.number, 2, interruption_ms=340))
    assert outcome_of(rig, operation).operation.execution.interruption_ms == 340
    other = rig.ask(Cause.REBOOT, "web_1")
    rig.approve("web_1", other)
    rig.tell(Complete(other.number, failed=True, reason="seen to"))
    ended = outcome_of(rig, other)
    assert (ended.result, ended.operation.execution.interruption_ms) == (EventResult.FAILED, -1)


def test_notice_counts_from_when_it_was_shown(rig: Rig) -> None:
    """Nobody had notice before it was published. Source: X-1, N-1."""
    rig.policy = replace(rig.policy, notice_margin_ms=2000)
    operation = rig.ask(Cause.REBOOT, "web_0")
    rig.now_ms += 1000
    rig.show()
    shown_ms = rig.now(operation).notice.shown_ms or 0
    assert shown_ms == rig.now_ms
    rig.wait(2 * MINUTE_MS)
    rig.approve("web_0", operation)
    rig.finish(operation)
    assert outcome_of(rig, operation).notice_given_s == (rig.now_ms - shown_ms) // 1000


def test_event_of_running_work_is_replaced_by_a_restore(rig: Rig) -> None:
    """The work goes on under a new id, and nobody knows whether it has completed. X-1, U-3."""
    operation = rig.ask(Cause.REBOOT, "web_0")
    rig.approve("web_0", operation)
    shown = rig.events[operation.events[0]].id
    rig.checked = False  # a restore raises the incarnation by more than one
    rig.tell(Restored(1_000_000))
    running = rig.now(operation)
    assert EventOutcome(rig.events[shown], running).result is EventResult.REPLACED
    assert outcome_of(rig, running).result is EventResult.UNKNOWN
