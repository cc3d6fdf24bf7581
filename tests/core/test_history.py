"""History: it alone gives the state again, and what no table allows is refused."""

import json
import pickle
import re
from dataclasses import field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn_base.protocol.documents import Document
from forewarn_base.values import replace, value
from forewarn_core import access
from forewarn_core import fleet as core
from forewarn_core.fleet.actions import ACTIONS
from forewarn_core.fleet.document import View
from forewarn_core.fleet.history import Rows
from forewarn_core.fleet.impact import Cause, Impact
from forewarn_core.fleet.lifecycle import EventState, Operation, OperationState
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.records import (
    KIND_OF,
    KINDS,
    Record,
    columns_of,
    from_row,
    key_of,
    to_row,
)
from forewarn_core.fleet.state import Entry, Image
from forewarn_core.fleet.stimulus import ChangeTopology, Complete, Enable
from forewarn_core.fleet.ticket import TicketState
from forewarn_core.fleet.topology import Group, Health, Vm
from forewarn_core.planning.plan_text import read_plan
from forewarn_core.planning.policy import MaintenancePolicy
from tests.core.maintenance import fleet
from tests.core.replay import HistoryIllegal, Replay
from tests.core.rig import Rig, small, small_fleet
from tests.store import strategies as made

#: What a change of the fleet does to a record.
VERBS = ("added", "changed", "removed")


def an_entry(record: Record) -> Entry:
    """An entry that tells of one record."""
    image = Image(KIND_OF[type(record)], key_of(record), to_row(record))
    return Entry(1, "operator", "operation.altered", "somebody wrote this", images=(image,))


def test_history_gives_the_state() -> None:
    """Replaying the entries gives the state, at every step. Source: L-7."""
    rig = small()
    rig.check_replay()
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    rig.check_replay()
    rig.approve("web_0", operation)
    rig.approve("db_0", operation)
    rig.check_replay()
    rig.finish(operation)
    rig.check_replay()
    assert rig.replay.records["operation"][1] == rig.now(operation)


def test_every_action_has_a_meaning() -> None:
    """What core and access can write into history is in the table of actions. Source: A-6."""
    rooms = [Path(str(each.__file__)).parent for each in (access, core)]
    files = [file for room in rooms for file in room.rglob("*.py") if file.name != "actions.py"]
    texts = [file.read_text() for file in files]
    of_core = (
        "operation|event|document|group|maintenance|declaration|deferral|policy|access|token"
        "|confirmation|ticket|topology"
    )
    named = rf'"((?:{of_core})\.[a-z-]+)"'
    written = {name for text in texts for name in re.findall(named, text)}
    of_fleet = {f"{kind}.{verb}" for kind in ("host", "group", "vm") for verb in VERBS}
    of_states = {f"host.{health.value}" for health in Health}
    of_states |= {f"operation.{end}" for end in ("succeeded", "failed")}
    of_tickets = {f"ticket.{state.value}" for state in TicketState} - {"ticket.open"}
    of_tickets.add("ticket.answered")
    assert set(ACTIONS) == written | of_fleet | of_states | of_tickets


def test_every_entry_says_who_what_and_when() -> None:
    """Each entry has a time, an actor, a stable action and a sentence. Source: A-6."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    rig.approve("web_0", operation)
    approved = rig.entries[-1]
    assert (approved.action, approved.actor) == ("event.approved", "operator")
    assert (approved.operation, approved.group) == (operation.number, "web")
    for entry in rig.entries:
        assert entry.at_ms == rig.now_ms
        assert entry.text
        assert "." in entry.action


@pytest.mark.parametrize(
    ("cause", "group", "said"),
    [
        (Cause.REBOOT, "web", "op-1 is announced"),
        (Cause.DELETION, "web", "op-1 is announced to nobody"),
        (Cause.REBOOT, "far", "op-1 is announced to nobody"),
        (Cause.REBOOT, "keen", "op-1 is announced to nobody"),
        (Cause.REDEPLOY, "keen", "op-1 is announced"),
    ],
    ids=["scheduled", "silent", "disabled", "approved-by-policy", "other-work"],
)
def test_work_is_announced_only_where_somebody_is_told(cause: Cause, group: str, said: str) -> None:
    """History calls no notice what nobody was shown as Scheduled. Source: A-6, A-10, B-3, N-1."""
    rig = Rig()
    keen = Group("keen", automatic_approval=frozenset({Impact.REBOOT}))
    rig.tell(small_fleet(keen=keen), ChangeTopology(vms=(Vm("keen_0", "h2", "keen"),)))
    rig.tell(Enable("web"), Enable("keen"))
    rig.ask(cause, f"{group}_0")
    assert said in [entry.text for entry in rig.entries]


@pytest.mark.parametrize(
    "state", [OperationState.SUCCEEDED, OperationState.FAILED], ids=lambda state: state.value
)
def test_altered_history_of_an_operation_is_refused(state: OperationState) -> None:
    """A move that no table has is not history. Source: L-1."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    with pytest.raises(HistoryIllegal, match=f"from announced to {state.value}"):
        rig.replay.extend([an_entry(replace(operation, state=state))])
    with pytest.raises(HistoryIllegal, match=f"from planned to {state.value}"):
        Replay().extend([an_entry(replace(operation, state=state))])


