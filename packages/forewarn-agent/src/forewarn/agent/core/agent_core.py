"""The agent's core: receives documents, hook results and the time, and returns intents; pure.

The runner and the simulator call the core as follows::

    rules = default_rules(((PreparationStep("drain"),),))
    core = AgentCore(Identity("vm_0"), rules, journal=saved_or_None)
    intents = core.step(DocumentPolled(document), now_ms)  # any Stimulus of agent/core/values.py
    if core.generation != written:                    # something durable has changed:
        write core.journal() to disk                  #   a dict of JSON types
    do the intents                                    # only now, in their order

* **Stimuli**: `DocumentPolled`, `HookEnded`, `ApprovalEnded`, `PeersSeen`, `PersonAsked`,
  `TimePassed`. After a start with a journal, pass `Resumed(states, rebooted)` first, with the
  states of the hooks in `running()`. A hook without a state counts as interrupted.
* **Intents**: `PrepareIntent`, `CheckIntent`, `RecoverIntent` and `CancelIntent` start a hook that
  must end in a `HookEnded` with the same key. `StopIntent` ends a hook early. `ApproveIntent` sends
  an approval and ends in an `ApprovalEnded`. `AnnounceIntent` and `AskPeersIntent` communicate with
  the other VMs. `NotifyIntent` notifies people.
* **Time**: pass `TimePassed()` at `next_deadline()` at the latest; `now_ms` never decreases. The
  document's status says whether an event has started, not the clock. NotBefore is a time of the
  service's clock, from which `now_ms` may differ.
* **Crash**: load the last written journal, pass `Resumed`, and continue polling.

Guarantees: a step is prepared once for all events that need it. A step that began is undone once,
after the last event that needs it. A step that did not begin recovers only after an event that
started before any of its steps had begun, such as a hardware failure. A step without a prepare hook
recovers after every event. Source: C-10.
"""

from __future__ import annotations

from forewarn.agent.core import records as rec
from forewarn.agent.core.coordination import heard, is_silent, turn
from forewarn.agent.core.event_tracking import TrackedEvents, notification
from forewarn.agent.core.records import EventRecord, StepRecord
from forewarn.agent.core.step_table import StepTable, worst
from forewarn.agent.core.values import (
    AnnounceIntent,
    ApprovalEnded,
    ApproveIntent,
    AskPeersIntent,
    DocumentPolled,
    HookEnded,
    Intent,
    PeersSeen,
    PersonAsked,
    Resumed,
    Stimulus,
)
from forewarn.agent.json_fields import FieldInvalid, member

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from collections.abc import Mapping

    from forewarn.agent.core.identity import Identity
    from forewarn.agent.core.rules import Rule

JOURNAL_VERSION = 1
PASSES_MAX = 1000  # limit of passes; a full document needs a few passes
APPROVAL_RETRY_S_MAX = 30
CHECK_RETRY_S = 30  # pause after an approve hook answered "not now"
ASK_S = 5  # interval between questions to the other VMs
FAR_MS = 1 << 62

#: Reason for remaining steps of an event -> text of the notification about its end.
OVER = {
    "": "is over, and its steps are undone",
    "shared": "is over; its steps still serve another event",
    "forgotten": "is over; an operator has taken over the steps that are not undone",
}


