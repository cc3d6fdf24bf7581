"""Labels of hosts, and the selectors that name hosts by them. Source: F-1."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.core.labels import NothingSelected, SelectorInvalid, read_selector, select, words_of
from forewarn.core.naming import KEY_PATTERN, LABELS_MAX, VALUE_PATTERN
from forewarn.core.refusals import FleetContradiction
from forewarn.core.topology import Host

HOSTS = (
    Host("h1", zone="1", labels=(("rack", "r1"), ("tier", "gold"))),
    Host("h2", zone="2", labels=(("rack", "r1"),)),
    Host("h3", zone="2", labels=(("rack", "r7"),)),
    Host("h4"),
)


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("zone=2", ("h2", "h3")),
        ("rack=r1", ("h1", "h2")),
        (" zone=2 , rack=r1 ", ("h2",)),
        ("tier=gold,zone=1,rack=r1", ("h1",)),
    ],
)
def test_host_is_selected_by_all_it_has(selector: str, names: tuple[str, ...]) -> None:
    """A selector names the hosts that have every pair of it."""
    assert select(HOSTS, selector) == names


@pytest.mark.parametrize("selector", ["", "zone", "zone=", "=2", "zone=1,", "a=b=c", "a=1,a=1"])
def test_what_is_no_selector_is_refused(selector: str) -> None:
    """What cannot be read names nobody, least of all everybody."""
    with pytest.raises(SelectorInvalid):
        select(HOSTS, selector)


def test_nothing_selected_is_an_error() -> None:
    """A slip of the pen is not a maintenance of no hosts."""
    with pytest.raises(NothingSelected):
        select(HOSTS, "zone=2,tier=gold")


@pytest.mark.parametrize(
    "labels",
    [
        (("zone", "3"),),
        (("a b", "c"),),
        (("a", "b,c"),),
        (("a", ""),),
        tuple((f"k{n}", "v") for n in range(LABELS_MAX + 1)),
    ],
)
def test_label_that_no_selector_could_name_is_refused(labels: tuple[tuple[str, str], ...]) -> None:
    """A host's labels can all be written in a selector."""
    with pytest.raises(FleetContradiction):
        Host("h1", labels=labels)


@given(st.from_regex(KEY_PATTERN, fullmatch=True), st.from_regex(VALUE_PATTERN, fullmatch=True))
def test_every_label_can_be_selected(key: str, text: str) -> None:
    """Whatever may be a label is found by the selector that has it."""
    if key == "zone" or not text.isprintable():
        return
    host = Host("h1", labels=((key, text),))
    assert read_selector(f"{key}={text}") == ((key, text.strip()),)
    assert select([host, Host("h2")], f"{key}={text}") == ("h1",)
    assert f"{key}={text}" in words_of(host)
