"""Documents as bytes: out in seven versions, in from whatever was seen. Sections V and D."""

import copy
import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn_base.protocol.documents import (
    DOCUMENT_BYTES_MAX,
    NO_INCARNATION,
    Document,
    DocumentUnreadable,
    ScheduledEvent,
    format_not_before,
    read_document,
    render_document,
)
from forewarn_base.protocol.versions import FIELD_SINCE, PREVIEW_VERSION, TYPE_SINCE, VERSIONS

SEEN = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "documents.jsonl").read_text("utf-8").splitlines()
]

EVENT = ScheduledEvent(
    event_id="C7061BAC-AFDC-4513-B24B-AA5F13A16123",
    event_type="Freeze",
    resources=("WestNO_0", "WestNO_1"),
    not_before_ms=1_649_716_018_000,
    description="Virtual machine is being paused because of a memory-preserving Live Migration "
    "operation.",
    duration_s=5,
)

TEXT = st.text(max_size=20)
EVENTS = st.builds(
    ScheduledEvent,
    event_id=TEXT,
    status=st.sampled_from(["Scheduled", "Started"]),
    event_type=st.sampled_from(["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate"]),
    resources=st.lists(TEXT, max_size=3).map(tuple),
    not_before_ms=st.none() | st.integers(0, 4_000_000_000).map(lambda second: second * 1000),
    description=TEXT,
    source=st.sampled_from(["Platform", "User"]),
    duration_s=st.integers(-1, 10_000),
)
DOCUMENTS = st.builds(Document, st.integers(0, 2**53), st.lists(EVENTS, max_size=4).map(tuple))


def test_newest_version_is_the_published_example() -> None:
    """The documented example comes out byte for byte. Source: D-7, D-10, E-7."""
    published = json.dumps(SEEN[1]["document"], separators=(",", ":"))
    assert render_document(Document(2, (EVENT,)), "2020-07-01") == published.encode()


@pytest.mark.parametrize("version", VERSIONS)
def test_version_has_its_fields_and_no_others(version: str) -> None:
    """Each version carries only what it knows. Source: V-1, D-10."""
    (event,) = json.loads(render_document(Document(2, (EVENT,)), version))["Events"]
    newest = ["Description", "EventSource", "DurationInSeconds"]
    known = [name for name in newest if FIELD_SINCE[name] <= version]
    first = ["EventId", "EventStatus", "EventType", "ResourceType", "Resources", "NotBefore"]
    assert list(event) == first + known
    assert event["Resources"][0] == ("_WestNO_0" if version == "2017-03-01" else "WestNO_0")


@pytest.mark.parametrize(("kind", "since"), TYPE_SINCE.items())
def test_version_leaves_out_types_it_does_not_know(kind: str, since: str) -> None:
    """A client that knows no Preempt is not shown one. Source: V-2, V-4."""
    document = Document(1, (ScheduledEvent(event_type=kind),))
    for version in (*VERSIONS, PREVIEW_VERSION):
        shown = json.loads(render_document(document, version))
        assert len(shown["Events"]) == (version >= since)
        assert shown["DocumentIncarnation"] == 1


def test_unknown_type_is_shown_to_nobody() -> None:
    """A type no version knows is in no version's document. Source: V-2."""
    document = Document(1, (ScheduledEvent(event_type="Pause"),))
    assert b'"Events":[]' in render_document(document, PREVIEW_VERSION)


@given(DOCUMENTS)
def test_newest_version_reads_back_as_it_was(document: Document) -> None:
    """What is written in the newest version is read as the same value. Source: D-1 to D-10."""
    octets = render_document(document, "2020-07-01")
    assert octets.isascii()
    assert b"\n" not in octets
    assert read_document(octets) == document
    assert read_document(octets.decode()) == document


@given(DOCUMENTS, st.sampled_from(VERSIONS))
def test_incarnation_and_ids_are_the_same_in_every_version(doc: Document, version: str) -> None:
    """Incarnation, ids and order do not depend on the version. Source: V-1, V-3."""
    read = read_document(render_document(doc, version))
    known = [each for each in doc.events if TYPE_SINCE[each.event_type] <= version]
    assert read.incarnation == doc.incarnation
    assert [each.event_id for each in read.events] == [each.event_id for each in known]
    for event, name in ((e, n) for e in read.events for n in e.resources):
        assert event.names(name.removeprefix("_") if version == "2017-03-01" else name)


