"""The simulator's own parts: dice, agenda, fuse, disk, and the judge's eyes."""

from __future__ import annotations

from contextlib import closing

import pytest

from forewarn.core.state import Changes, Entry
from forewarn.sim.agenda import START_MS, Agenda
from forewarn.sim.archive import Archive, Disk, Weather
from forewarn.sim.crash import Crash, Fuse
from forewarn.sim.dice import Dice
from forewarn.store.errors import StoreFull, StoreUnavailable, StoreUncertain


class Deaf:
    """A witness that only counts."""

    def __init__(self) -> None:
        """Begin with nothing seen."""
        self.durable_count = 0

    def durable(self, changes: Changes) -> None:  # noqa: ARG002 - only counted
        """Count."""
        self.durable_count += 1

    def loaded(self) -> None:
        """Nothing."""


def test_dice_are_the_same_everywhere() -> None:
    """These draws are written down: a machine that draws others has other dice."""
    dice = Dice(1, "test")
    assert [dice.below(100) for _ in range(5)] == RECORDED
    assert Dice(1, "other").below(1 << 40) != Dice(1, "test").below(1 << 40)


RECORDED = [13, 31, 92, 32, 35]


def test_dice_stay_in_their_limits() -> None:
    """Draws cover the whole range and nothing else."""
    dice = Dice(2, "test")
    assert {dice.between(1, 3) for _ in range(100)} == {1, 2, 3}
    assert {dice.pick("ab") for _ in range(50)} == {"a", "b"}
    assert sorted(dice.some("abc", 9)) == ["a", "b", "c"]
    assert not any(dice.chance(0) for _ in range(50))
    assert all(dice.chance(1000) for _ in range(50))


def test_agenda_keeps_time_and_order() -> None:
    """Acts come in the order of their times, those of the same time in the order noted."""
    agenda = Agenda()
    seen: list[tuple[str, int]] = []

    def note(name: str) -> None:
        seen.append((name, agenda.now_ms - START_MS))

    agenda.after(20, lambda: note("late"))
    agenda.after(10, lambda: note("first"))
    agenda.after(10, lambda: note("second"))
    agenda.at(0, lambda: note("past"))
    while agenda.step(START_MS + 15):
        pass
    assert seen == [("past", 0), ("first", 10), ("second", 10)]
    assert agenda.now_ms == START_MS + 15


def test_fuse_goes_off_once() -> None:
    """An armed crash happens at its point, once, and no exception handler can catch it."""
    fuse = Fuse()
    fuse.passes("before commit")
    fuse.arm("before commit")
    fuse.passes("after commit")
    with pytest.raises(Crash):
        fuse.passes("before commit")
    fuse.passes("before commit")
    assert not issubclass(Crash, Exception)


@pytest.mark.parametrize(
    ("troubles", "error", "durable"),
    [
        (["fine"], None, 1),
        (["refused"], StoreUnavailable, 0),
        (["full"], StoreFull, 0),
        (["lost before"], StoreUnavailable, 0),
        (["lost after"], None, 1),
        (["lost after", "refused"], StoreUncertain, 1),
        (["lost before", "full"], StoreUncertain, 0),
    ],
    ids=lambda each: ", ".join(each) if isinstance(each, list) else "",
)
def test_disk_has_bad_days(
    troubles: list[str], error: type[Exception] | None, durable: int
) -> None:
    """Whatever the caller is told, the witness knows what happened. Source: A-6, L-7."""
    weather, witness = Weather(Dice(1, "disk")), Deaf()
    with closing(Disk(weather)) as disk:
        archive = Archive(disk, Fuse(), witness)
        state = archive.load()
        weather.next = list(troubles)
        changes = Changes(
            state.last_number + 1, entries=[Entry(1, "operator", "test.done", "done")]
        )
        if error is None:
            archive.commit(changes)
        else:
            with pytest.raises(error):
                archive.commit(changes)
        assert witness.durable_count == durable
        assert archive.load().last_number == durable
