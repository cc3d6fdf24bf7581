"""The core with nothing around it: a state, a time, and what the steps so far came to."""

import copy
import itertools
from collections import Counter
from dataclasses import dataclass, field

import pytest

from forewarn_base.errors import ForewarnError
from forewarn_base.ids import Ids
from forewarn_base.protocol.documents import ScheduledEvent
from forewarn_base.values import replace
from forewarn_core.access.roles import Authority
from forewarn_core.fleet.availability_records import AvailabilityRecord
from forewarn_core.fleet.document import View
from forewarn_core.fleet.draft import Draft, Terms
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import Event, Operation, OperationState
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.records import key_of
from forewarn_core.fleet.state import Entry, State
from forewarn_core.fleet.step import PORTION_MAX, StepResult, next_deadline_ms, step
from forewarn_core.fleet.stimulus import (
    ChangeTopology,
    DriverBegun,
    DriverDone,
    Enable,
    NoticeShown,
    PlaneStimulus,
    Proceed,
    RequestMaintenance,
    Tick,
)
from forewarn_core.fleet.topology import Group, Health, Host, Vm
from forewarn_core.fleet.why import why
from forewarn_core.requests import ApprovalRequest
from forewarn_core.rules.blockers import Blocker
from tests.core import invariants
from tests.core.replay import Replay
from tests.simulator.checkers.document_checker import DocumentChecker
from tests.simulator.checkers.state_checker import step_checker

START_MS = 1_790_000_000_000
MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
#: Largest fleet, in hosts, that is looked at as a whole after each step.
CHECKED_MAX = 30


