"""A small fleet and the real core over a store: makes the steps a control plane would commit."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from forewarn_base.errors import CallerError
from forewarn_base.ids import Ids
from forewarn_core.fleet.draft import Terms
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import OperationState
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.records import KINDS, Record, key_of
from forewarn_core.fleet.state import Changes, Entry, State
from forewarn_core.fleet.step import StepResult, joined, step, take
from forewarn_core.fleet.stimulus import (
    Acknowledge,
    ChangeTopology,
    DriverBegun,
    DriverDone,
    Enable,
    GroupsPolled,
    NoticeShown,
    PlaneStimulus,
    RequestMaintenance,
)
from forewarn_core.fleet.topology import Group, Host, Vm
from forewarn_store import Store
from tests.core.replay import Replay

START_MS = 1_790_000_000_000

FLEET = ChangeTopology(
    hosts=(Host("h0", fault_domain=0), Host("h1", fault_domain=1)),
    groups=(Group("web"), Group("db", owner="Ümit's")),
    vms=(
        Vm("web_0", "h0", "web", addresses=("10.0.0.4", "fd00::4")),
        Vm("web_1", "h1", "web", addresses=("10.0.0.5",), tags=(("role", "front"),)),
        Vm("db_0", "h0", "db", instance_id="db_0"),
    ),
)


@dataclass
class Story:
    """A control plane reduced to its middle: decide, commit, adopt."""

    store: Store
    state: State
    now_ms: int = START_MS
    ids: Ids = field(default_factory=lambda: Ids(7))

    def decide(self, stimulus: PlaneStimulus) -> Changes:
        """What a stimulus writes; the state is not touched."""
        terms = Terms(NoticePolicy(), "operator", lambda: self.ids.guid("event"))
        changes = step(self.state, stimulus, now_ms=self.now_ms, terms=terms).changes
        self.state.rollback()
        return changes

    def decide_together(self, stimuli: Iterable[PlaneStimulus]) -> StepResult | None:
        """Return the result of several stimuli in one commit, without a change of the state.

        None: all were refused.
        """
        terms = Terms(NoticePolicy(), "operator", lambda: self.ids.guid("event"))
        drafts = []
        for stimulus in stimuli:
            with suppress(CallerError):
                drafts.append(take(self.state, stimulus, now_ms=self.now_ms, terms=terms))
        result = joined(drafts) if drafts else None
        self.state.rollback()
        return result

    def tell(self, *stimuli: PlaneStimulus) -> int:
        """Commit and adopt what follows from each; return the history sequence."""
        sequence = 0
        for stimulus in stimuli:
            self.now_ms += 1000
            changes = self.decide(stimulus)
            sequence = self.store.commit(changes)
            self.state.adopt(changes)
        return sequence

    def reboot(self, host: str) -> int:
        """Carry a host's reboot through, notice to end; return the operation's number."""
        self.tell(RequestMaintenance(cause=Cause.HOST_REBOOT, targets=(host,)))
        number = self.state.last_number
        self.tell(NoticeShown((number,)))
        for event_id in self.state.operations[number].events:
            self.tell(Acknowledge((event_id,)))
        operation = self.state.operations[number]
        assert operation.state is OperationState.RUNNING
        self.tell(
            DriverBegun(number, operation.execution.attempt),
            DriverDone(number, operation.execution.attempt),
        )
        return number


def begin(store: Store) -> Story:
    """Load a store and, where it is empty, give it a fleet whose groups are enabled."""
    story = Story(store, store.load())
    if not story.state.topology.hosts:
        story.tell(FLEET, Enable("web"), Enable("db"))
    return story


def poll(story: Story) -> Changes:
    """A change that is not a transition: it brings no entry of history."""
    story.now_ms += 120_000
    changes = story.decide(GroupsPolled(frozenset({"web"})))
    assert changes
    assert not changes.entries
    return changes


def entry(text: str = "something happened", at_ms: int = START_MS) -> Entry:
    """An entry of history that is about nothing."""
    return Entry(at_ms=at_ms, actor="operator", action="test.happened", text=text)


def live_records(state: State) -> dict[str, dict[str | int, Record]]:
    """The records of a state by kind and key, as `Replay` has them."""
    found: tuple[Record, ...] = (
        *state.topology.hosts.values(),
        *state.topology.groups.values(),
        *state.topology.vms.values(),
        *state.operations.values(),
        *state.aborts.values(),
        *state.events.values(),
        *state.enrolments.values(),
        *state.views.values(),
        *state.tickets.values(),
    )
    records: dict[str, dict[str | int, Record]] = {kind: {} for kind in KINDS}
    for record in found:
        kind = next(name for name, each in KINDS.items() if type(record) is each)
        records[kind][key_of(record)] = record
    return records


def replayed(store: Store) -> dict[str, dict[str | int, Record]]:
    """The live records that the history alone gives, by kind and key."""
    replay = Replay()
    replay.extend(recorded.entry for recorded in store.entries())
    return {
        kind: {key: record for key, record in records.items() if _kept(record)}
        for kind, records in replay.records.items()
    }


def _kept(record: Record) -> bool:
    """Whether a record is part of the live state."""
    owed = getattr(record, "abort_owed", False)
    return bool(owed or getattr(record, "live", True))
