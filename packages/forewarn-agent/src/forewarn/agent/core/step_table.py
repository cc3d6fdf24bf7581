"""The step table: prepares and undoes each step once for all events that need the step; pure.

A shared step is prepared for the first event, and undone after the last. A step can also be in the
table unprepared, because it recovers after an event that nothing was prepared for.
"""

from __future__ import annotations

from forewarn.agent.core import records as rec
from forewarn.agent.core.records import StepRecord
from forewarn.agent.core.rules import ABORT_STATUS, HOLD_STATUS
from forewarn.agent.core.values import (
    CancelIntent,
    CheckIntent,
    HookEnded,
    NotifyIntent,
    PrepareIntent,
    RecoverIntent,
    StopIntent,
)
from forewarn.agent.json_fields import member, several

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from forewarn.agent.core.records import EventRecord
    from forewarn.agent.core.rules import PreparationStep
    from forewarn.agent.core.values import HookIntent, Intent
    from forewarn_base.protocol.documents import ScheduledEvent

UNDO_RETRY_S = 10  # first pause before a retry, doubled after each failure
UNDO_RETRY_S_MAX = 900  # longest pause before a retry; mostly an operator must remove the cause
UNDO_FAILURES_ALERT = 3  # failures before a notification; doubles each time

HOOKS: dict[str, type[HookIntent]] = {
    "prepare": PrepareIntent,
    "approve": CheckIntent,
    "recover": RecoverIntent,
    "cancel": CancelIntent,
}
SEVERITY = ("go-on", "hold", "abort")


def worst(verdicts: Iterable[str]) -> str:
    """Return the most severe verdict."""
    return max(verdicts, key=SEVERITY.index)


def check_key(step: PreparationStep, event_id: str) -> str:
    """Return the key of an event's approve hook, unique for each event."""
    return f"{event_id}/{step.name}"