def test_altered_history_of_an_event_is_refused() -> None:
    """An event that was never started cannot have completed. Source: L-1, D-6."""
    rig = small()
    event = rig.event_of(rig.ask(Cause.HOST_REBOOT, "h0"), "web")
    for replay in (rig.replay, Replay()):
        with pytest.raises(HistoryIllegal, match="from scheduled to completed"):
            replay.extend([an_entry(replace(event, state=EventState.COMPLETED))])


def test_images_are_made_whole_again() -> None:
    """What is kept of a record's image is what changed; the rows before give the rest. A-6."""
    rows = Rows()
    first = Image("host", "h", {"name": "h", "zone": "1"})
    later = Image("host", "h", {"zone": "2"})
    entries = [Entry(0, "", "", "", images=(each,)) for each in (first, later)]
    found = [rows.whole(entry).images[0].row for entry in entries]
    assert found == [{"name": "h", "zone": "1"}, {"name": "h", "zone": "2"}]
    assert first.row == {"name": "h", "zone": "1"}
    whole = [(image.kind, image.key, image.row) for image in rows.live()]
    assert whole == [("host", "h", {"name": "h", "zone": "2"})]
    assert rows.merged(Image("host", "h", None)) is None
    assert list(rows.live()) == []


def as_kept(entry: Entry) -> Entry:
    """An entry as a store keeps it: of each image what has changed, where there is one before."""
    kept = [Image(i.kind, i.key, i.row if i.changed is None else i.changed) for i in entry.images]
    return replace(entry, images=tuple(kept))


def test_history_as_it_is_kept_gives_whole_rows_and_what_is_live() -> None:
    """Of every kind of record, from its first image to its last. Source: A-6."""
    rig = fleet(policy=NoticePolicy(maintenance=MaintenancePolicy(postpone_max_s=86_400)))
    rig.ask(Cause.HOST_REBOOT, "h2")
    first, second = rig.start("h0", "h1"), rig.start("h4")
    rig.run()
    open_ended = rig.start("h3")
    failed = rig.ask(Cause.HARDWARE_FAILURE, "h5")
    rig.tell(Complete(failed.number))
    rig.ask(Cause.HOST_REBOOT, "h1")
    rig.tell(ChangeTopology(groups=(Group("new"),)), Enable("new"))
    rows = Rows()
    for entry in rig.entries:
        assert rows.whole(as_kept(entry)) == entry
    found = {(image.kind, image.key): image.row for image in rows.live()}
    state = rig.state
    records: list[Record] = [*state.operations.values(), *state.aborts.values()]
    records += [*state.events.values(), *state.maintenances.values()]
    records += [*state.views.values(), *state.enrolments.values()]
    records += [*state.topology.hosts.values(), *state.topology.groups.values()]
    assert {first, second, open_ended} & set(state.maintenances) == {open_ended}
    kinds = {KIND_OF[type(record)] for record in records}
    expected = {(KIND_OF[type(each)], key_of(each)): to_row(each) for each in records}
    assert {place: row for place, row in found.items() if place[0] in kinds} == expected


# -- records as rows: what goes in comes out, for every kind -------------------------------------


@given(st.one_of(made.hosts, made.groups, made.vms, made.operations, made.events, made.enrolments))
def test_record_survives_its_row(record: Record) -> None:
    """A record is the same after its row, and after the row was JSON. Source: L-7."""
    kind = KIND_OF[type(record)]
    row = to_row(record)
    assert from_row(kind, row) == record
    assert from_row(kind, json.loads(json.dumps(row))) == record
    assert tuple(row) == columns_of(kind)
    assert all(type(value) in {str, int} for value in row.values())