@dataclass
class Rig:
    """A control plane reduced to its middle."""

    policy: NoticePolicy = field(default_factory=NoticePolicy)
    now_ms: int = START_MS
    state: State = field(default_factory=State)
    ids: Ids = field(default_factory=lambda: Ids(7))
    entries: list[Entry] = field(default_factory=list)
    replay: Replay = field(default_factory=Replay)
    operations: dict[int, Operation] = field(default_factory=dict)
    events: dict[str, Event] = field(default_factory=dict)
    availability: list[AvailabilityRecord] = field(default_factory=list)
    begun: list[int] = field(default_factory=list)
    aborted: list[int] = field(default_factory=list)
    #: Whether everything is looked at after each step.
    checked: bool = True
    #: Who calls; None: the service itself, or somebody whom nobody has to confirm.
    caller: Authority | None = None

    def terms(self, actor: str = "operator") -> Terms:
        """What every step is given."""
        return Terms(self.policy, actor, lambda: self.ids.guid("event"), authority=self.caller)

    def tried(self) -> Terms:
        """What a step is given that is thrown away: it takes no ids from those that follow."""
        ids = copy.deepcopy(self.ids)
        return replace(self.terms(), new_guid=lambda: ids.guid("event"))

    def tell(self, first: PlaneStimulus, *more: PlaneStimulus) -> StepResult:
        """Step, adopt and note each, with all that follows; return the last one's outcome."""
        outcome = self._tell_all(first)
        for stimulus in more:
            outcome = self._tell_all(stimulus)
        return outcome

    def _tell_all(self, stimulus: PlaneStimulus) -> StepResult:
        outcome = self._tell(stimulus)
        rest = dict.fromkeys(outcome.remaining)
        while rest:  # as the engine does: in portions, until nothing is left
            portion = tuple(itertools.islice(rest, PORTION_MAX))
            for number in portion:
                del rest[number]
            rest.update(dict.fromkeys(self._tell(Proceed(portion)).remaining))
        if self._is_checked():
            invariants.check_rest(self.state, self.now_ms, self.terms())
            invariants.check_why(self.state, self.now_ms, self.terms())
            invariants.check_deadline(self.state, self.policy, self.now_ms)
        return outcome

    def _is_checked(self) -> bool:
        return self.checked and len(self.state.topology.hosts) <= CHECKED_MAX

    def _tell(self, stimulus: PlaneStimulus) -> StepResult:
        terms = self.terms()
        before = invariants.Before(dict(self.state.views), dict(self.state.maintenances))
        known = self.state.copy() if self._is_checked() else State()
        if self._is_checked():
            invariants.check_undone(self.state, stimulus, self.now_ms, self.tried())
        outcome = step(self.state, stimulus, now_ms=self.now_ms, terms=terms)
        self.state.keep()
        if self._is_checked():
            invariants.check_history(outcome, now_ms=self.now_ms, actor=terms.actor)
            invariants.check_images(outcome, self.replay)
            invariants.check_outcome(before, outcome, self.state)
            step_checker(known, stimulus, self.now_ms, self.policy).durable(outcome.changes)
            DocumentChecker(self.state, Counter()).check_groups(self.state.enrolments)
            invariants.check_indexes(self.state)
            if isinstance(stimulus, Tick):
                invariants.check_tick(self.state, self.now_ms)
        self.replay.extend(outcome.changes.entries)
        self.entries += outcome.changes.entries
        self.operations.update(outcome.changes.operations)
        self.events.update(outcome.changes.events)
        self.availability += outcome.changes.availability
        self.begun += [each.number for each in outcome.begin]
        self.aborted += [each.number for each in outcome.abort]
        return outcome

    def ask(self, cause: Cause, *targets: str, **more: object) -> Operation:
        """Ask for maintenance of one or more targets; return the first operation as it is then."""
        outcome = self.tell(RequestMaintenance(cause=cause, targets=targets, **more))  # type: ignore[arg-type]
        return self.operations[outcome.numbers[0]]

    def show(self) -> None:
        """Confirm that everything announced is published."""
        waiting = [
            each.number
            for each in self.state.operations.values()
            if each.state is OperationState.ANNOUNCED and not each.notice.shown_ms
        ]
        self.tell(NoticeShown(tuple(waiting)))

    def approve(self, vm: str, operation: Operation | int) -> None:
        """A VM approves its group's event of an operation."""
        self.tell(ApprovalRequest(vm, (self.event_of(operation, self.group_of(vm)).id,), ""))

    def finish(self, operation: Operation | int) -> None:
        """The driver begins and ends a running operation."""
        current = self.now(operation)
        self.tell(
            DriverBegun(current.number, current.execution.attempt),
            DriverDone(current.number, current.execution.attempt),
        )

    def wait(self, ms: int) -> None:
        """Let time pass, tick by tick, as the run loop does."""
        until_ms = self.now_ms + ms
        while True:
            next_ms = next_deadline_ms(self.state, self.policy, self.now_ms)
            if next_ms is None or next_ms > until_ms:
                break
            self.now_ms = next_ms
            self.tell(Tick())
        self.now_ms = until_ms

    def now(self, operation: Operation | int) -> Operation:
        """An operation as it is now, ended or not."""
        return self.operations[operation if isinstance(operation, int) else operation.number]

    def health(self, host: str) -> Health:
        """What is known of a host's hardware."""
        return self.state.topology.hosts[host].health

    def event_of(self, operation: Operation | int, group: str) -> Event:
        """The event of an operation that is a group's."""
        events = [self.events[event_id] for event_id in self.now(operation).events]
        return next(event for event in events if event.group == group)

    def group_of(self, vm: str) -> str:
        """The group of a VM."""
        return self.state.topology.vms[vm].group

    def document(self, key: str) -> tuple[int, tuple[ScheduledEvent, ...]]:
        """Incarnation and events of a view."""
        document = self.state.views[key].document
        return document.incarnation, document.events

    def shown(self, key: str) -> list[str]:
        """`Type Status` of each event a view shows."""
        return [f"{event.event_type} {event.status}" for event in self.document(key)[1]]

    def why(self, operation: Operation | int) -> list[Blocker]:
        """What an operation waits for now."""
        number = operation if isinstance(operation, int) else operation.number
        draft = Draft(self.state, self.now_ms, self.terms())
        return list(why(draft, self.now(number)))

    def refuses(self, stimulus: PlaneStimulus, error: type[ForewarnError]) -> ForewarnError:
        """Assert that a stimulus is refused and changes nothing; return the refusal."""
        before = invariants.everything_in(self.state)
        with pytest.raises(error) as raised:
            step(self.state, stimulus, now_ms=self.now_ms, terms=self.terms())
        assert invariants.everything_in(self.state) == before
        assert str(raised.value)
        raised.value.advice_text()
        return raised.value

    def replayed(self) -> State:
        """The state that history alone gives."""
        state = State(last_number=self.state.last_number, topology=self.state.topology)
        records = self.replay.records
        state.operations = {o.number: o for o in records["operation"].values() if _live(o)}  # type: ignore[misc, union-attr]
        state.aborts = {o.number: o for o in records["operation"].values() if o.abort_owed}  # type: ignore[misc, union-attr]
        state.events = {e.id: e for e in records["event"].values() if _live(e)}  # type: ignore[misc, union-attr]
        state.views = {str(key): view for key, view in records["document"].items()}  # type: ignore[misc]
        state.enrolments = {str(key): each for key, each in records["enrolment"].items()}  # type: ignore[misc]
        return state

    def check_replay(self) -> None:
        """Assert invariant 10, poll marks aside: they are not transitions."""
        replayed = self.replayed()
        copied = self.state.copy()
        assert copied == self.state
        invariants.check_indexes(copied)
        assert replayed.operations == self.state.operations
        assert replayed.aborts == self.state.aborts
        assert replayed.events == self.state.events
        assert replayed.views == self.state.views
        assert set(replayed.enrolments) == set(self.state.enrolments)
        assert self.state.places.all() == invariants.places_in(self.state)
        for kind, table in (
            ("host", self.state.topology.hosts),
            ("group", self.state.topology.groups),
            ("vm", self.state.topology.vms),
        ):
            assert {key_of(each): each for each in self.replay.records[kind].values()} == table


def _live(record: object) -> bool:
    assert isinstance(record, Operation | Event), record
    return record.live


def view_of(rig: Rig, key: str) -> View:
    """A view as it is."""
    return rig.state.views[key]


def small_fleet(**more: Group) -> ChangeTopology:
    """Two hosts in two fault domains; `web` on both, `db` beside it on the first, `far` alone."""
    groups = {"web": Group("web"), "db": Group("db", owner="bob"), "far": Group("far"), **more}
    return ChangeTopology(
        hosts=(Host("h0", 0, 0), Host("h1", 1, 1), Host("h2", 2, 2)),
        groups=tuple(groups.values()),
        vms=(
            Vm("web_0", "h0", "web", spot=True),
            Vm("web_1", "h1", "web"),
            Vm("db_0", "h0", "db", spot=True),
            Vm("far_0", "h2", "far"),
        ),
    )


def small(
    *, enabled: tuple[str, ...] = ("web", "db", "far"), policy: NoticePolicy | None = None
) -> Rig:
    """A rig with the small fleet, and Scheduled Events enabled for the named groups."""
    rig = Rig(policy=policy or NoticePolicy())
    rig.tell(small_fleet(), *(Enable(group) for group in enabled))
    return rig
