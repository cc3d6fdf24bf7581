"""How values are made: as dataclasses are, though the code for it comes with the first object."""

from __future__ import annotations

from dataclasses import field

import pytest

from forewarn.values import replace, value


@value
class Visit:
    """A value of every kind of field."""

    host: str
    minutes: int = 5
    seen: list[str] = field(default_factory=list)
    hours: float = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Derive one field from another."""
        self.hours = self.minutes / 60  # type: ignore[misc]  # as long as nobody has it


@value
class LongVisit(Visit):
    """A value with the fields of another, and one more."""

    reason: str = ""


def test_value_is_made_by_place_and_name() -> None:
    """The first object and those after it, with what is left out as it was declared."""
    for _ in range(2):
        visit = Visit("h1", seen=["a"])
        assert (visit.host, visit.minutes, visit.seen, visit.hours) == ("h1", 5, ["a"], 5 / 60)
    assert Visit("h1", 30) == Visit(minutes=30, host="h1")
    assert replace(LongVisit("h1"), reason="disk") == LongVisit("h1", 5, [], "disk")


def test_value_has_defaults_of_its_own() -> None:
    """What a factory makes belongs to one object."""
    one, other = Visit("h1"), Visit("h1")
    one.seen.append("a")
    assert other.seen == []


@pytest.mark.parametrize("given", [{}, {"host": "h1", "why": ""}], ids=["too-few", "unknown"])
def test_value_refuses_what_does_not_fit(given: dict[str, str]) -> None:
    """A field that is missing, or that is none, is a bug that shows at once."""
    for _ in range(2):
        with pytest.raises(TypeError, match=r"Lone\.__init__\(\)"):
            Lone(**given)


@value
class Lone:
    """A value that is only ever made wrongly."""

    host: str
