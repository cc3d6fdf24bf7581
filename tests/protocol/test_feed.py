"""The feed's messages as lines."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.replication.messages import (
    Ack,
    Answered,
    ApprovalAnswer,
    ApprovalRequest,
    ApproveMessage,
    Asked,
    Caller,
    DocumentChange,
    EnableMessage,
    FeedUnreadable,
    PollMessage,
    Publication,
    Told,
    line_of,
    read_asked,
    read_told,
)
from tests.protocol.test_documents import DOCUMENTS

TEXT = st.text(max_size=10)
NUMBERS = st.integers(0, 2**63 - 1)
NAMES = st.lists(TEXT, max_size=3).map(tuple)
FACTS = st.dictionaries(TEXT, st.none() | st.booleans() | NUMBERS | TEXT, max_size=3)
CALLERS = st.builds(
    Caller,
    vm=TEXT,
    group=TEXT,
    view=TEXT,
    addresses=NAMES,
    interface=TEXT,
    instance_id=TEXT,
    instance=FACTS,
)
CHANGES = st.builds(
    DocumentChange,
    sequence=NUMBERS,
    whole=st.booleans(),
    callers=st.lists(CALLERS, max_size=3).map(tuple),
    gone=NAMES,
    publications=st.lists(
        st.builds(Publication, view=TEXT, enabled=st.booleans(), document=DOCUMENTS), max_size=3
    ).map(tuple),
)


ANSWERS = st.none() | st.builds(ApprovalAnswer, accepted=st.booleans(), error=TEXT)
ASKED = st.one_of(
    st.builds(Ack, sequence=NUMBERS),
    st.builds(
        ApproveMessage,
        number=NUMBERS,
        request=st.builds(ApprovalRequest, vm=TEXT, event_ids=NAMES, address=TEXT),
    ),
    st.builds(EnableMessage, number=NUMBERS, vm=TEXT),
    st.builds(PollMessage, groups=NAMES),
)


@given(CHANGES | st.builds(Answered, number=NUMBERS, answer=ANSWERS))
def test_what_a_node_is_told_reads_back_as_it_was(message: Told) -> None:
    """A message is one line, and comes out as it went in. Source: L-7, S-1."""
    line = line_of(message)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert read_told(line) == message


@given(ASKED)
def test_what_a_node_says_reads_back_as_it_was(message: Asked) -> None:
    """So does what nodes say. Source: A-6, B-1, B-2."""
    line = line_of(message)
    assert line.count(b"\n") == 1
    assert read_asked(line) == message


CALLER = ["v", "g", "g", [], "", "", {}]
EVENT = ["E", "Scheduled", "Reboot", "VirtualMachine", ["v"], 1, "", "Platform", 9]


def change_of(caller: object = CALLER, event: object = EVENT, **others: object) -> list[object]:
    """The line of a change with this in it."""
    fields = {
        "sequence": 1,
        "whole": True,
        "callers": [caller],
        "gone": ["x"],
        "publications": [["g", True, [1, [event]]]],
        **others,
    }
    return ["change", *fields.values()]


def test_line_is_what_it_is_said_to_be() -> None:
    """The samples below are refused for what is odd in each, and for nothing else."""
    told = read_told(json.dumps(change_of()).encode())
    assert isinstance(told, DocumentChange)
    assert told.publications[0].document.events[0].duration_s == 9


@pytest.mark.parametrize(
    "form",
    [[], {}, 3, ["fly", 1], ["ack"], ["ack", 1, 2], ["answered", 1], ["answered", "1", None],
     ["approve", 1, ["v", ["E"], "", "x"]], change_of(event=[*EVENT, 1]), change_of([*CALLER, 1]),
     change_of(publications=[["g", True, [1, [], 2]]]), change_of(more=1),
     change_of(sequence="1"), change_of(whole=1), change_of(gone=[1]), change_of(callers=3),
     change_of({}), change_of(3), change_of(["v", "g"]),
     change_of(["v", "g", "g", [1], "", "", {}]), change_of(["v", "g", 1, [], "", "", {}]),
     change_of(["v", "g", "g", [], "", "", []]), change_of(event=[]), change_of(event=EVENT[:8]),
     change_of(event=[*EVENT[:5], "soon", *EVENT[6:]]), change_of(publications=[["g", True, 5]]),
     change_of(publications=[["g", True, [1, 5]]])],
    ids=range(28),
)  # fmt: skip
def test_line_of_another_make_is_refused(form: object) -> None:
    """A line that is not ours is refused, not half understood. Source: L-7."""
    line = json.dumps(form).encode()
    for read in (read_told, read_asked):
        with pytest.raises(FeedUnreadable):
            read(line)


@pytest.mark.parametrize(
    "line",
    [
        b"x\n",
        b"\n",
        b"[" * 100_000,
        b'["ack",1]]',
        b"\xff",
        b'["polled",["\xff"]]',
        b'["change",1,true,[["\xff"]]]',
    ],
    ids=range(7),
)
def test_line_that_is_no_message_is_refused(line: bytes) -> None:
    """Nothing but our own messages is taken. Source: L-7."""
    for read in (read_told, read_asked):
        with pytest.raises(FeedUnreadable):
            read(line)
