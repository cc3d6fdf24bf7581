"""Rules that choose among openings, in local time. Source: T-16."""

import pytest

from forewarn_base.protocol.timestamps import iso8601, parse
from forewarn_core.fleet.choice_rules import ChoiceRule, Otherwise
from forewarn_core.fleet.openings import Opening
from forewarn_core.rules.local_time import Window

BERLIN = "Europe/Berlin"
SUNDAY = Window("rule", BERLIN, weekdays=(6,), from_min=120, to_min=300)


def openings(*spans: str) -> list[Opening]:
    """Return openings of `FROM/TO` in UTC, without seconds."""
    pairs = [each.split("/") for each in spans]
    return [Opening(parse(f"{one}:00Z"), parse(f"{other}:00Z")) for one, other in pairs]


@pytest.mark.parametrize(
    ("spans", "start"),
    [
        # Sunday, 6 December 2026, 02:00 in winter; later only if the opening is.
        (("2026-12-01T00:00/2026-12-20T00:00",), "2026-12-06T01:00:00Z"),
        (("2026-12-06T02:30/2026-12-20T00:00",), "2026-12-06T02:30:00Z"),
        (
            ("2026-12-01T00:00/2026-12-02T00:00", "2026-12-13T03:00/2026-12-13T03:30"),
            "2026-12-13T03:00:00Z",
        ),
        # 28 March 2027 has no 02:00 to 03:00: the next instant.
        (("2027-03-27T00:00/2027-03-29T00:00",), "2027-03-28T01:00:00Z"),
        # 31 October 2027 has 02:00 twice: the first.
        (("2027-10-30T00:00/2027-11-01T00:00",), "2027-10-31T00:00:00Z"),
        (("2026-12-07T00:00/2026-12-12T00:00",), ""),
        ((), ""),
    ],
)
def test_rule_chooses_the_next_time_in_its_window(spans: tuple[str, ...], start: str) -> None:
    """By the local time of an IANA zone, also where daylight saving changes it."""
    start_ms = ChoiceRule(SUNDAY).start_ms(openings(*spans))
    assert (iso8601(start_ms) if start_ms else "") == start


@pytest.mark.parametrize(
    ("otherwise", "start"),
    [
        (Otherwise.LAST, "2026-12-12T00:00:00Z"),
        (Otherwise.FIRST, "2026-12-07T00:00:00Z"),
        (Otherwise.RELEASE, ""),
        (Otherwise.NOTHING, ""),
    ],
)
def test_rule_has_an_answer_without_its_window(otherwise: Otherwise, start: str) -> None:
    """The last opening, the first, or no start."""
    known = openings("2026-12-07T00:00/2026-12-08T00:00", "2026-12-11T00:00/2026-12-12T00:00")
    start_ms = ChoiceRule(SUNDAY, otherwise).start_ms(known)
    assert (iso8601(start_ms) if start_ms else "") == start
