"""The feed's messages as lines."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.protocol.identity import CallerIdentity
from forewarn.replication import portions
from forewarn.replication.messages import (
    Ack,
    Answered,
    ApprovalRequest,
    ApproveMessage,
    Asked,
    Caller,
    DocumentChange,
    EnableMessage,
    FeedCurrent,
    FeedPortion,
    FeedStart,
    FeedUnreadable,
    Follow,
    Ping,
    PollMessage,
    Pong,
    Publication,
    RequestAnswer,
    ServerMessage,
    line_of,
    read_asked,
    read_content,
    read_server_message,
)
from forewarn.replication.portions import ChangeAssembly, FeedBroken, cut
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


ANSWERS = st.none() | st.builds(RequestAnswer, accepted=st.booleans(), error=TEXT)
TOLD = st.one_of(
    st.builds(FeedStart, epoch=TEXT, sequence=NUMBERS, checksum=NUMBERS, whole=st.booleans()),
    st.just(FeedCurrent()),
    st.just(Ping()),
    st.builds(Answered, number=NUMBERS, answer=ANSWERS),
)
IDENTITIES = st.builds(CallerIdentity, address=TEXT, interface=TEXT, instance_id=TEXT)
ASKED = st.one_of(
    st.builds(Follow, name=TEXT, epoch=TEXT, sequence=NUMBERS, checksum=NUMBERS),
    st.builds(Ack, sequence=NUMBERS),
    st.just(Pong()),
    st.builds(
        ApproveMessage,
        number=NUMBERS,
        request=st.builds(
            ApprovalRequest, vm=TEXT, event_ids=NAMES, address=TEXT, identity=IDENTITIES
        ),
    ),
    st.builds(EnableMessage, number=NUMBERS, vm=TEXT),
    st.builds(PollMessage, groups=NAMES, age_ms=st.integers(0, 1 << 62)),
)


@given(TOLD)
def test_what_a_node_is_told_reads_back_as_it_was(message: ServerMessage) -> None:
    """A message is one line, and comes out as it went in. Source: L-7, S-1."""
    line = line_of(message)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert read_server_message(line) == message


@given(CHANGES, NUMBERS.map(lambda number: number & 0xFFFFFFFF))
def test_change_is_what_its_portions_are_together(change: DocumentChange, checksum: int) -> None:
    """However small its portions are, the change comes out as it went in. Source: M-1."""
    for size in (1, 100, portions.PORTION_BYTES):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(portions, "PORTION_BYTES", size)
            assembly, told = ChangeAssembly(checksum, whole=change.whole), None
            for line, _ in cut(change, checksum):
                assert told is None
                portion = read_server_message(line)
                assert isinstance(portion, FeedPortion)
                told = assembly.add(portion)
            assert told == change


@pytest.mark.parametrize("lost", [0, 1, 2], ids=["first", "second", "last"])
def test_portion_that_is_missing_is_noticed(lost: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node never takes a change over that is not whole, or not the next. Source: M-1."""
    monkeypatch.setattr(portions, "PORTION_BYTES", 1)
    lines = [line for line, _ in cut(DocumentChange(7, gone=("a", "b", "c")), 0)]
    lines += [line for line, _ in cut(DocumentChange(8), 99)]
    assembly = ChangeAssembly(0)

    def take_all() -> None:
        for line in lines[:lost] + lines[lost + 1 :]:
            portion = read_server_message(line)
            assert isinstance(portion, FeedPortion)
            assert assembly.add(portion) is None

    with pytest.raises(FeedBroken, match=r"change [78]"):
        take_all()


@given(ASKED)
def test_what_a_node_says_reads_back_as_it_was(message: Asked) -> None:
    """So does what nodes say. Source: A-6, B-1, B-2."""
    line = line_of(message)
    assert line.count(b"\n") == 1
    assert read_asked(line) == message


CALLER = ["v", "g", "g", [], "", "", {}]
EVENT = ["E", "Scheduled", "Reboot", "VirtualMachine", ["v"], 1, "", "Platform", 9]


def content_of(caller: object = CALLER, event: object = EVENT, **others: object) -> list[object]:
    """The content of a portion with this in it."""
    fields = {
        "callers": [caller],
        "gone": ["x"],
        "publications": [["g", True, [1, [event]]]],
        **others,
    }
    return list(fields.values())


def test_content_is_what_it_is_said_to_be() -> None:
    """The samples below are refused for what is odd in each, and for nothing else."""
    told = read_content(msgspec.Raw(json.dumps(content_of()).encode()))
    assert told.publications[0].document.events[0].duration_s == 9


@pytest.mark.parametrize(
    "form",
    [{}, 3, content_of(gone=[1]), content_of(callers=3), content_of({}), content_of(3),
     content_of(["v", "g"]), content_of(["v", "g", "g", [1], "", "", {}]),
     content_of(["v", "g", 1, [], "", "", {}]), content_of(["v", "g", "g", [], "", "", []]),
     content_of(event=[]), content_of(event=EVENT[:8]),
     content_of(event=[*EVENT[:5], "soon", *EVENT[6:]]),
     content_of(publications=[["g", True, 5]]), content_of(publications=[["g", True, [1, 5]]])],
    ids=range(15),
)  # fmt: skip
def test_content_of_another_make_is_refused(form: object) -> None:
    """What is not ours is refused, not half understood. Source: L-7."""
    with pytest.raises(FeedUnreadable):
        read_content(msgspec.Raw(json.dumps(form).encode()))


def test_fields_that_a_later_version_appends_are_ignored() -> None:
    """So nodes and control planes of two versions understand one another. Source: H-8."""
    later = content_of([*CALLER, "", [], 1], event=[*EVENT, 1], more=1)
    content = read_content(msgspec.Raw(json.dumps(later).encode()))
    assert content == read_content(msgspec.Raw(json.dumps(content_of()).encode()))
    assert read_asked(b'["follow","n","",0,0,[],"","","","","later"]') == Follow("n")
    assert read_server_message(b'["ping",1]') == read_server_message(b'["ping"]')


@pytest.mark.parametrize(
    "form",
    [[], {}, 3, ["fly", 1], ["ack"], ["answered", 1], ["answered", "1", None],
     ["approve", 1, ["v", ["E"], "", "x"]], ["start", "e", 1, 2], ["start", 1, 1, 2, True],
     ["portion", "1", True, 0, []], ["portion", 1, 1, 0, []], ["portion", 1, True, 0],
     ["follow"],
     ["follow", 1], ["follow", "n", "e", "1"], ["change", 1, True, [], [], []]],
    ids=range(17),
)  # fmt: skip
def test_line_of_another_make_is_refused(form: object) -> None:
    """A line that is not ours is refused, not half understood. Source: L-7."""
    line = json.dumps(form).encode()
    for read in (read_server_message, read_asked):
        with pytest.raises(FeedUnreadable):
            read(line)


@pytest.mark.parametrize(
    "line",
    [b"x\n", b"\n", b"[" * 100_000, b'["ack",1]]', b"\xff", b'["polled",["\xff"]]'],
    ids=range(6),
)
def test_line_that_is_no_message_is_refused(line: bytes) -> None:
    """Nothing but our own messages is taken. Source: L-7."""
    for read in (read_server_message, read_asked):
        with pytest.raises(FeedUnreadable):
            read(line)
