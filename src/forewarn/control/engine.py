"""The run loop: one thread that owns the control plane and sleeps exactly until it is needed.

Everything reaches it through its inbox and is answered by a future. It keeps the order of
effects: commit, publish, begin; a driver is told to begin only once metadata nodes show it.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol, TypeVar

from forewarn.control.driver_dispatch import DriverDispatch
from forewarn.control.inbox import Published, StateQuery, Submission
from forewarn.control.timekeeping import STEP_LOOK_MS, Timekeeping
from forewarn.core.stimulus import ChangeTopology as FleetChange
from forewarn.core.stimulus import NoticeShown, Stimulus, Tick
from forewarn.errors import CallerError, ForewarnError, OurError
from forewarn.replication.messages import DocumentChange, PublishResult
from forewarn.store.errors import StoreLost, StoreUnavailable, StoreUncertain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forewarn.clock import Clock
    from forewarn.control.plane import Committed, ControlPlane
    from forewarn.core.admission import Waiting
    from forewarn.core.topology import Topology
    from forewarn.drivers import Driver

log = logging.getLogger("forewarn.control")

T = TypeVar("T")

#: History that somebody should look at. Source: L-8.
ALERTS = frozenset({"operation.stuck", "operation.overdue", "operation.abort-failed"})
#: Requests that may wait for the loop. At 0.3 ms each this is three seconds of work.
INBOX_MAX = 10_000
#: How long the loop waits before it tries again what the store refused, in seconds.
RETRY_S = 1.0
#: Longest sleep in seconds, so that a step of the system's clock is noticed.
SLEEP_S_MAX = STEP_LOOK_MS / 1000


class Overloaded(OurError):
    """More requests wait for the control plane than it can answer in time."""

    code = "overloaded"
    status = 503
    message = "The control plane has {count} requests waiting and takes no more."
    advice = "Try again in a few seconds."


class Stopping(OurError):
    """The service is going down and has not done what was asked."""

    code = "stopping"
    status = 503
    message = "The control plane is stopping; nothing was done."
    advice = "Ask again when the service is back."


class Publisher(Protocol):
    """Who brings changes to metadata nodes."""

    def publish(self, change: DocumentChange) -> Future[PublishResult]:
        """Hand a change on; done once every node shows it, or with who did not in time."""


class ControlEngine:
    """Runs a control plane in a thread of its own."""

    def __init__(
        self,
        plane: ControlPlane,
        clock: Clock,
        *,
        drivers: Mapping[str, Driver],
        publisher: Publisher,
        default_driver: str = "simulated",
        on_lost: Callable[[ForewarnError], None] = lambda _: None,
    ) -> None:
        """Prepare; `start` begins.

        Args:
            plane: what to run; nobody else may touch it from now on.
            clock: the service's time.
            drivers: by name.
            publisher: who brings changes to metadata nodes.
            default_driver: for hosts that name none.
            on_lost: called on the loop's thread when another process has become the writer;
                the loop has ended then, and so it has by a bug.

        Raises:
            DriverUnknown: the default driver is not there.
        """
        self._plane = plane
        self._clock = clock
        self._publisher = publisher
        self._driving = DriverDispatch(plane, drivers, default=default_driver, report=self._report)
        self._time = Timekeeping(clock, plane)
        self._on_lost = on_lost
        self._inbox: queue.SimpleQueue[Submission | StateQuery[object] | Published | None] = (
            queue.SimpleQueue()
        )
        self._stopping = threading.Event()
        #: Reports the store would not take yet, in their order.
        self._unreported: list[tuple[Stimulus, str]] = []
        #: What the store has is unknown: it must be settled before anything else.
        self._uncertain = False
        #: Deadlines up to here have been looked at.
        self._passed_ms = 0
        self._last_trouble = ""
        #: The last publication; once it is done, so are all before it.
        self._shown: Future[PublishResult] = Future()
        self._shown.set_result(PublishResult())
        #: Called on the loop's thread after each commit was handed to the publisher; must be quick.
        self.on_committed: Callable[[Committed], None] = lambda _: None
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)

    def recover(self) -> Future[PublishResult]:
        """Take up what was left and publish everything; once, before `start`.

        The future is done once every node shows it, or if the store will not tell now.

        Publish and begin are repeated, which is safe; a notice that was never shown is given
        anew before anybody can see it. Source: L-7, N-1.
        """
        try:
            self._time.take_up()
            now_ms = self._clock.now_ms()
            recovered = self._plane.recover(now_ms)
        except ForewarnError as error:
            self._uncertain = True
            self._trouble(error)
            untold: Future[PublishResult] = Future()
            untold.set_result(PublishResult())
            return untold
        self._passed_ms = now_ms
        self._shown = self._publisher.publish(self._plane.whole())
        self._driving.resume(now_ms)
        self._afterwards(recovered)
        return self._shown

    def start(self) -> None:
        """Begin to run, after `recover`."""
        self._clock.listen(self.wake)
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Finish the request at hand, refuse the others, and end the thread."""
        self._stopping.set()
        self.wake()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        self._clock.unlisten(self.wake)

    def submit(self, stimulus: Stimulus, actor: str, *, shown: bool = False) -> Future[Committed]:
        """Ask for something; the future is done once it is durable, or refused.

        `shown`: not before metadata nodes show it, or were waited for as long as policy says.
        """
        answer: Future[Committed] = Future()
        if self._stopping.is_set():
            answer.set_exception(Stopping())
        elif self._inbox.qsize() >= INBOX_MAX:
            answer.set_exception(Overloaded(count=INBOX_MAX))
        else:
            self._inbox.put(Submission(stimulus, actor, answer, shown))
        return answer

    @property
    def topology(self) -> Topology:
        """The fleet as of the last commit: a value, which any thread may read."""
        return self._plane.state.topology

    def read(self, query: Callable[[ControlPlane], T]) -> Future[T]:
        """Run a query on the loop's thread, where the state holds still."""
        answer: Future[T] = Future()
        if self._stopping.is_set():
            answer.set_exception(Stopping())
        else:
            self._inbox.put(StateQuery(query, answer))  # type: ignore[arg-type]
        return answer

    def why(self, number: int) -> Future[tuple[Waiting, ...]]:
        """Find everything a live operation waits for; none if it has ended or never was."""

        def query(plane: ControlPlane) -> tuple[Waiting, ...]:
            return plane.why(number, self._clock.now_ms(), driver=self._driving.waits(number))

        return self.read(query)

    def note(self, stimulus: Stimulus, actor: str) -> None:
        """Report something that nobody waits for, such as poll marks."""
        if self._inbox.qsize() < INBOX_MAX:
            self._inbox.put(Submission(stimulus, actor, None))

    def wake(self) -> None:
        """Have the loop look at the clock anew."""
        self._inbox.put(None)

    # --- the thread -----------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    item = self._inbox.get(timeout=self._sleep_s())
                except queue.Empty:
                    item = None
                self._handle(item)
                self._pass_time()
        except Exception:
            # Nobody could approve or start anything any more: better a new start than that.
            log.exception("the control plane ends by a bug")
            self._give_up(OurError())
        self._refuse_waiting()

    def _find_out(self) -> None:
        """Ask the store what it has, and whether this process is its writer still."""
        try:
            self._plane.settle()
        except StoreLost as lost:
            self._give_up(lost)
        except ForewarnError as error:
            self._trouble(error)
        else:
            self._uncertain = False
            self._unreported.clear()
            self.recover()

    def _give_up(self, why: ForewarnError) -> None:
        """End: another process is the writer now, or this one cannot go on."""
        self._stopping.set()
        self._on_lost(why)

    def _sleep_s(self) -> float:
        if self._unreported or self._uncertain:
            return RETRY_S
        next_ms = self._next_ms()
        return SLEEP_S_MAX if next_ms is None else min(self._clock.wait_s(next_ms), SLEEP_S_MAX)

    def _next_ms(self) -> int | None:
        """When something is due by time alone, ms since the epoch UTC."""
        times = (self._driving.next_ms, self._plane.next_deadline_ms(self._passed_ms))
        return min((each for each in times if each is not None), default=None)

    def _handle(self, item: Submission | StateQuery[object] | Published | None) -> None:
        match item:
            case Submission():
                self._answer(item)
            case StateQuery():
                if item.answer.set_running_or_notify_cancel():
                    try:
                        item.answer.set_result(item.query(self._plane))
                    except Exception as error:  # noqa: BLE001 - it belongs to who asked
                        item.answer.set_exception(error)
            case Published():
                self._carry_out(item)
            case None:
                pass

    def _answer(self, request: Submission) -> None:
        answer = request.answer
        if answer is not None and not answer.set_running_or_notify_cancel():
            return
        try:
            committed = self._commit(request.stimulus, request.actor)
        except ForewarnError as error:
            if answer is not None:
                answer.set_exception(error)
            elif not isinstance(error, CallerError):
                self._trouble(error)
        except Exception as error:
            log.exception("%s failed by a bug", type(request.stimulus).__name__)
            if answer is not None:
                answer.set_exception(OurError().with_traceback(error.__traceback__))
        else:
            if answer is not None and request.shown and committed.change:
                self._shown.add_done_callback(lambda _: answer.set_result(committed))
            elif answer is not None:
                answer.set_result(committed)

    def _commit(self, stimulus: Stimulus, actor: str) -> Committed:
        """Commit and publish; what comes after publishing waits for its confirmation."""
        if self._uncertain:
            raise StoreUnavailable(place=self._plane.store.place, reason="it is asked what it has")
        if isinstance(stimulus, FleetChange):
            self._driving.check(stimulus.hosts)
        try:
            committed = self._plane.commit(stimulus, actor=actor, now_ms=self._clock.now_ms())
        except StoreUncertain:
            self._uncertain = True
            raise
        except StoreLost as lost:
            self._give_up(lost)
            raise
        if committed.change:
            self._shown = self._publisher.publish(committed.change)
        self.on_committed(committed)
        for entry in committed.entries:
            level = logging.WARNING if entry.action in ALERTS else logging.INFO
            facts = {"action": entry.action, "actor": entry.actor}
            log.log(level, "%s", entry.text, extra=facts)
        self._afterwards(committed)
        return committed

    def _afterwards(self, committed: Committed) -> None:
        """Have the rest done once everything so far is shown, a retry's start included (L-7)."""
        published = Published(committed.announced, committed.begin, committed.abort)
        if not (published.announced or published.begin or published.abort):
            return
        self._shown.add_done_callback(lambda _: self._inbox.put(published))

    def _carry_out(self, published: Published) -> None:
        """Do what had to wait until it was shown."""
        if published.begin and not self._may_begin():
            return  # `recover` takes it up, here or in the process that is the writer by now
        for operation in published.begin:
            if not self._uncertain:  # else it may have ended; `recover` takes it up if it has not
                self._driving.begin(operation, self._clock.now_ms())
        for operation in published.abort:
            self._driving.abort(operation.number, self._clock.now_ms())
        if published.announced:
            self._report(NoticeShown(published.announced), "clock")

    def _may_begin(self) -> bool:
        """Whether this process is the writer still; another may be since a pause. Source: L-7."""
        try:
            if not self._uncertain:
                self._plane.store.confirm()
        except StoreLost as lost:
            self._give_up(lost)
        except ForewarnError as error:
            self._uncertain = True
            self._trouble(error)
        return not self._uncertain and not self._stopping.is_set()

    def _pass_time(self) -> None:
        """Do what time alone makes due: deadlines, then drivers to be asked."""
        if self._uncertain:
            self._find_out()
            return
        if not self._report_again():
            return
        try:
            step_ms = self._time.follow()
        except ForewarnError as error:
            self._uncertain = True  # no notice may be given by a time that a restart would lose
            self._trouble(error)
            return
        now_ms = self._clock.now_ms()
        if step_ms:
            self._driving.put_by(step_ms)
            self._passed_ms = min(self._passed_ms, now_ms)
        deadline_ms = self._plane.next_deadline_ms(self._passed_ms)
        if deadline_ms is not None and deadline_ms <= now_ms:
            self._passed_ms = now_ms
            self._report(Tick(), "clock")
        self._driving.ask(now_ms)

    def _report_again(self) -> bool:
        """Commit what the store would not take before; False if it is unknown now what it has."""
        unreported, self._unreported = self._unreported, []
        for stimulus, actor in unreported:
            self._report(stimulus, actor)
        return not self._uncertain

    def _report(self, stimulus: Stimulus, actor: str) -> None:
        """Commit what nobody waits for; keep it for the next pass if the store will not."""
        try:
            self._commit(stimulus, actor)
        except CallerError as refusal:
            log.info("%s came too late: %s", type(stimulus).__name__, refusal)
        except ForewarnError as error:
            self._unreported.append((stimulus, actor))
            self._trouble(error)
        else:
            self._last_trouble = ""

    def _trouble(self, error: ForewarnError) -> None:
        """Log a trouble once, not each time it comes back."""
        if str(error) != self._last_trouble:
            self._last_trouble = str(error)
            log.error("%s %s", error, error.advice_text(), extra={"action": error.code})

    def _refuse_waiting(self) -> None:
        while True:
            try:
                item = self._inbox.get_nowait()
            except queue.Empty:
                return
            answer = item.answer if isinstance(item, Submission | StateQuery) else None
            if answer is not None and answer.set_running_or_notify_cancel():
                answer.set_exception(Stopping())
