"""What is sent, in every version, as a reader takes it that knows the table and nothing else."""

import json
from email.utils import parsedate_to_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn_base.protocol.documents import Document, ScheduledEvent, render_document
from tests.protocol.second_reader import KINDS, TABLE, VERSIONS, NotADocument, read

#: An event as values, from which both the product and the table are given theirs.
FORMS = st.fixed_dictionaries(
    {
        "event_id": st.uuids().map(lambda made: str(made).upper()),
        "event_type": st.sampled_from([kind for kinds in KINDS.values() for kind in kinds]),
        "resources": st.lists(st.text(max_size=20), max_size=3).map(tuple),
        "description": st.text(max_size=40),
        "source": st.sampled_from(["Platform", "User"]),
        "duration_s": st.integers(-1, 10_000),
        "not_before_ms": st.none() | st.integers(0, 4_000_000_000).map(lambda s: s * 1000),
    }
)
ONE = {
    "EventId": "C7061BAC-AFDC-4513-B24B-AA5F13A16123",
    "EventStatus": "Scheduled",
    "EventType": "Freeze",
    "ResourceType": "VirtualMachine",
    "Resources": ["WestNO_0"],
    "NotBefore": "Mon, 11 Apr 2022 22:26:58 GMT",
    "Description": "",
    "EventSource": "Platform",
    "DurationInSeconds": 5,
}


def since(kind: str) -> str:
    """The first version that knows a type."""
    return next(version for version, kinds in KINDS.items() if kind in kinds)


@given(st.lists(FORMS, max_size=4, unique_by=lambda form: form["event_id"]))
def test_every_version_is_read_as_the_table_says(forms: list[dict[str, object]]) -> None:
    """A reader that is not ours finds what was announced. Source: V-1, V-2, D-1 to D-10."""
    events = [
        ScheduledEvent(
            status="Scheduled" if form["not_before_ms"] is not None else "Started",
            **form,  # type: ignore[arg-type]
        )
        for form in forms
    ]
    document = Document(7, tuple(events))
    for version in VERSIONS:
        incarnation, found = read(render_document(document, version), version)
        assert incarnation == 7
        told = [form for form in forms if since(str(form["event_type"])) <= version]
        assert [event["EventId"] for event in found] == [form["event_id"] for form in told]
        for event, form in zip(found, told, strict=True):
            assert_told(event, form, "_" if version == VERSIONS[0] else "")


def assert_told(event: dict[str, object], form: dict[str, object], prefix: str) -> None:
    """An event says what it was made of, as far as its version can."""
    names = form["resources"]
    assert isinstance(names, tuple)
    assert event["Resources"] == [prefix + name for name in names]
    assert event["EventType"] == form["event_type"]
    time = str(event["NotBefore"])
    read_ms = parsedate_to_datetime(time).timestamp() * 1000 if time else None
    assert read_ms == form["not_before_ms"]
    later = {"Description": "description", "EventSource": "source"}
    later["DurationInSeconds"] = "duration_s"
    for name, key in later.items():
        assert event.get(name, form[key]) == form[key]


@pytest.mark.parametrize(
    "change",
    [
        {"EventId": "c7061bac-afdc-4513-b24b-aa5f13a16123"},
        {"EventStatus": "Completed"},
        {"EventType": "Pause"},
        {"NotBefore": "2022-04-11T22:26:58Z"},
        {"NotBefore": ""},
        {"NotBefore": None},
        {"NotBefore": "Tue, 11 Apr 2022 22:26:58 GMT"},
        {"EventStatus": "Started"},
        {"Resources": "WestNO_0"},
        {"EventSource": "platform"},
        {"DurationInSeconds": "5"},
        {"DurationInSeconds": 5.0},
        {"Extra": 1},
    ],
    ids=json.dumps,
)
def test_second_reader_takes_nothing_else(change: dict[str, object]) -> None:
    """What it is to find out, it does find out."""
    right, wrong = ([{**ONE, **each}] for each in ({}, change))
    newest = VERSIONS[-1]
    assert read(json.dumps({"DocumentIncarnation": 1, "Events": right}).encode(), newest)
    with pytest.raises(NotADocument):
        read(json.dumps({"DocumentIncarnation": 1, "Events": wrong}).encode(), newest)


def test_table_has_every_field_once() -> None:
    """The table is that of the specification. Source: V-1, D-10."""
    assert [column.name for column in TABLE] == list(ONE)
    assert [column.since for column in TABLE] == sorted(column.since for column in TABLE)
