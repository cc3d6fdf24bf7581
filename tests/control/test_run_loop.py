"""The run loop by itself: its clock, drivers nobody has, troubles of the store, and bugs."""

import threading

import pytest

from forewarn_base.audit_chain import CallRecord
from forewarn_base.errors import ForewarnError, OurError
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.stimulus import ChangeTopology, GroupsPolled, RequestMaintenance, Retry
from forewarn_core.fleet.topology import Host
from forewarn_core.requests import ApprovalRequest
from forewarn_drivers import Task
from forewarn_server.control.driver_calls import DriverSetup, DriverUnknown
from forewarn_server.control.driver_host import ABORT_TRIES
from forewarn_server.control.inbox import Stopping
from forewarn_server.control.run_loop import ControlLoop
from forewarn_store.errors import StoreFull, StoreUnavailable, StoreUncertain
from tests.clock import VirtualClock
from tests.control.gated import gated, started_on
from tests.control.rig import Running, cut_once, refuses
from tests.waiting import LIMIT_S, wait_until

MINUTE_MS, HOUR_MS = 60_000, 3_600_000


def test_loop_wakes_up_when_its_clock_is_moved(running: Running) -> None:
    """An emulator's clock is moved by hand: nobody waits for the machine's time. Source: L-1."""
    operation = running.announce()
    running.loop.stop()
    clock = VirtualClock(running.wall_ms)
    setup = DriverSetup(running.drivers, "manual", executor=running.executor)
    loop = ControlLoop(running.plane, clock, drivers=setup, publisher=running.publisher)
    loop.recover()
    loop.start()
    for _ in range(2):
        loop.read(lambda _: None).result(LIMIT_S)
    clock.set(operation.not_before_ms)
    wait_until(lambda: "operation.begun" in running.history(operation))
    loop.stop()
    clock.advance(1)
    assert len(loop._inbox) == 0  # nobody is there to be woken


def test_host_with_a_driver_nobody_has_is_refused(running: Running) -> None:
    """A driver is known before work needs it; nothing was changed."""
    with pytest.raises(DriverUnknown, match="no driver magic"):
        running.ask(ChangeTopology(hosts=(Host("other", driver="magic"),)))
    assert "other" not in running.plane.state.topology.hosts


def test_service_whose_default_driver_nobody_has_is_refused(running: Running) -> None:
    """It is known before anything needs it. Source: R-3."""
    setup = DriverSetup(running.drivers, "magic", executor=running.executor)
    with pytest.raises(DriverUnknown, match="no driver magic"):
        ControlLoop(running.plane, running.clock, drivers=setup, publisher=running.publisher)


def test_driver_that_is_gone_fails_the_attempt_only(running: Running) -> None:
    """After a restart without its driver, work fails with the reason and all else goes on.

    Source: L-8.
    """
    running.plane.commit(
        ChangeTopology(hosts=(Host("h", driver="gone"),)), actor="test", now_ms=running.wall_ms
    )
    operation = running.announce()
    running.ask(ApprovalRequest("v", operation.events, ""))
    running.pass_time()
    reason = running.loop.read(lambda plane: plane.state.operations[operation.number].reason)
    assert "no driver gone" in reason.result(LIMIT_S)
    assert not running.lost


@pytest.mark.parametrize("deaf", [0, 3, ABORT_TRIES - 1])
def test_driver_is_told_of_an_end_until_it_hears(running: Running, deaf: int) -> None:
    """A driver that cannot be told to abort is told again; once is enough. Source: L-7."""
    operation = running.announce()
    running.driver.deaf = deaf
    running.end(operation)
    for _ in range(2 * ABORT_TRIES):
        running.pass_time()
    assert running.driver.told == [operation.id] * (deaf + 1)
    assert running.history(operation)[-1] == "operation.aborted"


def test_driver_that_never_hears_is_told_of_to_people(running: Running) -> None:
    """After a number of tries the driver is left alone, and history says so. Source: L-8."""
    operation = running.announce()
    running.driver.deaf = 100
    running.end(operation)
    for _ in range(2 * ABORT_TRIES):
        running.pass_time()
    assert len(running.driver.told) == ABORT_TRIES
    assert running.history(operation)[-1] == "operation.abort-failed"
    assert not running.plane.state.aborts


def test_driver_is_not_asked_after_what_it_has_not_begun(running: Running) -> None:
    """A retry is asked after once it has begun, not when the one before was due. L-7, L-8."""
    running.driver.again_after_ms = 1000
    operation = running.announce()
    running.ask(ApprovalRequest("v", operation.events, ""))
    running.pass_time()
    asked = list(running.driver.asked)
    running.publisher.fails = True
    running.ask(RequestMaintenance(cause=Cause.REBOOT, targets=("v",)))
    running.ask(Retry(operation.number))
    running.pass_time()
    assert (running.driver.begun, running.driver.asked) == ([1], asked)
    running.publisher.fails = False
    running.pass_time()
    assert running.driver.begun == [1, 2]
    assert running.driver.asked[len(asked) :] == [2] * (len(running.driver.asked) - len(asked))
    assert len(running.driver.asked) > len(asked) > 0


