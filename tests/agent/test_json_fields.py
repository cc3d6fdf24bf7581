"""Members of forms: of the right type, or refused by name."""

from collections.abc import Callable

import pytest

from forewarn.agent.core.records import event_form, read_event, read_event_record, read_step_record
from forewarn.agent.json_fields import FieldInvalid, inner, member, number, several, texts, words
from tests.agent.making import event, prepared

ODD: dict[str, Callable[[], object]] = {
    "a number for a word": lambda: member({"name": 5}, "name", ""),
    "a word for a number": lambda: number({"name": "5"}, "name", 0.0),
    "nothing for an object": lambda: inner({}, "name"),
    "words for objects": lambda: several({"name": ["one"]}, "name"),
    "numbers for words": lambda: words({"name": [1]}, "name"),
    "numbers in an object of words": lambda: texts({"name": {"one": 1}}, "name"),
}


@pytest.mark.parametrize("read", ODD.values(), ids=ODD)
def test_member_of_another_type_is_refused(read: Callable[[], object]) -> None:
    """What another release or a person wrote is looked at before it is used."""
    with pytest.raises(FieldInvalid, match=r"^(name|one) cannot be "):
        read()


def test_words_may_be_one_word_or_none() -> None:
    """A single unit, server or address needs no brackets."""
    assert words({"units": "one"}, "units") == ["one"]
    assert words({}, "units") == []


def test_event_is_read_as_it_was_written() -> None:
    """An event survives the journal, whether or not it has a NotBefore."""
    for one in (event(), event(status="Started")):
        assert read_event(event_form(one)) == one
    assert read_event({**event_form(event()), "of a later release": 1}) == event()


@pytest.mark.parametrize(
    ("member_name", "found"),
    [("stage", "dancing"), ("seen_ms", "soon"), ("plan", [["drain"]]), ("event", None)],
)
def test_event_record_nobody_here_wrote_is_refused(member_name: str, found: object) -> None:
    """A record with an unknown stage would never be moved on."""
    form = prepared().events[0].form()
    read_event_record(form)
    with pytest.raises(FieldInvalid):
        read_event_record({**form, member_name: found})


@pytest.mark.parametrize(
    ("member_name", "found"), [("phase", "dance"), ("status", "odd"), ("holders", [1])]
)
def test_step_record_nobody_here_wrote_is_refused(member_name: str, found: object) -> None:
    """A step in an unknown phase would never be undone."""
    form = prepared().steps[0].form()
    read_step_record(form)
    with pytest.raises(FieldInvalid):
        read_step_record({**form, member_name: found})
