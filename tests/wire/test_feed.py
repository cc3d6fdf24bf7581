"""The feed's values as lines."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.feed import Caller, Change, FeedUnreadable, Publication, decode, encode
from tests.wire.test_documents import DOCUMENTS

TEXT = st.text(max_size=10)
NAMES = st.lists(TEXT, max_size=3).map(tuple)
FACTS = st.dictionaries(TEXT, st.none() | st.booleans() | st.integers() | TEXT, max_size=3)
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
    Change,
    sequence=st.integers(),
    whole=st.booleans(),
    callers=st.lists(CALLERS, max_size=3).map(tuple),
    gone=NAMES,
    publications=st.lists(
        st.builds(Publication, view=TEXT, enabled=st.booleans(), document=DOCUMENTS), max_size=3
    ).map(tuple),
)


@given(CHANGES)
def test_change_reads_back_as_it_was(change: Change) -> None:
    """A change is one line, and comes out as it went in. Source: L-7, S-1."""
    line = encode(change)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode(line) == change


GOOD = json.loads(encode(Change(1, callers=(Caller("v", "g", "g"),), gone=("x",))))


@pytest.mark.parametrize(
    "form",
    [[], {}, {**GOOD, "sequence": "1"}, {**GOOD, "whole": 1}, {**GOOD, "gone": [1]},
     {**GOOD, "callers": [{}]}, {**GOOD, "callers": 3}, {**GOOD, "callers": [3]},
     {**GOOD, "callers": [["v", "g", "g"]]},
     {**GOOD, "callers": [["v", "g", "g", [1], "", "", {}]]},
     {**GOOD, "callers": [["v", "g", 1, [], "", "", {}]]},
     {**GOOD, "callers": [["v", "g", "g", [], "", "", []]]},
     {**GOOD, "publications": [{"view": "g", "enabled": True, "incarnation": 1, "events": [[]]}]},
     {**GOOD, "publications": [{"view": "g", "enabled": True, "incarnation": 1, "events": 5}]}],
    ids=range(14),
)  # fmt: skip
def test_line_of_another_make_is_refused(form: object) -> None:
    """A line that is not ours is refused, not half understood. Source: L-7."""
    with pytest.raises(FeedUnreadable):
        decode(json.dumps(form).encode())
    with pytest.raises(FeedUnreadable):
        decode(b"[" * 100_000)
