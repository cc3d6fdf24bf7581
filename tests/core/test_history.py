"""History: it alone gives the state again, and what no table allows is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from forewarn import core
from forewarn.core.actions import ACTIONS
from forewarn.core.history import HistoryIllegal, Replay, Rows
from forewarn.core.impact import Cause, Impact
from forewarn.core.lifecycle import EventState, OperationState
from forewarn.core.policy import Policy
from forewarn.core.records import KIND_OF, Record, key_of, to_row
from forewarn.core.state import Entry, Image
from forewarn.core.stimulus import (
    ChangeTopology,
    Complete,
    Enable,
)
from forewarn.core.topology import Group, Health, Vm
from forewarn.planning.policy import Policy as MaintenancePolicy
from forewarn.values import replace
from tests.core.maintenance import fleet
from tests.core.rig import Rig, small, small_fleet

VERBS = ("added", "changed", "removed")
"""What a change of the fleet does to a record."""


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
    """What the core can write into history is what the table of actions says. Source: A-6."""
    room = Path(str(core.__file__)).parent
    texts = [each.read_text() for each in room.rglob("*.py") if each.name != "actions.py"]
    named = r'"((?:operation|event|document|group|maintenance|policy)\.[a-z-]+)"'
    written = {name for text in texts for name in re.findall(named, text)}
    of_fleet = {f"{kind}.{verb}" for kind in ("host", "group", "vm") for verb in VERBS}
    of_states = {f"host.{health.value}" for health in Health}
    of_states |= {f"operation.{end}" for end in ("succeeded", "failed")}
    assert set(ACTIONS) == written | of_fleet | of_states


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
    rig = fleet(policy=Policy(maintenance=MaintenancePolicy(postpone_max_s=86_400)))
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
