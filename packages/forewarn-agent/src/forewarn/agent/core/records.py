"""Records: the core's state of events and steps, and the journal format of this state; pure.

The agent writes the journal before each recorded action. Fields outside the journal are in a
separate part of each record.
"""

from __future__ import annotations

from operator import attrgetter

from forewarn.agent.core.rules import FAILURES, TIMEOUT_S, PreparationStep
from forewarn.agent.json_fields import FieldInvalid, flag, inner, member, number, several, words
from forewarn_base.protocol.documents import ScheduledEvent

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from forewarn.agent.json_fields import Form

WATCHING = "watching"  # the agent only watches the event
PREPARING = "preparing"
READY = "ready"  # all steps are prepared; this VM waits for its turn to approve
CHECKING = "checking"  # approve hooks are running
APPROVING = "approving"  # the agent sends or repeats an approval
APPROVED = "approved"
HELD = "held"  # this VM will not approve, but its prepared steps remain
ABORTING = "aborting"  # the agent undoes steps while the event is still announced
ABORTED = "aborted"
UNDER_WAY = "under-way"  # the event has started

#: All stages of an event, in their usual order.
STAGES = (
    WATCHING,
    PREPARING,
    READY,
    CHECKING,
    APPROVING,
    APPROVED,
    HELD,
    ABORTING,
    ABORTED,
    UNDER_WAY,
)

RUNNING = "running"
STOPPING = "stopping"
DONE = "done"
FAILED = "failed"
AGAIN = "again"  # the hook waits for its next start, at `retry_ms` or later
UNPREPARED = "unprepared"  # no prepare hook has begun; the step recovers after its events

STATUSES = (RUNNING, STOPPING, DONE, FAILED, AGAIN, UNPREPARED)
PHASES = ("prepare", "approve", "recover", "cancel")
EVENT_FIELDS = ScheduledEvent.__slots__


class EventRecord:
    """One event of the document, with its stage for this VM."""

    #: Fields that the journal stores unchanged; excludes the event, the plan and the checks.
    KEPT = (
        "seen_ms",
        "rule",
        "action",
        "then",
        "coordination",
        "stand_in_s",
        "stage",
        "group",
        "ready_ms",
        "announced",
        "approved",
        "hit",
        "gone",
        "ending",
        "holds",
        "remains",
        "unprepared",
        "start_untold",
    )

    __slots__ = (
        "asked_ms",
        "checks",
        "deciding",
        "event",
        "event_id",
        "missing_ms",
        "next_ms",
        "peers",
        "plan",
        "tries",
        "why",
        *KEPT,
    )

    def __init__(self, event: ScheduledEvent, seen_ms: int) -> None:
        self.event = event
        #: The id of the event in upper case, because ids ignore case. Source: D-3.
        self.event_id = event.event_id.upper()
        self.seen_ms = seen_ms
        self.rule = ""
        self.action = "ignore"
        self.then = "approve"
        self.coordination = "first"
        self.stand_in_s = 0.0
        self.plan: tuple[tuple[PreparationStep, ...], ...] = ()
        self.checks: tuple[PreparationStep, ...] = ()
        self.stage = WATCHING
        #: Index of the plan's current group; the number of groups after the last.
        self.group = 0
        self.ready_ms = 0
        self.announced = False
        self.approved = False
        #: Whether the event has possibly disturbed this VM.
        self.hit = False
        self.gone = False
        #: Phase that undoes the steps, `recover` or `cancel`; empty before the end.
        self.ending = ""
        #: Whether this VM announced to the other VMs that it will not approve.
        self.holds = False
        #: Why steps remain after the end of the event: `forgotten`, `shared`, or empty.
        self.remains = ""
        #: Whether the event started before any of its steps had begun.
        self.unprepared = False
        #: Whether the notification about the start waits for the answer to this VM's approval.
        self.start_untold = False
        # fields outside the journal:
        self.why = ""
        self.next_ms: int | None = None
        self.tries = 0
        self.peers: tuple[str, ...] = ()
        #: Time since when documents lack the event, ms since the epoch; 0: the event is shown.
        self.missing_ms = 0
        #: Time of the last question to other VMs, ms since the epoch; 0: never.
        self.asked_ms = 0
        #: The VMs that reported `deciding`; None before an answer.
        self.deciding: tuple[str, ...] | None = None

    @property
    def started(self) -> bool:
        """Whether the document shows the event as Started."""
        return self.event.status == "Started"

    def form(self) -> dict[str, object]:
        """Return the record in JSON types."""
        return {
            **dict(zip(self.KEPT, _kept_event_values(self), strict=True)),
            "event": event_form(self.event),
            "plan": [[step_form(step) for step in group] for group in self.plan],
            "checks": [step_form(step) for step in self.checks],
        }