@pytest.mark.parametrize("line", SEEN, ids=lambda line: str(line["source"])[:40])
def test_document_seen_in_the_wild_is_read(line: dict[str, dict[str, object]]) -> None:
    """Every document that was documented or seen is read, nothing in it is lost. Source: D-7."""
    form = line["document"]
    document = read_document(json.dumps(form))
    given_incarnation = form.get("DocumentIncarnation")
    if isinstance(given_incarnation, int):
        assert document.incarnation == given_incarnation
    else:
        assert document.incarnation == NO_INCARNATION
    events = form["Events"]
    assert isinstance(events, list)
    assert len(document.events) == len(events)
    for event, raw in zip(document.events, events, strict=True):
        assert event.event_id == raw["EventId"]
        assert event.event_type == raw["EventType"]
        assert event.resources == tuple(raw["Resources"])
        assert event.status == raw["EventStatus"]
        assert event.source == raw.get("EventSource", "Platform")
        assert event.duration_s == raw.get("DurationInSeconds", -1)
        if raw["NotBefore"].endswith("GMT"):
            assert format_not_before(event.not_before_ms) == raw["NotBefore"]
        else:
            assert event.not_before_ms is None


@pytest.mark.parametrize(
    "body",
    ["", " ", "x", "[]", "null", '"x"', "{}", '{"Events":null}', '{"Events":{}}', '{"error":"x"}',
     '{"Events":[1]}', b"\xff\xfe", "[" * 100_000, '{"DocumentIncarnation":1,"Eve',
     " " * (DOCUMENT_BYTES_MAX + 1)],
    ids=range(15),
)  # fmt: skip
def test_garbage_is_no_document(body: bytes | str) -> None:
    """What is not a document is said to be none, and is not taken for an empty one. Source: D-2."""
    with pytest.raises(DocumentUnreadable):
        read_document(body)


@given(st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["Events", "EventId", "Resources", "NotBefore",
      "DurationInSeconds", "DocumentIncarnation", "EventStatus"]), inner, max_size=4),
))  # fmt: skip
def test_odd_document_is_read_or_refused(form: object) -> None:
    """Whatever JSON comes, the reader gives a document or says that it is none. Source: D-2."""
    for shape in (form, {"Events": form}, {"DocumentIncarnation": form, "Events": [form]}):
        try:
            document = read_document(json.dumps(shape))
        except DocumentUnreadable:
            continue
        assert isinstance(document.incarnation, int)
        assert all(isinstance(event.duration_s, int) for event in document.events)


@pytest.mark.parametrize(
    ("value", "read"),
    [(3, 3), ("3", 3), (3.0, 3), ("x", -1), (True, -1), (None, -1), ([], -1),
     (float("nan"), -1), (float("inf"), -1)],
)  # fmt: skip
def test_number_is_read_from_number_or_text(value: object, read: int) -> None:
    """Incarnations and durations come as numbers or text; the rest is unknown. Source: D-9."""
    body = json.dumps({"DocumentIncarnation": value, "Events": [{"DurationInSeconds": value}]})
    document = read_document("\ufeff" + body)
    assert (document.incarnation, document.events[0].duration_s) == (read, read)


def test_missing_fields_get_their_defaults() -> None:
    """An event without any field is read as a scheduled one by the platform. Source: D-10."""
    body = b'{"Events":[{},{"Resources":"vm"},{"Resources":[1]}]}'
    first, second, third = read_document(body).events
    assert first == ScheduledEvent()
    assert (second.resources, third.resources) == (("vm",), ("1",))


def test_event_names_a_vm_with_or_without_underscore() -> None:
    """The oldest version's underscore does not hide a VM. Source: V-1."""
    assert ScheduledEvent(resources=("_a", "b")).names("a")
    assert ScheduledEvent(resources=("_a", "b")).names("b")
    assert not ScheduledEvent(resources=("_a",)).names("_b")


def test_events_and_documents_are_values() -> None:
    """They compare, hash, copy and show by value, and do not change. Source: D-1."""
    document = Document(1, (EVENT,))
    for value in (EVENT, document):
        twin = pickle.loads(pickle.dumps(value))
        assert twin == value == copy.deepcopy(value)
        assert hash(twin) == hash(value)
        assert value != "something else"
        assert repr(value) == repr(twin)
        with pytest.raises(AttributeError):
            setattr(value, "incarnation", 5)  # noqa: B010  the type checker refuses it as well
        with pytest.raises(AttributeError):
            delattr(value, "incarnation")
    assert document != Document(2, (EVENT,))
    assert document != Document(1)
    assert Document().incarnation == 0
    assert ScheduledEvent(event_id="A") != ScheduledEvent(event_id="B")