class StepTable:
    """The steps that have begun or must recover, by key, and their running hooks."""

    def __init__(self, out: list[Intent]) -> None:
        """Start without steps; append intents to `out`."""
        self._out = out
        self._steps: dict[str, StepRecord] = {}
        self._run = 0
        #: How far the service's clock is ahead of `now_ms`.
        self.ahead_ms = 0
        #: Number that grows with each change that the journal must contain.
        self.generation = 0

    @property
    def records(self) -> tuple[StepRecord, ...]:
        """All records, in the order in which the steps began."""
        return tuple(self._steps.values())

    def deadlines(self) -> list[int]:
        """Return the deadlines of running hooks and the times of retries, ms since the epoch."""
        if not self._steps:
            return []
        times = [held.deadline_ms for held in self._steps.values() if held.status == rec.RUNNING]
        return times + [held.retry_ms for held in self._steps.values() if _waits(held)]

    @property
    def unrecovered(self) -> dict[str, str]:
        """Steps that repeatedly could not be undone, each with the reason."""
        alerting = (one for one in self._steps.values() if one.failures >= UNDO_FAILURES_ALERT)
        return {held.key: held.trouble for held in alerting}

    # ---- preparing -----------------------------------------------------------------------------

    def ensure(self, step: PreparationStep, event: ScheduledEvent, *, now_ms: int) -> str:
        """Start a step for an event if needed; return its verdict, or `""` before its end."""
        event_id = event.event_id.upper()
        held = self._steps.get(step.name)
        if held is None:
            held = self._add_step(step.name, step, phase="prepare")
            self._begin(held, event, now_ms=now_ms)
        elif held.phase != "prepare" and held.status != rec.AGAIN:
            return ""  # wait until the step is undone, then prepare the step again
        elif held.phase != "prepare":
            self._prepare_again(held)
            self._begin(held, event, now_ms=now_ms)
        elif held.status in (rec.AGAIN, rec.UNPREPARED):
            self._begin(held, event, now_ms=now_ms)
        elif event_id not in held.holders:
            held.holders.append(event_id)
            self._mark()
            if held.status == rec.FAILED:
                self._begin(held, event, now_ms=now_ms)
        return "" if held.runs else held.verdict

    def owe_recovery(self, step: PreparationStep, event: ScheduledEvent) -> None:
        """Enter a step that recovers after an event, also if nothing prepares the step.

        A step that is being undone for an earlier event is left alone until it is undone; the
        caller therefore repeats the call. Source: C-10.
        """
        event_id = event.event_id.upper()
        held = self._steps.get(step.name)
        if held is None:
            held = self._add_step(step.name, step, phase="prepare")
            held.event = event
            held.status = rec.UNPREPARED
            held.attempt = 1  # so that a hook that never begins does not remove the step
        elif held.phase != "prepare" or event_id in held.holders:
            return
        held.holders.append(event_id)
        self._mark()

    def check(self, step: PreparationStep, event: ScheduledEvent, *, now_ms: int) -> str:
        """Run an event's approve hook; return the hook's verdict, or `""` before its end."""
        key = check_key(step, event.event_id.upper())
        held = self._steps.get(key)
        if held is None:
            held = self._add_step(key, step, phase="approve")
            self._begin(held, event, now_ms=now_ms)
        elif held.status == rec.AGAIN:
            self._begin(held, event, now_ms=now_ms)
        return "" if held.runs else held.verdict

    def have_begun(self, steps: tuple[PreparationStep, ...], event_id: str) -> bool:
        """Return whether all steps have begun for the event; steps without a hook have."""
        held = [self._step_held_for(step, event_id) for step in steps]
        return all(one is not None and one.status != rec.UNPREPARED for one in held)

    def hook_ended(self, ended: HookEnded, now_ms: int) -> None:
        """Process the end of a hook; ignore hooks that are not running."""
        held = self._steps.get(ended.key)
        if held is None or not held.runs:
            return
        self._mark()
        status = ended.exit_status
        text = ended.reason or (f"exit status {status}" if status >= 0 else "the hook was killed")
        if held.is_being_undone:
            self._undo_ended(held, "" if status == 0 else text, now_ms=now_ms)
            return
        held.status = rec.DONE if status in (0, HOLD_STATUS) else rec.FAILED
        known = {0: "go-on", HOLD_STATUS: "hold", ABORT_STATUS: "abort"}
        held.verdict = known.get(status, held.step.on_failure)
        if status == HOLD_STATUS:
            self._notify("step-held", held, "asked to hold")
        elif status:
            self._notify("step-failed", held, f"did not succeed: {text}", level="error")

    def reschedule(self, event: ScheduledEvent) -> None:
        """Move the deadlines of an event's hooks with its NotBefore or the service's clock."""
        for held in self._steps.values():
            prepares = held.phase == "prepare" and held.status == rec.RUNNING
            same = held.event.event_id.upper() == event.event_id.upper()
            if not prepares or not same:
                continue
            before = held.event, held.deadline_ms
            held.event = event
            held.deadline_ms = self._deadline_ms(held, held.begun_ms)
            if before != (event, held.deadline_ms):
                self._mark()

    def stop_overdue(self, now_ms: int) -> None:
        """Stop every hook whose deadline has passed."""
        for held in self._steps.values():
            if held.status == rec.RUNNING and now_ms >= held.deadline_ms:
                self._stop(held, "its deadline has passed")

    # ---- undoing -------------------------------------------------------------------------------

    def release(self, step: PreparationStep, record: EventRecord, *, now_ms: int) -> bool:
        """Undo a step unless another event needs it; return whether nothing remains to do."""
        held = self._step_held_for(step, record.event_id)
        if held is None:
            return True
        held.recovers = held.recovers or record.ending == "recover"
        if len(held.holders) > 1:
            held.holders.remove(record.event_id)
            record.remains = record.remains or "shared"
            self._mark()
            return True
        if held.phase == "prepare":
            return self._undo(held, record, now_ms=now_ms)
        if held.status == rec.AGAIN and now_ms >= held.retry_ms:
            self._begin(held, record.event, now_ms=now_ms)
        return False

    def drop_checks(self, checks: tuple[PreparationStep, ...], event_id: str) -> bool:
        """Stop and remove an event's approve hooks; return whether all have ended."""
        clear = True
        for step in checks:
            held = self._steps.get(check_key(step, event_id))
            if held is not None and held.status == rec.RUNNING:
                self._stop(held, "the event is over")
            if held is not None and held.runs:
                clear = False
            elif held is not None:
                del self._steps[held.key]
                self._mark()
        return clear

    def _undo(self, held: StepRecord, record: EventRecord, *, now_ms: int) -> bool:
        if held.status == rec.RUNNING:
            self._stop(held, "the event is over")
        if held.runs:
            return False
        if not held.step.undoes:
            del self._steps[held.key]
            self._mark()
            return True
        held.phase = "recover" if held.recovers else record.ending
        held.attempt = 0
        self._begin(held, record.event, now_ms=now_ms)
        return False

    def is_stuck(self, event_id: str) -> bool:
        """Return whether an event waits only for retries of undo hooks."""
        mine = [held for held in self._steps.values() if event_id in held.holders]
        return any(map(_waits, mine)) and not any(held.runs for held in mine)

    def take_back(self, event_id: str) -> None:
        """Stop undoing steps of an event that is announced again; prepare failed steps again."""
        for held in self._steps.values():
            if event_id in held.holders and _waits(held):
                self._prepare_again(held)

    def undo_at_once(self, name: str, now_ms: int) -> None:
        """Retry now the waiting undo hooks of a step or an event."""
        for held in self._waiting(name):
            held.retry_ms = now_ms
            self._mark()

    def forget(self, name: str) -> tuple[StepRecord, ...]:
        """Drop the waiting undo hooks of a step or an event; return the steps for an operator."""
        forgotten = self._waiting(name)
        for held in forgotten:
            del self._steps[held.key]
            self._mark()
            self._notify(
                "forgotten", held, "was dropped at an operator's request and is NOT undone"
            )
        return forgotten

    def _waiting(self, name: str) -> tuple[StepRecord, ...]:
        held = (one for one in self._steps.values() if _waits(one))
        return tuple(one for one in held if one.key == name or name.upper() in one.holders)

    def _prepare_again(self, held: StepRecord) -> None:
        held.phase = "prepare"
        held.attempt = (
            1  # undo the step even if this hook never begins, because an earlier hook began
        )
        held.failures = 0
        held.trouble = ""
        self._mark()

    def _undo_ended(self, held: StepRecord, trouble: str, *, now_ms: int) -> None:
        if not trouble:
            del self._steps[held.key]
            return
        held.failures += 1
        held.status = rec.AGAIN
        held.trouble = trouble
        doubled_s = UNDO_RETRY_S << min(held.failures - 1, 10)
        pause_s = min(doubled_s, UNDO_RETRY_S_MAX)
        held.retry_ms = now_ms + pause_s * 1000
        text = f"did not succeed, the next attempt is in {pause_s} s: {trouble}"
        alerts = held.failures & (held.failures - 1) == 0  # alert at 1, 2, 4, 8 ... failures
        if held.failures < UNDO_FAILURES_ALERT:
            self._notify("undo-failed", held, text)
        elif held.failures == UNDO_FAILURES_ALERT or alerts:
            count = f"{held.failures} failures; an operator must remove the cause"
            self._notify("unrecovered", held, f"{text} ({count})", level="error")

    # ---- after a restart -----------------------------------------------------------------------

    def form(self) -> dict[str, object]:
        """Return the table in JSON types."""
        steps = [held.form() for held in self.records]
        return {"steps": steps, "run": self._run}

    def restore(self, form: Mapping[str, object]) -> None:
        """Restore the table from a result of `form`."""
        steps = [rec.read_step_record(step) for step in several(form, "steps")]
        self._steps = {held.key: held for held in steps}
        self._run = member(form, "run", 0)

    def resume(self, states: Mapping[str, str], now_ms: int) -> None:
        """Update the steps with the states of earlier hooks; see `Resumed`."""
        for held in self.records:
            if held.runs:
                self._resume(held, states.get(held.key, "interrupted"), now_ms=now_ms)

    def rebooted(self, now_ms: int) -> None:
        """Treat all preparations as lost after a restart of this VM.

        If an event is still announced, prepare its steps again, or hold the event.
        """
        for held in self.records:
            if held.phase == "prepare" and held.status == rec.DONE and held.step.does:
                self._mark()
                if held.step.repeatable:
                    held.status = rec.AGAIN
                    held.retry_ms = now_ms
                else:
                    held.verdict = worst((held.verdict, "hold"))

    def _resume(self, held: StepRecord, fate: str, *, now_ms: int) -> None:
        if fate == "running":
            return
        self._mark()
        if fate.isdigit():
            self.hook_ended(HookEnded(held.key, int(fate)), now_ms)
        elif held.phase == "prepare" and fate == "never" and held.attempt == 1:
            del self._steps[held.key]
        elif held.phase == "prepare" and fate != "never" and not held.step.repeatable:
            self.hook_ended(HookEnded(held.key, -1, reason="the hook was interrupted"), now_ms)
        else:
            held.status = rec.AGAIN
            held.retry_ms = now_ms

    # ---- helpers -------------------------------------------------------------------------------

    def _step_held_for(self, step: PreparationStep, event_id: str) -> StepRecord | None:
        held = self._steps.get(step.name)
        return held if held is not None and event_id in held.holders else None

    def _add_step(self, key: str, step: PreparationStep, *, phase: str) -> StepRecord:
        held = StepRecord(key, step, phase)
        self._steps[key] = held
        return held

    def _begin(self, held: StepRecord, event: ScheduledEvent, *, now_ms: int) -> None:
        held.event = event
        if event.event_id.upper() not in held.holders:
            held.holders.append(event.event_id.upper())
        self._mark()
        if held.phase == "prepare" and not held.step.does:
            held.status, held.verdict = rec.DONE, "go-on"
            return
        held.status = rec.RUNNING
        held.verdict = ""
        held.attempt += 1
        self._run += 1
        held.run = self._run
        held.begun_ms = now_ms
        held.deadline_ms = self._deadline_ms(held, now_ms)
        hook = HOOKS[held.phase]
        self._out.append(
            hook(
                held.key,
                held.step,
                event=event,
                deadline_ms=held.deadline_ms,
                attempt=held.attempt,
                run=held.run,
            )
        )

    def _deadline_ms(self, held: StepRecord, begun_ms: int) -> int:
        """Return a hook's deadline: its timeout, or its event's NotBefore if earlier."""
        deadline_ms = begun_ms + int(held.step.timeout_s * 1000)
        due_ms = held.event.not_before_ms
        if held.phase == "prepare" and due_ms is not None and due_ms - self.ahead_ms > begun_ms:
            return min(deadline_ms, due_ms - self.ahead_ms)
        return deadline_ms

    def _stop(self, held: StepRecord, reason: str) -> None:
        held.status = rec.STOPPING
        self._mark()
        self._out.append(StopIntent(held.key, reason))

    def _mark(self) -> None:
        self.generation += 1

    def _notify(self, action: str, held: StepRecord, text: str, *, level: str = "warning") -> None:
        event = held.event
        sentence = f"{event.event_type} {event.event_id}: {held.phase} {held.step.name} {text}."
        self._out.append(NotifyIntent(action, event, text=sentence, level=level))


def _waits(held: StepRecord) -> bool:
    """Return whether a failed or interrupted undo hook waits for a retry."""
    return held.is_being_undone and held.status == rec.AGAIN
