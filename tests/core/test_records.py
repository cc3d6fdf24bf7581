"""Records as rows: what goes in comes out, for every kind."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.core import records
from forewarn.core.document import View
from forewarn.core.impact import Cause
from forewarn.core.lifecycle import Operation
from forewarn.core.records import (
    KIND_OF,
    KINDS,
    ROWS_REMEMBERED,
    Record,
    Row,
    columns_of,
    from_row,
    key_of,
    to_row,
)
from forewarn.core.state import Changes
from forewarn.core.topology import Vm
from forewarn.planning.plan_text import read_plan
from forewarn.protocol.documents import Document
from tests.core.rig import small
from tests.store import strategies as made


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


def test_row_of_an_older_version_is_read() -> None:
    """A row of history from before a column was added means what it meant then. Source: L-7."""
    operation = small().ask(Cause.HOST_REBOOT, "h0")
    row = dict(to_row(operation))
    del row["abort_owed"]
    assert from_row("operation", row) == operation
    vm = Vm("v", "h", "g")
    row = dict(to_row(vm))
    del row["instance"]
    assert from_row("vm", row) == vm


def test_every_kind_has_a_key() -> None:
    """Each kind of record is known by one of its columns."""
    assert set(KIND_OF.values()) == set(KINDS)
    operation = small().ask(Cause.HOST_REBOOT, "h0")
    assert isinstance(operation, Operation)
    assert key_of(operation) == 1


def test_rows_are_remembered_for_so_many_records_and_no_more() -> None:
    """A fleet of a million VMs does not stay in memory twice."""
    made = [Vm(f"v{number}", "h", "g") for number in range(2 * ROWS_REMEMBERED + 1)]
    for vm in made:
        assert to_row(vm)["name"] == vm.name
        assert len(records._recent) <= ROWS_REMEMBERED
    assert to_row(made[-1]) is to_row(made[-1])


def test_plan_is_read_once_however_many_there_are() -> None:
    """To look at one costs nothing, whatever is in force beside it."""
    row: Row = {"id": "a", "maintenance": 1, "parent": "", "made_ms": 1, "body": made.PLAN_TEXT}
    plans = [from_row("plan", row) for _ in range(99)]
    waves = [each.waves for each in plans]  # type: ignore[union-attr]
    assert [wave.hosts for wave in waves[0]] == [("h0",)]
    assert all(each.waves is known for each, known in zip(plans, waves, strict=True))  # type: ignore[union-attr]


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


@pytest.mark.parametrize(
    "changed",
    [{"waits": {1: 0}}, {"short": {1: None}}, {"ticked_ms": 1}],
    ids=["waits", "short", "ticked"],
)
def test_step_that_only_derives_something_is_adopted(changed: dict[str, object]) -> None:
    """It writes nothing, and is not forgotten. Source: L-7."""
    changes = Changes(0, **changed)  # type: ignore[arg-type]
    assert changes.derived
    assert not changes
    assert not Changes(0).derived
