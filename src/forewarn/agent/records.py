"""Records: what the core remembers of events and steps, and their form in the journal; pure.

No decision may go in here. Everything in a record is written to disk before anything it says was
begun begins; fields that need not survive are set apart.
"""

from __future__ import annotations

from forewarn.agent.rules import Step
from forewarn.wire import ScheduledEvent

TYPE_CHECKING = False  # `typing` is too heavy for the agent
if TYPE_CHECKING:
    from collections.abc import Mapping

    Form = Mapping[str, object]

WATCHING = "watching"  # nothing is to be done, now or ever
PREPARING = "preparing"
READY = "ready"  # prepared, or nothing to prepare; waiting for this VM's turn to approve
CHECKING = "checking"  # approve hooks run
APPROVING = "approving"  # an approval is on its way, or to be sent again
APPROVED = "approved"
HELD = "held"  # as far prepared as it got; will not be approved from here
ABORTING = "aborting"  # undoing while the event is still announced
ABORTED = "aborted"
UNDER_WAY = "under-way"  # the event has started

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
"""Every stage an event can be in for this VM, in the order they are usually met."""

RUNNING = "running"
STOPPING = "stopping"
DONE = "done"
FAILED = "failed"
AGAIN = "again"  # to be begun again, at `retry_ms` or later

EVENT_FIELDS = ScheduledEvent.__slots__


class EventRecord:
    """One event of the document, and how far this VM has come with it."""

    __slots__ = (
        "action",
        "announced",
        "approved",
        "checks",
        "coordination",
        "ending",
        "event",
        "gone",
        "group",
        "hit",
        "next_ms",
        "peers",
        "plan",
        "ready_ms",
        "rule",
        "seen_ms",
        "stage",
        "stand_in_s",
        "then",
        "tries",
        "why",
    )

    def __init__(self, event: ScheduledEvent, seen_ms: int) -> None:
        """Begin with an event just seen, for which nothing is decided."""
        self.event = event
        self.seen_ms = seen_ms
        self.rule = ""
        self.action = "ignore"
        self.then = "approve"
        self.coordination = "first"
        self.stand_in_s = 0.0
        self.plan: tuple[tuple[Step, ...], ...] = ()
        self.checks: tuple[Step, ...] = ()
        self.stage = WATCHING
        self.group = 0
        """Which group of the plan is being prepared; its length once all are."""
        self.ready_ms = 0
        self.announced = False
        self.approved = False
        self.hit = False
        """Whether the event is known to have disturbed this VM, or may have."""
        self.gone = False
        self.ending = ""
        """`recover` or `cancel` once the steps are to be undone."""
        # not in the journal:
        self.why = ""
        self.next_ms: int | None = None
        self.tries = 0
        self.peers: tuple[str, ...] = ()

    @property
    def event_id(self) -> str:
        """The id under which the event is followed; compared without case. Source: D-3."""
        return self.event.event_id.upper()

    @property
    def started(self) -> bool:
        """Whether the document calls the event Started."""
        return self.event.status == "Started"

    def form(self) -> dict[str, object]:
        """Return the record as JSON can hold it."""
        return {
            "event": event_form(self.event),
            "seen_ms": self.seen_ms,
            "rule": self.rule,
            "action": self.action,
            "then": self.then,
            "coordination": self.coordination,
            "stand_in_s": self.stand_in_s,
            "plan": [[step_form(step) for step in group] for group in self.plan],
            "checks": [step_form(step) for step in self.checks],
            "stage": self.stage,
            "group": self.group,
            "ready_ms": self.ready_ms,
            "announced": self.announced,
            "approved": self.approved,
            "hit": self.hit,
            "gone": self.gone,
            "ending": self.ending,
        }


class StepRecord:
    """One step that was begun and is not yet undone, or one approve hook that runs."""

    __slots__ = (
        "attempt",
        "begun_ms",
        "deadline_ms",
        "event",
        "holders",
        "key",
        "phase",
        "retry_ms",
        "run",
        "status",
        "step",
        "verdict",
    )

    def __init__(self, key: str, step: Step, phase: str) -> None:
        """Begin with a step nobody needs yet."""
        self.key = key
        self.step = step
        self.phase = phase
        """Which of its hooks ran or runs: `prepare`, `approve`, `recover` or `cancel`."""
        self.holders: list[str] = []
        """Ids of the events that need it; the last one to leave has it undone."""
        self.event = ScheduledEvent()
        """The event it was last begun for."""
        self.status = RUNNING
        self.verdict = ""
        self.begun_ms = 0
        self.deadline_ms = 0
        self.attempt = 0
        self.retry_ms = 0
        self.run = 0

    @property
    def runs(self) -> bool:
        """Whether a hook of it is running."""
        return self.status in (RUNNING, STOPPING)

    def form(self) -> dict[str, object]:
        """Return the record as JSON can hold it."""
        return {
            "key": self.key,
            "step": step_form(self.step),
            "phase": self.phase,
            "holders": list(self.holders),
            "event": event_form(self.event),
            "status": self.status,
            "verdict": self.verdict,
            "begun_ms": self.begun_ms,
            "deadline_ms": self.deadline_ms,
            "attempt": self.attempt,
            "retry_ms": self.retry_ms,
            "run": self.run,
        }


def event_form(event: ScheduledEvent) -> dict[str, object]:
    """Return an event as JSON can hold it."""
    form: dict[str, object] = {name: getattr(event, name) for name in EVENT_FIELDS}
    form["resources"] = list(event.resources)
    return form


def read_event(form: Form) -> ScheduledEvent:
    """Return the event that `event_form` gave; unknown names of a later release are left out."""
    fields = {name: form[name] for name in EVENT_FIELDS if name in form}
    resources = form.get("resources", ())
    assert isinstance(resources, (list, tuple))
    fields["resources"] = tuple(resources)
    return ScheduledEvent(**fields)  # type: ignore[arg-type]


def step_form(step: Step) -> dict[str, object]:
    """Return a step as JSON can hold it."""
    return {name: getattr(step, name) for name in Step.__slots__}


def read_step(form: Form) -> Step:
    """Return the step that `step_form` gave."""
    return Step(**{name: form[name] for name in Step.__slots__ if name in form})  # type: ignore[arg-type]


def read_event_record(form: Form) -> EventRecord:
    """Return the record that `EventRecord.form` gave."""
    record = EventRecord(read_event(inner(form, "event")), 0)
    for name in set(form) & set(EventRecord.__slots__) - {"event", "plan", "checks"}:
        setattr(record, name, form[name])
    groups = form["plan"]
    assert isinstance(groups, list)
    record.plan = tuple(tuple(read_step(step) for step in group) for group in groups)
    record.checks = tuple(read_step(step) for step in several(form, "checks"))
    assert record.stage in STAGES
    return record


def read_step_record(form: Form) -> StepRecord:
    """Return the record that `StepRecord.form` gave."""
    record = StepRecord(str(form["key"]), read_step(inner(form, "step")), str(form["phase"]))
    for name in set(form) & set(StepRecord.__slots__) - {"key", "step", "phase", "event"}:
        setattr(record, name, form[name])
    record.event = read_event(inner(form, "event"))
    record.holders = [str(name) for name in record.holders]
    return record


def inner(form: Form, name: str) -> Form:
    """Return the object that a form holds under a name."""
    found = form[name]
    assert isinstance(found, dict)
    return found


def several(form: Form, name: str) -> list[Form]:
    """Return the list of objects that a form holds under a name; none where there is none."""
    found = form.get(name, [])
    assert isinstance(found, list)
    return found