class AgentCore:
    """Decides, for one VM, how to handle each event in the document."""

    def __init__(
        self,
        identity: Identity,
        rules: tuple[Rule, ...],
        *,
        journal: Mapping[str, object] | None = None,
    ) -> None:
        """Start without events, or with an earlier `journal()`; then pass `Resumed` first.

        Raises:
            FieldInvalid: this release cannot read the journal of another release.
        """
        self._identity = identity
        self._out: list[Intent] = []
        self._following = TrackedEvents(identity, rules, out=self._out)
        self._table = StepTable(self._out)
        self._resumed = journal is None
        self._generation = 0
        self._moves = {
            rec.PREPARING: self._prepare,
            rec.READY: self._take_turn,
            rec.CHECKING: self._check,
            rec.APPROVING: self._approve,
        }
        if journal is not None:
            self._read(journal)

    def step(self, stimulus: Stimulus, now_ms: int) -> tuple[Intent, ...]:
        """Process a stimulus and return the intents, in order; `now_ms` must not decrease."""
        assert self._resumed or isinstance(stimulus, Resumed)
        self._out.clear()
        self._take(stimulus, now_ms)
        self._following.time_passed(now_ms)
        self._table.stop_overdue(now_ms)
        for _ in range(PASSES_MAX):
            before = self.generation
            for record in self._following.records:
                self._advance(record, now_ms)
            if self.generation == before:
                return tuple(self._out)
        raise AssertionError("the core does not settle")  # pragma: no cover

    def _take(self, stimulus: Stimulus, now_ms: int) -> None:
        if isinstance(stimulus, DocumentPolled):
            before = self._following.generation, self._table.ahead_ms
            self._following.ahead_ms = self._table.ahead_ms = stimulus.ahead_ms
            self._following.polled(stimulus.document, now_ms)
            after = self._following.generation, self._table.ahead_ms
            if after != before and self._table.records:
                for record in self._following.records:
                    self._table.reschedule(record.event)
        elif isinstance(stimulus, HookEnded):
            self._table.hook_ended(stimulus, now_ms)
        elif isinstance(stimulus, ApprovalEnded):
            self._approval_ended(stimulus, now_ms)
        elif isinstance(stimulus, PeersSeen):
            self._peers_seen(stimulus, now_ms)
        elif isinstance(stimulus, PersonAsked):
            self._person_asked(stimulus, now_ms)
        elif isinstance(stimulus, Resumed):
            self._resume(stimulus, now_ms)

    def next_deadline(self) -> int | None:
        """Return when the caller must pass `TimePassed`, ms since the epoch, or None."""
        times = self._table.deadlines()
        if self._following.sighted:
            times += self._following.deadlines()
            for record in self._following.records:
                if record.next_ms is not None and record.stage in (rec.READY, rec.APPROVING):
                    times.append(record.next_ms)
        return min(times, default=None)

    def journal(self) -> dict[str, object]:
        """Return the durable state, in JSON types."""
        return {
            "version": JOURNAL_VERSION,
            **self._following.form(),
            **self._table.form(),
        }

    def running(self) -> dict[str, int]:
        """Return the hooks that run according to the core: key -> run."""
        return {held.key: held.run for held in self._table.records if held.runs}

    @property
    def events(self) -> tuple[EventRecord, ...]:
        """The records of all followed events, for status and metrics; read-only."""
        return self._following.records

    @property
    def steps(self) -> tuple[StepRecord, ...]:
        """The records of all begun steps, for status and metrics; read-only."""
        return self._table.records

    @property
    def unrecovered(self) -> dict[str, str]:
        """Steps that repeatedly could not be undone and need an operator, each with the reason."""
        return self._table.unrecovered

    @property
    def generation(self) -> int:
        """Number that grows with each change of `journal()` that must be written."""
        return self._generation + self._following.generation + self._table.generation

    @property
    def sighted(self) -> bool:
        """Whether the agent has confirmed a document since its start."""
        return self._following.sighted

    @property
    def doubts(self) -> bool:
        """Whether the agent must read the document again at once, as a confirmation."""
        return self._following.doubts

    def _advance(self, record: EventRecord, now_ms: int) -> None:
        if record.gone or record.stage == rec.ABORTING:
            again = self._following.shown_again(record)
            if again is not None and self._table.is_stuck(record.event_id):
                self._table.take_back(record.event_id)
                self._following.revive(record, again, now_ms=now_ms)
            elif self._release(record, now_ms):
                self._end_release(record, now_ms)
        elif self._following.sighted:  # after a restart, wait for a confirmed document
            self._owe_recoveries(record)
            move = self._moves.get(record.stage)
            if move is not None:
                move(record, now_ms)

    def _owe_recoveries(self, record: EventRecord) -> None:
        """Enter in the table the steps that recover after the event without a prepare hook."""
        if record.stage == rec.ABORTED:  # the steps are undone, at the request of a step
            return
        for group in record.plan:
            for step in group:
                if step.undoes and (record.unprepared or not step.does):
                    self._table.owe_recovery(step, record.event)

    def _prepare(self, record: EventRecord, now_ms: int) -> None:
        if record.group == len(record.plan):
            self._end_preparation(record, now_ms)
            return
        group = record.plan[record.group]
        if record.started and not self._table.have_begun(group, record.event_id):
            hooks = tuple(step for steps in record.plan for step in steps if step.does)
            record.unprepared = not any(
                self._table.have_begun((one,), record.event_id) for one in hooks
            )
            self._hold(record, "the event started before all steps had begun")
            return
        verdicts = [self._table.ensure(step, record.event, now_ms=now_ms) for step in group]
        if not all(verdicts):
            return
        verdict = worst(verdicts)
        if verdict == "go-on":
            record.group += 1
            self._mark()
        elif verdict == "hold":
            self._hold(record, "a step failed or asked to hold")
        else:
            self._abort(record, "a step asked to abort")

    def _end_preparation(self, record: EventRecord, now_ms: int) -> None:
        record.ready_ms = now_ms
        self._announce(record)
        self._notify("prepared", record, "is prepared for")
        if record.started:
            record.stage = rec.UNDER_WAY
        elif record.then == "hold":
            self._hold(record, 'its rule has `then = "hold"`')
        else:
            record.stage = rec.READY
        self._mark()

    def _take_turn(self, record: EventRecord, now_ms: int) -> None:
        if record.next_ms is not None and now_ms < record.next_ms:
            return
        if not record.announced:  # the event had no steps to prepare
            self._announce(record)
        mine = turn(record, self._identity, now_ms=now_ms)
        record.why = mine.reason
        record.next_ms = mine.until_ms
        others = self._identity.others_in(record.event.resources)
        if mine.ahead and not is_silent(record, mine.ahead, now_ms=now_ms):
            if record.asked_ms == now_ms:
                peers = others if record.coordination == "all" else mine.ahead
                self._out.append(AskPeersIntent(record.event, peers))
            return
        if mine.go and record.checks:
            record.stage = rec.CHECKING
            for step in record.checks:
                self._table.check(step, record.event, now_ms=now_ms)
        elif mine.go:
            self._approve(record, now_ms)
        elif record.announced:  # repeat the announcement, which has no answer
            record.next_ms = min(mine.until_ms or FAR_MS, now_ms + ASK_S * 1000)
            self._out.append(AnnounceIntent(record.event, prepared=True))
            self._out.append(AskPeersIntent(record.event, others))

    def _announce(self, record: EventRecord) -> None:
        """Announce that this VM is prepared, if other VMs wait for this VM."""
        if record.coordination == "all" and self._identity.others_in(record.event.resources):
            record.announced = True
            self._mark()
            self._out.append(AnnounceIntent(record.event, prepared=True))

    def _unannounce(self, record: EventRecord) -> None:
        if record.announced or record.holds:
            record.announced = record.holds = False
            self._mark()
            self._out.append(AnnounceIntent(record.event, prepared=False))

    def _check(self, record: EventRecord, now_ms: int) -> None:
        verdicts = [self._table.check(step, record.event, now_ms=now_ms) for step in record.checks]
        if not all(verdicts):
            return
        self._table.drop_checks(record.checks, record.event_id)
        verdict = worst(verdicts)
        if verdict == "go-on":
            self._approve(record, now_ms)
        elif verdict == "hold":
            record.stage = rec.READY
            record.why = "an approve hook answered: not now"
            record.next_ms = now_ms + CHECK_RETRY_S * 1000
            leads = self._identity.position_in(record.event.resources) == 0
            record.peers = () if leads else record.peers  # a substitute asks again in any case
        else:
            self._abort(record, "an approve hook asked to abort")

    def _approve(self, record: EventRecord, now_ms: int) -> None:
        if record.next_ms is not None and now_ms < record.next_ms:
            return
        if record.stage == rec.APPROVING and record.next_ms is None:
            return  # the runner is sending the approval
        record.stage = rec.APPROVING
        record.next_ms = None
        record.tries += 1
        self._mark()
        self._out.append(ApproveIntent(record.event))

    def _approval_ended(self, ended: ApprovalEnded, now_ms: int) -> None:
        record = self._following.get(ended.event_id)
        if record is None:
            return
        if ended.accepted:
            record.approved = True
            record.stage = rec.APPROVED if record.stage == rec.APPROVING else record.stage
            self._mark()
            self._notify("approved", record, "is approved")
        elif record.stage == rec.APPROVING and not record.gone:
            record.why = f"the approval failed: {ended.reason}"
            wait_s = min(2 ** min(record.tries, 5), APPROVAL_RETRY_S_MAX)
            record.next_ms = now_ms + wait_s * 1000
            if record.tries == 1:
                why = f"is not approved: {ended.reason}"
                self._notify("approval-failed", record, why, level="error")
        if record.start_untold:
            self._following.tell_start(record)

    def _peers_seen(self, seen: PeersSeen, now_ms: int) -> None:
        record = self._following.get(seen.event_id)
        if record is not None and record.stage == rec.READY and heard(record, seen, now_ms=now_ms):
            self._mark()

    def _hold(self, record: EventRecord, why: str) -> None:
        record.stage = rec.UNDER_WAY if record.started else rec.HELD
        record.why = why
        self._mark()
        others = self._identity.others_in(record.event.resources)
        if record.stage == rec.HELD and others and record.coordination != "self":
            record.holds = True
            self._out.append(AnnounceIntent(record.event, prepared=record.announced, holds=True))
        self._notify("held", record, f"is not approved by this VM: {why}", level="warning")

    def _abort(self, record: EventRecord, why: str) -> None:
        record.stage = rec.ABORTING
        record.ending = record.ending or "cancel"
        record.why = why
        self._mark()
        self._notify("aborted", record, f"is not prepared for: {why}", level="error")

    def _release(self, record: EventRecord, now_ms: int) -> bool:
        """Undo the steps of only this event, last group first; return whether all are undone."""
        self._unannounce(record)
        if not self._table.drop_checks(record.checks, record.event_id):
            return False
        for group in reversed(record.plan):
            gone = [self._table.release(step, record, now_ms=now_ms) for step in group]
            if not all(gone):
                return False
        return True

    def _end_release(self, record: EventRecord, now_ms: int) -> None:
        self._mark()
        if not record.gone:
            record.stage = rec.ABORTED
            return
        if record.plan:
            self._notify("finished", record, OVER[record.remains])
        self._following.finish(record, now_ms)

    def _person_asked(self, request: PersonAsked, now_ms: int) -> None:
        if request.verb == "undo":
            self._table.undo_at_once(request.name, now_ms)
            return
        for held in self._table.forget(request.name):
            for record in self._following.records:
                if record.event_id in held.holders:
                    record.remains = "forgotten"

    def _resume(self, resumed: Resumed, now_ms: int) -> None:
        assert not self._resumed
        self._resumed = True
        self._table.resume(resumed.states, now_ms)
        if resumed.rebooted:
            self._table.rebooted(now_ms)
        for record in self._following.records:
            if record.start_untold:  # the answer to its approval has ended with the process
                self._following.tell_start(record)
            if record.stage == rec.APPROVING and not record.gone:
                record.next_ms = now_ms
                if record.coordination == "all":  # another VM may be unprepared now
                    record.stage = rec.READY
                    self._mark()
            if resumed.rebooted and not record.gone:
                if not record.hit or record.group:
                    self._mark()
                record.hit = True
                if record.plan:
                    record.group = 0  # withdraw the announcement, because the steps may be undone
                    self._unannounce(record)
                if record.plan and record.stage in self._moves:
                    self._hold(record, "a restart of this VM may have undone its preparations")

    def _read(self, journal: Mapping[str, object]) -> None:
        if member(journal, "version", 0) != JOURNAL_VERSION:
            raise FieldInvalid(name="version", found=journal.get("version"))
        self._following.restore(journal)
        self._table.restore(journal)

    def _mark(self) -> None:
        self._generation += 1

    def _notify(self, action: str, record: EventRecord, text: str, *, level: str = "info") -> None:
        self._out.append(notification(action, record.event, text, level=level))