@pytest.mark.parametrize("fails", [False, True], ids=["begun", "failed"])
def test_driver_is_begun_again_when_the_store_lost_what_it_said(
    running: Running,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fails: bool,
) -> None:
    """Otherwise nobody would ever hear that it has begun, or why it could not. L-7, L-8."""

    def begin(task: Task) -> None:
        if not running.driver.begun:
            monkeypatch.setattr(running.store, "commit", cut_once(running))
        running.driver.begun.append(task.attempt)
        if fails:
            raise OSError("its board is dark")

    operation = running.announce()
    monkeypatch.setattr(running.driver, "begin", begin)
    running.ask(ApprovalRequest("v", operation.events, ""))
    running.settle()
    assert running.driver.begun == [1, 1]
    errors = [getattr(each, "action", "") for each in caplog.records if each.levelname == "ERROR"]
    assert errors == ["store-uncertain"]
    warned = [getattr(each, "action", "") for each in caplog.records if each.levelname == "WARNING"]
    assert ("operation.stuck" in warned) is fails
    assert running.history(operation)[-1] == ("operation.stuck" if fails else "operation.begun")


def test_driver_waits_until_the_store_knows_its_writer(
    running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody is begun by who may not be the writer any more; people hear of it once. R-2, L-7."""
    operation = running.announce()
    with monkeypatch.context() as patch:
        away = StoreUnavailable(place="here", reason="it is away")
        patch.setattr(running.store, "confirm", refuses(away))
        running.ask(ApprovalRequest("v", operation.events, ""))
        for _ in range(3):
            running.pass_time(1000)
        assert running.driver.begun == []
    said = [getattr(each, "action", "") for each in caplog.records if each.levelname == "ERROR"]
    assert said == ["store-unavailable"]
    running.pass_time(1000)
    assert running.driver.begun == [1]


def test_exhausted_driver_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """However many of its calls are given up. Source: R-1."""
    with gated("begin", calls=2) as (running, driver, _):
        started_on(running, "second")
        assert driver.called.acquire(timeout=LIMIT_S)
        running.pass_time(MINUTE_MS)
        said = [getattr(each, "action", "") for each in caplog.records]
        assert (said.count("driver.hung"), said.count("driver-exhausted")) == (2, 1)


def test_bug_in_the_loop_ends_the_service(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """A control plane that cannot go on says so, instead of leaving everybody waiting."""
    del running.plane.policy
    running.loop.wake()
    running.loop._thread.join(LIMIT_S)
    caplog.clear()  # this bug was to be
    assert [type(error) for error in running.lost] == [OurError]


def test_no_thread_keeps_the_process_alive(running: Running) -> None:
    """A service that ends by a bug ends, though nobody has stopped its threads. Source: L-7."""
    running.loop.replica.read(lambda view: view.sequence).result(LIMIT_S)
    daemons = {each.name: each.daemon for each in threading.enumerate()}
    assert (daemons["control"], daemons["readers"]) == (True, True)


def test_bug_in_a_request_is_that_of_who_asked_alone(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """It is answered, nothing was changed, and everybody else is served. Source: L-8."""
    running.loop.note(object(), "test")  # type: ignore[arg-type]
    answer = running.loop.submit(object(), "test")  # type: ignore[arg-type]
    running.settle()
    caplog.clear()  # this bug was to be
    with pytest.raises(OurError):
        answer.result(0)
    assert running.announce().number == 1
    assert not running.lost


def test_request_that_waits_at_the_end_is_refused(running: Running) -> None:
    """Its caller hears that nothing was done. Source: L-8."""
    held = threading.Event()
    running.loop.read(lambda _: held.wait(LIMIT_S))
    waiting = running.loop.submit(ChangeTopology(hosts=(Host("h7"),)), "test")
    running.loop.stop(timeout_s=0)
    held.set()
    with pytest.raises(Stopping):
        waiting.result(LIMIT_S)


def test_trouble_says_why_nothing_is_decided(running: Running) -> None:
    """That the service ends, where nothing went wrong. Source: L-8."""
    assert running.loop.trouble == ""
    running.loop.stop()
    assert running.loop.trouble == "The service is stopping."


def test_report_that_is_refused_is_no_trouble(
    running: Running, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it, and what the store refuses is said once until it succeeds. L-7."""
    running.loop.note(ApprovalRequest("nobody", ("EVENT-9",), ""), "test")
    running.settle()
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []
    with monkeypatch.context() as patch:
        patch.setattr(running.store, "commit", refuses(StoreFull(place="here", reason="full")))
        for _ in range(3):
            running.loop.note(GroupsPolled(frozenset({"g"})), "test")
            running.pass_time(120_000)
    said = [getattr(each, "action", "") for each in caplog.records if each.levelname == "ERROR"]
    assert said == ["store-full"]
    running.pass_time()
    assert running.loop.trouble == ""


def test_store_that_loses_every_answer_is_asked_once_a_second(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what it has each time: everything is published then, but not without end. L-7."""
    cut = refuses(StoreUncertain(place="here", reason="cut"))
    monkeypatch.setattr(running.store, "commit", cut)
    running.publisher.changes.clear()
    for second in range(1, 4):
        for _ in range(10):
            with pytest.raises((StoreUncertain, StoreUnavailable)):
                running.ask(ChangeTopology((Host("h2"),)))
        running.settle()
        assert sum(change.whole for change in running.publisher.changes) == second
        running.pass_time(1000)


def test_nothing_is_begun_while_the_store_must_be_asked(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nodes show meanwhile is shown and begun again once it has answered. Source: L-7, M-4."""
    operation = running.announce()
    running.publisher.late = True
    running.ask(ApprovalRequest("v", operation.events, ""))
    with monkeypatch.context() as patch:
        for name, error in (("commit", StoreUncertain), ("settle", StoreUnavailable)):
            patch.setattr(running.store, name, refuses(error(place="here", reason="away")))
        with pytest.raises(StoreUncertain):
            running.ask(ChangeTopology((Host("h2"),)))
        running.publisher.catch_up()
        running.settle()
        running.publisher.late = True
    running.pass_time()
    assert running.driver.begun == []
    running.publisher.catch_up()
    running.settle()
    assert running.driver.begun == [1]


@pytest.mark.parametrize("error", [StoreFull, StoreUnavailable, StoreUncertain])
def test_polls_are_kept_while_the_store_takes_nothing(
    running: Running, monkeypatch: pytest.MonkeyPatch, error: type[ForewarnError]
) -> None:
    """Nobody is disabled who has polled, and when they did is what they did. Source: B-2, F-5."""
    polled_ms = running.pass_time(24 * HOUR_MS)
    with monkeypatch.context() as patch:
        patch.setattr(running.store, "commit", refuses(error(place="here", reason="away")))
        for age_ms in (0, 5 * MINUTE_MS):
            running.loop.note(GroupsPolled(frozenset({"g"}), age_ms), "metadata")
        running.settle()
        running.pass_time(MINUTE_MS // 2)
    running.pass_time()
    enrolments = running.loop.read(lambda plane: plane.state.enrolments).result(LIMIT_S)
    assert enrolments["g"].polled_ms == polled_ms
    assert running.loop.trouble == ""


def test_request_that_was_withdrawn_is_not_done(running: Running) -> None:
    """Who does not wait any more has changed nothing. Source: L-7."""
    held = threading.Event()
    running.loop.read(lambda _: held.wait(LIMIT_S))
    asked = RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h",))
    withdrawn = running.loop.submit(asked, "test")
    assert withdrawn.cancel()
    held.set()
    running.settle()
    assert running.plane.state.last_number == 0


def test_answer_may_wait_until_it_is_shown(running: Running) -> None:
    """What changes no document is answered at once, whatever is published meanwhile. M-4."""
    running.publisher.late = True
    asked = RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h",))
    shown = running.loop.submit(asked, "test", shown=True)
    at_once = running.loop.submit(ChangeTopology(hosts=(Host("h7"),)), "test", shown=True)
    assert at_once.result(LIMIT_S).entries
    assert not shown.done()
    running.publisher.catch_up()
    assert shown.result(LIMIT_S).operations[0].number == 1


def test_documents_with_a_new_notice_are_withheld_until_recovery(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes that may show them keep what they have, also after a restart. Source: L-7, M-2."""
    running.publisher.late = True
    running.announce()
    running.loop.stop()
    with monkeypatch.context() as patch:
        patch.setattr(running.store, "commit", refuses(StoreFull(place="here", reason="full")))
        running.start(runs=False)
        loaded = running.publisher.changes[-1]
        assert (loaded.withheld, loaded.publications) == (frozenset("g"), ())
    running.loop.start()
    running.pass_time()
    recovered = running.publisher.changes[-1]
    assert (recovered.withheld, len(recovered.publications)) == (frozenset(), 1)


def test_call_that_cannot_be_recorded_is_logged_with_the_store_as_the_reason(
    running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A process without its database is not about to stop. Source: P-7."""
    call = CallRecord(running.wall_ms, "ann", "10.0.0.4", "PUT /v1/policy", "", "not-permitted")
    with monkeypatch.context() as patch:
        for name, error in (("commit", StoreUncertain), ("settle", StoreUncertain)):
            patch.setattr(running.store, name, refuses(error(place="here", reason="away")))
        with pytest.raises(StoreUncertain):
            running.ask(ChangeTopology((Host("h2"),)))
        running.loop.record(call)
        running.settle()
    [lost] = [each for each in caplog.records if getattr(each, "action", "") == "audit.lost"]
    assert lost.getMessage().endswith("cannot be used: its state is being checked.")