def test_document_survives_its_row() -> None:
    """A view with events is the same after its row. Source: D-10."""
    rig = small()
    rig.ask(Cause.HOST_REBOOT, "h0")
    rig.ask(Cause.HARDWARE_FAILURE, "h2")
    for view in rig.state.views.values():
        assert from_row("document", to_row(view)) == view
    empty = View("web", "web", Document(0, ()))
    assert from_row("document", to_row(empty)) == empty


def test_row_of_another_time_is_refused() -> None:
    """A row without a column, or with a value it cannot have, is refused. Source: L-7."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    row = dict(to_row(operation))
    with pytest.raises(ValueError, match="vanished"):
        from_row("operation", {**row, "state": "vanished"})
    del row["reason"]
    with pytest.raises(KeyError):
        from_row("operation", row)


def test_every_kind_has_a_key() -> None:
    """Each kind of record is known by one of its columns."""
    assert set(KIND_OF.values()) == set(KINDS)
    operation = small().ask(Cause.HOST_REBOOT, "h0")
    assert isinstance(operation, Operation)
    assert key_of(operation) == 1


def test_plan_is_sent_to_another_process_as_text() -> None:
    """Its values are read from it there; as objects it would be sent for a fifth of a second."""
    body = read_plan(made.PLAN_TEXT)
    sent = pickle.dumps(body)
    again = pickle.loads(sent)
    assert (again, again.waves, again.bound) == (body, body.waves, body.bound)
    assert len(sent) < len(made.PLAN_TEXT) + 100


@pytest.mark.parametrize(
    "texts",
    [(), ("10.0.0.4",), ("a", "b"), ('a"b',), ("a\\b",), ("é",), ("\t",), ('["',), ("a", "")],
    ids=repr,
)
def test_list_of_texts_survives_its_row(texts: tuple[str, ...]) -> None:
    """Whatever they have in them, and as JSON for whoever else reads it. Source: L-7."""
    vm = Vm("v", "h", "g")
    object.__setattr__(vm, "addresses", texts)
    row = to_row(vm)
    assert json.loads(str(row["addresses"])) == list(texts)
    assert from_row("vm", row).addresses == texts  # type: ignore[union-attr]


# -- how values are made: as dataclasses are, though the code for it comes with the first object -


@value
class Visit:
    """A value of every kind of field."""

    host: str
    minutes: int = 5
    seen: list[str] = field(default_factory=list)
    hours: float = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Derive one field from another."""
        self.hours = self.minutes / 60  # type: ignore[misc]  # as long as nobody has it


@value
class LongVisit(Visit):
    """A value with the fields of another, and one more."""

    reason: str = ""


def test_value_is_made_by_place_and_name() -> None:
    """The first object and those after it, with what is left out as it was declared."""
    for _ in range(2):
        visit = Visit("h1", seen=["a"])
        assert (visit.host, visit.minutes, visit.seen, visit.hours) == ("h1", 5, ["a"], 5 / 60)
    assert Visit("h1", 30) == Visit(minutes=30, host="h1")
    assert replace(LongVisit("h1"), reason="disk") == LongVisit("h1", 5, [], "disk")


def test_value_has_defaults_of_its_own() -> None:
    """What a factory makes belongs to one object."""
    one, other = Visit("h1"), Visit("h1")
    one.seen.append("a")
    assert other.seen == []


@pytest.mark.parametrize("given", [{}, {"host": "h1", "why": ""}], ids=["too-few", "unknown"])
def test_value_refuses_what_does_not_fit(given: dict[str, str]) -> None:
    """A field that is missing, or that is none, is a bug that shows at once."""
    for _ in range(2):
        with pytest.raises(TypeError, match=r"Lone\.__init__\(\)"):
            Lone(**given)


@value
class Lone:
    """A value that is only ever made wrongly."""

    host: str


def test_time_that_older_versions_wrote_as_0_is_read_as_none() -> None:
    """Rows keep 0 for "not yet"; records have None."""
    operation = small().ask(Cause.HOST_REBOOT, "h0")
    row = to_row(operation)
    for name in ("requested_start_ms", "earliest_start_ms", "ended_ms", "started_ms"):
        assert row[name] == 0
    assert from_row("operation", row) == operation
    assert operation.ended_ms is None
