"""A mapping over another one, compared with one that is written in place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.core.overlay import Overlay

KEYS = st.sampled_from("abc")
ACTS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["delete", "set", "default"]), KEYS, st.integers(1, 3)),
        st.tuples(st.just("update"), st.dictionaries(KEYS, st.integers(1, 3)), st.just(0)),
    ),
    max_size=8,
)


@given(st.dictionaries(KEYS, st.integers(1, 3)), ACTS)
def test_overlay_is_what_one_written_in_place_is(
    below: dict[str, int], acts: list[tuple[str, object, int]]
) -> None:
    """It answers as a copy would, leaves the one below be, and can be written into it."""
    before, copied, over = dict(below), dict(below), Overlay(below)
    for act, key, number in acts:
        for mapping in (copied, over):
            if act == "update":
                mapping.update(key)  # type: ignore[call-overload, arg-type]
            elif act == "set":
                mapping[key] = number  # type: ignore[index]
            elif act == "default":
                assert mapping.setdefault(key, number) == mapping[key]  # type: ignore[index, arg-type]
            elif key in mapping:
                del mapping[key]  # type: ignore[arg-type]
            else:
                with pytest.raises(KeyError):
                    del mapping[key]  # type: ignore[arg-type]
    assert list(over.items()) == list(copied.items())
    assert len(over) == len(copied)
    assert [over.get(key, 0) for key in "abc"] == [copied.get(key, 0) for key in "abc"]
    for key in set("abc") - copied.keys():
        with pytest.raises(KeyError):
            over[key]
    assert below == before
    over.write_into(below)
    assert list(below.items()) == list(copied.items())