class StepRecord:
    """A step that must be undone or must recover, or a running approve hook."""

    #: Fields that the journal stores unchanged, except constructor arguments and holders.
    KEPT = (
        "status",
        "verdict",
        "begun_ms",
        "deadline_ms",
        "attempt",
        "retry_ms",
        "run",
        "failures",
        "trouble",
        "recovers",
    )

    __slots__ = ("event", "holders", "key", "phase", "step", *KEPT)

    def __init__(self, key: str, step: PreparationStep, phase: str) -> None:
        self.key = key
        self.step = step
        #: Phase of the last or running hook: `prepare`, `approve`, `recover` or `cancel`.
        self.phase = phase
        #: Ids of the events that need the step; the step is undone after the last of these.
        self.holders: list[str] = []
        #: The event for which the step was last begun.
        self.event = ScheduledEvent()
        self.status = RUNNING
        self.verdict = ""
        self.begun_ms = 0
        self.deadline_ms = 0
        self.attempt = 0
        self.retry_ms = 0
        self.run = 0
        #: Number of failed attempts to undo the step.
        self.failures = 0
        #: Reason of the last failure.
        self.trouble = ""
        #: Whether one of the events that needed the step was over, and not cancelled.
        self.recovers = False

    @property
    def is_being_undone(self) -> bool:
        """Whether the step is being undone, or waits for the next attempt."""
        return self.phase in ("recover", "cancel")

    @property
    def runs(self) -> bool:
        """Whether a hook of the step is running."""
        return self.status in (RUNNING, STOPPING)

    def form(self) -> dict[str, object]:
        """Return the record in JSON types."""
        return {
            **dict(zip(self.KEPT, _kept_step_values(self), strict=True)),
            "key": self.key,
            "step": step_form(self.step),
            "phase": self.phase,
            "holders": list(self.holders),
            "event": event_form(self.event),
        }


_kept_event_values = attrgetter(*EventRecord.KEPT)
_kept_step_values = attrgetter(*StepRecord.KEPT)
_event_fields = attrgetter(*EVENT_FIELDS)
_step_fields = attrgetter(*PreparationStep.fields)


def event_form(event: ScheduledEvent) -> dict[str, object]:
    """Return an event in JSON types."""
    form: dict[str, object] = dict(zip(EVENT_FIELDS, _event_fields(event), strict=True))
    form["resources"] = list(event.resources)
    return form


def read_event(form: Form) -> ScheduledEvent:
    """Return the event in a form of `event_form`; ignore unknown members."""
    blank = ScheduledEvent()
    ahead = form.get("not_before_ms") is not None
    return ScheduledEvent(
        event_id=member(form, "event_id", ""),
        status=member(form, "status", blank.status),
        event_type=member(form, "event_type", ""),
        resource_type=member(form, "resource_type", blank.resource_type),
        resources=tuple(words(form, "resources")),
        not_before_ms=member(form, "not_before_ms", 0) if ahead else None,
        description=member(form, "description", ""),
        source=member(form, "source", blank.source),
        duration_s=member(form, "duration_s", blank.duration_s),
    )


def step_form(step: PreparationStep) -> dict[str, object]:
    """Return a step in JSON types."""
    return dict(zip(PreparationStep.fields, _step_fields(step), strict=True))


def read_step(form: Form) -> PreparationStep:
    """Return the step in a form of `step_form`."""
    return PreparationStep(
        member(form, "name", ""),
        timeout_s=number(form, "timeout_s", TIMEOUT_S),
        on_failure=_one_of(form, "on_failure", FAILURES),
        repeatable=flag(form, "repeatable", default=False),
        does=flag(form, "does", default=True),
        undoes=flag(form, "undoes", default=True),
        spec=member(form, "spec", ""),
    )


def read_event_record(form: Form) -> EventRecord:
    """Return the record that `EventRecord.form` wrote.

    Raises:
        FieldInvalid: another release wrote it, with a value that is unknown here.
    """
    record = EventRecord(read_event(inner(form, "event")), 0)
    _fill(record, record.KEPT, form)
    record.stage = _one_of(form, "stage", STAGES)
    groups: list[object] = member(form, "plan", [])
    record.plan = tuple(tuple(map(read_step, several({"plan": one}, "plan"))) for one in groups)
    record.checks = tuple(map(read_step, several(form, "checks")))
    return record


def read_step_record(form: Form) -> StepRecord:
    """Return the record in a form of `StepRecord.form`.

    Raises:
        FieldInvalid: another release wrote it, with a value that is unknown here.
    """
    step = read_step(inner(form, "step"))
    record = StepRecord(member(form, "key", ""), step, _one_of(form, "phase", PHASES))
    _fill(record, record.KEPT, form)
    record.status = _one_of(form, "status", STATUSES)
    record.event = read_event(inner(form, "event"))
    record.holders = words(form, "holders")
    return record


def _fill(record: EventRecord | StepRecord, names: tuple[str, ...], form: Form) -> None:
    """Set fields from a form; each value must have the type of the field."""
    for name in names:
        born = getattr(record, name)
        read = number if isinstance(born, float) else member
        setattr(record, name, read(form, name, born))


def _one_of(form: Form, name: str, known: tuple[str, ...]) -> str:
    word = member(form, name, "")
    if word not in known:
        raise FieldInvalid(name=name, found=word)
    return word
