"""The run loop: one thread that owns the control plane and sleeps until work arrives.

All work arrives through the thread's inbox, and futures return the answers. The loop runs effects
in order: commit, publish and delay waiting effects (`publishing.py`), begin (`driver_host.py`).
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from forewarn_base.audit_chain import OMITTED, CallRecord
from forewarn_base.clock import Clock
from forewarn_base.errors import CallerError, ForewarnError, OurError
from forewarn_base.values import replace
from forewarn_core.access.roles import Authority
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.step import PORTION_MAX, StepResult
from forewarn_core.fleet.stimulus import (
    ChangeTopology,
    CreateMaintenance,
    NoticeShown,
    NotShown,
    PlaneStimulus,
    PlannerReport,
    Proceed,
    Tick,
    act_of,
)
from forewarn_metadata.replication.messages import PublishResult
from forewarn_server.control.driver_calls import CallEnded, DriverSetup
from forewarn_server.control.driver_host import DriverHost
from forewarn_server.control.inbox import Item, KeptReports, StateQuery, Stopping, Submission
from forewarn_server.control.plane import ControlPlane
from forewarn_server.control.planner_host import PlannerHost
from forewarn_server.control.publishing import (
    PublicationEnded,
    PublicationFailed,
    Publisher,
    Publishing,
)
from forewarn_server.control.readable import ALONE, Freshness, ProcessFacts, ReadableControl
from forewarn_server.control.service_state import ServiceState, ServiceStatus
from forewarn_server.control.timekeeping import STEP_LOOK_MS, Timekeeping
from forewarn_store.errors import (
    StoreContradiction,
    StoreFull,
    StoreLost,
    StoreUnavailable,
    StoreUncertain,
    StoreWentBack,
)

log = logging.getLogger("forewarn.control")

T = TypeVar("T")

#: Delay before the loop retries writes that the store refused, in seconds.
RETRY_S = 1.0
#: Requests handled between two portions of large work; a larger batch is followed by one portion.
REQUESTS_FIRST = 8
#: Time after which no further request joins a commit, in milliseconds: an operator's call may wait
#: for the commit.
BATCH_MS_MAX = 200
#: Maximum sleep in seconds, so that a step of the system's clock is noticed.
SLEEP_S_MAX = STEP_LOOK_MS / 1000


#: Reason given by a process that is not ready because its lease is not renewed. Source:
#: H-3.
LAPSED = "The lease has not been renewed for a term: another process may be the writer."


class ControlLoop(ReadableControl):
    """Runs a control plane in a thread of its own."""

    view: ControlPlane

    def __init__(
        self,
        plane: ControlPlane,
        clock: Clock,
        *,
        drivers: DriverSetup,
        publisher: Publisher,
        on_lost: Callable[[ForewarnError], None] = lambda _: None,
        on_went_back: Callable[[], object] = lambda: None,
        process: ProcessFacts = ALONE,
    ) -> None:
        """Prepare the loop, which owns the plane from now on; `start` begins.

        `on_lost` is called on the loop's thread when it ends because of another writer or a bug,
        and `on_went_back` when this process's documents are older than those that VMs have seen.

        Raises:
            DriverUnknown: the default driver does not exist.
        """
        super().__init__(clock, ServiceStatus(), decides=True, process=process)
        self.view = self._plane = plane
        self._publishing = Publishing(publisher, self._inbox.put)
        self._drivers = DriverHost(plane, drivers, deliver=self._inbox.put, report=self._report)
        self.planner = PlannerHost(
            plane, clock, drivers, inbox=self._inbox, replica=self.replica, report=self._report
        )
        self._time = Timekeeping(clock, plane)
        self._on_lost = on_lost
        self._on_went_back = on_went_back
        self._withheld = False
        #: Why the service last stopped deciding.
        self._doubted: ForewarnError | None = None
        self._kept = KeptReports()
        #: Operations that exceeded the portion of a commit, in order.
        self._remaining: dict[int, None] = {}
        self._handled = 0  # requests since the loop was idle
        self._passed_ms = 0  # deadlines up to this time have been handled
        self._ask_ms = 0  # time to ask the store for its state again, by elapsed time
        #: The last publication; done once it has succeeded or failed.
        self._shown: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)

    @property
    def state(self) -> ServiceState:
        """The state of the service; callable on any thread."""
        return self._status.state

    def freshness(self) -> Freshness:
        """Return the last commit, which is the newest one while the lease is held."""
        plane = self._plane
        return Freshness(plane.sequence, self._clock.elapsed_ms(), plane.history_seq)

    @property
    def shows(self) -> bool:
        """Whether changes can reach metadata nodes now; otherwise nothing is begun."""
        return not self._publishing.failing

    @property
    def trouble(self) -> str:
        """Why the control plane cannot decide now; empty while it can. Callable on any thread."""
        return LAPSED if self.lapsed() else self._status.trouble

    def driver_waits(self, number: int) -> str:
        """Return what the driver of an operation waits for; empty while the driver works."""
        return self._drivers.waits(number)

    def recover(self) -> Future[None]:
        """Resume unfinished work and publish everything; call it once, before `start`.

        The future is done once every node shows everything. If the store refuses the recovery, the
        loaded state is shown, and nothing is decided.
        """
        try:
            return self._take_up()
        except ForewarnError as error:
            self._doubt(error)
            if self._withheld:
                return self._shown
            return self._publishing.publish(self._plane.loaded(), StepResult())

    def _take_up(self) -> Future[None]:
        """Publish and begin unfinished work again, which is safe; see `Recover`. Source: L-7."""
        self._time.take_up()
        now_ms = self._clock.now_ms()
        # This precedes `Recover`, because `Recover` disables silent groups. Source: B-2.
        self._kept.write_polls(partial(self._plane.commit, now_ms=now_ms), now_ms)
        recovered = self._plane.recover(now_ms)
        self._status.become(ServiceState.READY)
        self._passed_ms = now_ms
        self._remaining.update(dict.fromkeys(recovered.remaining))
        self._drivers.resume(now_ms)
        self.planner.request(recovered.to_plan)
        self.planner.validate(recovered.validate)
        recovered = replace(recovered, shown=tuple(self._plane.state.operations))
        return self._publishing.publish_whole(self._plane.whole(), recovered)

    def start(self) -> None:
        """Start the thread, after `recover`."""
        self._clock.listen(self.wake)
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Finish the current request, refuse waiting requests, and end the thread."""
        self._status.become(ServiceState.STOPPING)
        self.wake()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        self._clock.unlisten(self.wake)
        self.replica.stop()

    def submit(
        self,
        stimulus: PlaneStimulus,
        actor: str,
        *,
        shown: bool = False,
        call: CallRecord | None = None,
        authority: Authority | None = None,
    ) -> Future[StepResult]:
        """Send a stimulus; the future is done once it is durable, or refused.

        With `shown`, the future waits until metadata nodes show the change, as long as the policy
        allows. `authority` is that of a caller whom a second person may have to confirm.
        """
        return self._inbox.submit(stimulus, actor, shown=shown, call=call, authority=authority)

    def read(self, query: Callable[[ControlPlane], T]) -> Future[T]:
        """Run a query on the loop's thread, while the state does not change."""
        return self._inbox.read(query)

    def record(self, call: CallRecord) -> None:
        """Record a call that was refused or changed nothing; callable on any thread."""
        self._inbox.put(call)

    def note(self, stimulus: PlaneStimulus, actor: str) -> None:
        """Queue a report without a waiting caller, such as polls."""
        self._inbox.note(stimulus, actor)

    def note_went_back(self, error: StoreWentBack) -> None:
        """Stop deciding, because the store has lost commits; on any thread. Source: H-10."""
        self._inbox.put(error)

    def wake(self) -> None:
        """Make the loop check the clock again."""
        self._inbox.put(None)

    def _run(self) -> None:
        try:
            while not self._status.ended:
                self.turn(self._inbox.take(self._sleep_s()))
        except Exception:
            # Without the loop no work could be approved or started, so a restart is better.
            log.exception("a bug ended the control plane")
            self._end(ServiceState.STOPPING, OurError())
        self.on_committed.notify()
        if omitted := self._limit.due():
            self._record(omitted)  # logged, since nothing is written any more
        self._inbox.refuse_waiting()

    def turn(self, item: Item) -> None:
        """Run one turn of the loop: handle one item or one batch, then all due work."""
        before = self._handled
        self._handled = 0 if item is None else before + self._handle(item)
        self._pass_time()
        room = self._status.ready and not self._kept
        due = item is None or self._handled // REQUESTS_FIRST > before // REQUESTS_FIRST
        if self._remaining and room and due:
            self._proceed()
        self.on_committed.notify()

    def _proceed(self) -> None:
        """Continue large work by one portion; waiting requests precede the next portion."""
        portion = tuple(itertools.islice(self._remaining, PORTION_MAX))
        for number in portion:
            del self._remaining[number]
        self._report(Proceed(portion), "clock")

    def _find_out(self) -> None:
        """Read the store's state, once in `RETRY_S`; documents do not change. Source: L-7, D-1."""
        if self._clock.elapsed_ms() < self._ask_ms:
            return
        self._ask_ms = self._clock.elapsed_ms() + int(RETRY_S * 1000)
        try:
            self._plane.settle()
            self._status.become(ServiceState.SETTLING)
            self._kept.take()  # `Recover` detects the same ends of work
            self._remaining.clear()
            self._take_up()
        except ForewarnError as error:
            self._doubt(error)

    def _end(self, state: ServiceState, why: ForewarnError) -> None:
        """Stop, because another process is the writer, or this process cannot continue."""
        if self._status.become(state):
            self._on_lost(why)

    def _doubt(self, error: ForewarnError) -> None:
        """Stop deciding until the store's state is known; end if the store is lost."""
        if isinstance(error, StoreLost):
            self._end(ServiceState.SUPERSEDED, error)
        else:
            self._doubted = error
            self._status.become(ServiceState.UNCERTAIN)
            self._status.trouble_with(error)
            if isinstance(error, StoreWentBack):
                self._withhold()

    def _doubt_error(self) -> ForewarnError:
        """Return why nothing is decided; nothing was changed."""
        doubt = self._doubted
        if isinstance(doubt, StoreFull | StoreWentBack):
            return type(doubt)(**doubt.facts)
        place = self._plane.store.place
        return StoreUnavailable(place=place, reason="its state is being checked")

    def _withhold(self) -> None:
        """Show nothing that is older than what VMs have seen; they keep their documents. H-10."""
        if not (self._withheld or self._plane.store.lineage.ahead):
            self._withheld = True
            self._on_went_back()
            self._shown = self._publishing.publish(self._plane.withheld(), StepResult())

    def _sleep_s(self) -> float:
        if self._kept or not self._status.ready:
            return RETRY_S
        if self._remaining:
            return 0.0
        next_ms = self._next_ms()
        return SLEEP_S_MAX if next_ms is None else min(self._clock.wait_s(next_ms), SLEEP_S_MAX)

    def _next_ms(self) -> int | None:
        """When the next deadline is, ms since the epoch UTC."""
        due_ms = self._plane.next_deadline_ms(self._passed_ms)
        times = (self._drivers.next_ms, self._publishing.next_ms, due_ms)
        return min((each for each in times if each is not None), default=None)

    def _handle(self, item: Item) -> int:
        """Handle an item, with others that one commit stores with it; return their number."""
        match item:
            case Submission(result=None):
                self._note(item)
            case Submission():
                return self._answer(item)
            case StateQuery():
                item.run(self._plane)
            case CallEnded():
                self._take_calls(self._inbox.take_ends(item))
            case PublicationEnded():
                self._take_publication(item)
            case CallRecord():
                self._record(self._inbox.take_ends(item))
            case StepResult():
                self._carry_out(item, PublishResult())
            case StoreWentBack():
                self._doubt(item)
            case _ if isinstance(item, PlannerReport):
                self.planner.take(item)
        return 1

    def _note(self, report: Submission) -> None:
        """Commit a report of another thread; log a bug."""
        try:
            self._report(report.stimulus, report.actor)
        except Exception as error:  # noqa: BLE001 - of this report alone
            self._named(error, report)

    def _answer(self, first: Submission) -> int:
        """Handle a request, and others that wait, in one commit; return their number."""
        until_ms = self._clock.elapsed_ms() + BATCH_MS_MAX
        drafts: list[Draft] = []
        requests: list[Submission] = []
        refusals: dict[int, ForewarnError] = {}
        count = 0
        for request in self._inbox.take_batch(first):
            count += 1
            if request.begin():
                if (refusal := self._refusal(drafts, request)) is not None:
                    refusals[len(requests)] = refusal
                requests.append(request)
            if self._clock.elapsed_ms() >= until_ms:
                break
        self._settle(drafts, requests, refusals)
        return count

    def _refusal(self, drafts: list[Draft], request: Submission) -> ForewarnError | None:
        """Add a request's step to the drafts; return why it is refused, or None."""
        try:
            drafts.append(self._decide(request.stimulus, request.actor, request.authority))
        except Exception as error:  # noqa: BLE001 - of this request alone
            return self._named(error, request)
        return None

    def _settle(
        self,
        drafts: Sequence[Draft],
        requests: Sequence[Submission],
        refusals: Mapping[int, ForewarnError],
    ) -> None:
        """Commit the steps of requests, and answer each request; `refusals` are by its index.

        Refusals wait for the commit, too, because they may depend on earlier requests in it.
        """
        if not requests:
            return
        outcome = self._stored(drafts, requests[0])
        if isinstance(outcome, StoreContradiction) and len(requests) > 1:
            for request in requests:  # the store cannot store one of them
                alone: list[Draft] = []
                refusal = self._refusal(alone, request)
                self._tell(request, refusal or self._stored(alone, request))
        elif isinstance(outcome, ForewarnError):
            for request in requests:
                request.refuse(outcome)
        else:
            for number, request in enumerate(requests):
                self._tell(request, refusals.get(number) or outcome)

    def _stored(self, drafts: Sequence[Draft], first: Submission) -> StepResult | ForewarnError:
        """Commit the steps of requests; return the error if that fails."""
        try:
            return self._write(drafts, first.call) if drafts else StepResult()
        except Exception as error:  # noqa: BLE001 - of all requests of this commit
            return self._named(error, first)

    def _tell(self, request: Submission, outcome: StepResult | ForewarnError) -> None:
        """Answer a request: now, or once metadata nodes show the change."""
        if isinstance(outcome, ForewarnError):
            request.refuse(outcome)
        elif request.shown and outcome.visible:
            self._shown.add_done_callback(lambda _: request.accept(outcome))
        else:
            request.accept(outcome)

    @staticmethod
    def _named(error: Exception, request: Submission) -> ForewarnError:
        """Return the error for a caller, and log a bug."""
        if isinstance(error, ForewarnError):
            return error
        name = type(request.stimulus).__name__
        log.error("%s failed because of a bug", name, exc_info=error)
        return OurError().with_traceback(error.__traceback__)

    def _commit(self, stimulus: PlaneStimulus, actor: str) -> StepResult:
        """Commit and publish; the effects wait until nodes confirm the publication."""
        return self._write([self._decide(stimulus, actor)])

    def _decide(
        self, stimulus: PlaneStimulus, actor: str, authority: Authority | None = None
    ) -> Draft:
        """Take one step of the next commit."""
        if self._status.ended:
            raise Stopping
        if not self._status.ready:
            raise self._doubt_error()
        act = act_of(stimulus)
        if isinstance(act, ChangeTopology):
            self._drivers.check(act.hosts)
        elif isinstance(act, CreateMaintenance):
            self.planner.check(act)
        now_ms = self._clock.now_ms()
        return self._plane.decide(stimulus, actor=actor, now_ms=now_ms, authority=authority)

    def _write(self, drafts: Sequence[Draft], call: CallRecord | None = None) -> StepResult:
        """Commit steps, and publish them; the effects wait until nodes confirm the publication."""
        try:
            result = self._plane.write(drafts, call)
        except (StoreLost, StoreUncertain, StoreWentBack) as error:
            self._doubt(error)
            raise
        self._remaining.update(dict.fromkeys(result.remaining))
        if result.to_plan:
            self.planner.request(result.to_plan)
        if result.validate:
            self.planner.validate(result.validate)
        change = self._plane.change_of(result)
        if change is not None:
            result = replace(result, visible=True, shown=self._plane.shown_by(result))
            self._shown = self._publishing.publish(change, self._with_withheld(result))
        elif result.has_effects:
            self._publishing.after(result)
        self.on_committed.put(result)
        return result

    def _with_withheld(self, result: StepResult) -> StepResult:
        """Begin also the changed operations whose beginning was withheld."""
        changed = result.changes.operations.items()
        withheld = self._drivers.withhold(
            [number for number, each in changed if each.execution.started_ms]
        )
        return replace(result, begin=(*result.begin, *withheld)) if withheld else result

    def _record(self, calls: list[CallRecord]) -> None:
        """Write audit records of calls that were refused or changed nothing."""
        try:
            if not self._status.ready:
                raise Stopping if self._status.ended else self._doubt_error()
            self._plane.store.write_calls(calls)
        except ForewarnError as error:
            for call in calls:  # each call was refused, or changed nothing
                text = "The audit lacks %s of %s, outcome %s: %s"
                who = call.principal or "an unknown caller"
                what = call.object if call.request == OMITTED else f"the call {call.request}"
                facts = (what, who, call.outcome, error)
                log.warning(text, *facts, extra={"action": "audit.lost"})

    def _take_publication(self, ended: PublicationEnded) -> None:
        try:
            results = self._publishing.ended(ended, self._clock.now_ms())
        except PublicationFailed as failed:
            self._status.trouble_with(failed)
            return
        for effects in results:
            self._carry_out(effects, ended.result)

    def _carry_out(self, effects: StepResult, result: PublishResult) -> None:
        """Run the effects of a publication that every awaited node shows. Source: M-4."""
        announced, now_ms = effects.announced, self._clock.now_ms()
        if result.unconfirmed and effects.has_effects:
            self._report(NotShown(effects.affected, result.unconfirmed, result.hosts), "metadata")
            waiting = self._plane.waiting_to_be_shown(announced, result.hosts, now_ms)
            self._publishing.show_again(waiting, now_ms)
            announced = tuple([number for number in announced if number not in waiting])
        if not self._status.ready:
            return  # `_take_up` publishes and begins this work again
        for operation in effects.begin:
            self._drivers.begin(operation, self._clock.now_ms())
        for operation in effects.abort:
            self._drivers.abort(operation.number, self._clock.now_ms())
        if announced:
            self._report(NoticeShown(announced), "clock")

    def _take_calls(self, ends: list[CallEnded]) -> None:
        """Handle results of drivers' calls; this process may no longer be the writer."""
        for unconfirmed in self._drivers.ended(ends, self._clock.now_ms()):
            if isinstance(unconfirmed, StoreLost | StoreWentBack):
                self._doubt(unconfirmed)
            else:
                self._status.trouble_with(unconfirmed)  # the call is tried again

    def _pass_time(self) -> None:
        """Handle everything due: deadlines, then calls of drivers."""
        if not self._status.ready:
            if not self._status.ended:
                self._find_out()
            return
        if not self._report_again():
            return
        self.record_omitted()
        try:
            step_ms = self._time.follow(lambda put_off: self._commit(put_off, "clock"))
        except ForewarnError as error:
            self._doubt(error)  # no notice may use a time that a restart would lose
            return
        now_ms = self._clock.now_ms()
        if step_ms:
            self._drivers.shift_times(step_ms)
            self._publishing.shift_times(step_ms)
            self._passed_ms = min(self._passed_ms, now_ms)
        deadline_ms = self._plane.next_deadline_ms(self._passed_ms)
        if step_ms < 0 or (deadline_ms is not None and deadline_ms <= now_ms):
            self._passed_ms = now_ms
            self._report(Tick(), "clock")
        try:
            self._publishing.turn(now_ms, self._plane)
            self._drivers.turn(now_ms)
        except ForewarnError as error:
            self._doubt(error)

    def _report_again(self) -> bool:
        """Commit stored reports again; False if the state of the store is now unknown."""
        try:
            if self._kept.write_polls(self._commit, self._clock.now_ms()):
                self._status.trouble_is_over()
        except ForewarnError as error:
            self._status.trouble_with(error)
        for stimulus, actor in self._kept.take():
            self._report(stimulus, actor)
        return self._status.ready

    def _report(self, stimulus: PlaneStimulus, actor: str) -> None:
        """Commit a report without a waiting caller; store it for later if the store fails."""
        try:
            self._commit(stimulus, actor)
        except CallerError as refusal:
            log.info("%s came too late: %s", type(stimulus).__name__, refusal)
        except Stopping:
            return  # the next start detects this again
        except ForewarnError as error:
            if not isinstance(error, StoreContradiction):  # an invalid report is dropped
                self._kept.keep(stimulus, actor, self._clock.now_ms())
            self._status.trouble_with(error)
            return
        else:
            self._status.trouble_is_over()
        self.planner.decided(stimulus)
