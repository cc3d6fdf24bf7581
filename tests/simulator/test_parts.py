"""The simulator's own parts: dice, agenda, fuse, disk, and the judge's eyes."""

from __future__ import annotations

from contextlib import closing

import pytest

from forewarn.core.impact import Cause, Impact, Source
from forewarn.core.lifecycle import Operation
from forewarn.core.state import Changes, Entry
from forewarn.drivers import Task
from forewarn.simulator.world.crash_points import Crash, CrashPoint, Violation
from forewarn.simulator.world.dice import Dice
from forewarn.simulator.world.driver import SimDriver
from forewarn.simulator.world.event_queue import START_MS, EventQueue
from forewarn.simulator.world.simulated_store import TROUBLES, Disk, DiskFaultRates, SimulatedStore
from forewarn.store.errors import StoreFull, StoreUnavailable, StoreUncertain


class Deaf:
    """A witness that only counts."""

    def __init__(self) -> None:
        """Begin with nothing seen."""
        self.durable_count = 0

    def durable(self, changes: Changes) -> None:  # noqa: ARG002 - only counted
        """Count."""
        self.durable_count += 1


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
    agenda = EventQueue()
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
    fuse = CrashPoint()
    fuse.passes("before commit")
    fuse.arm("before commit")
    fuse.passes("after commit")
    with pytest.raises(Crash):
        fuse.passes("before commit")
    fuse.passes("before commit")
    assert fuse.blown == {"before commit": 1}
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
    weather, witness = DiskFaultRates(Dice(1, "disk")), Deaf()
    with closing(Disk(weather)) as disk:
        archive = SimulatedStore(disk, CrashPoint(), witness)
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


@pytest.mark.parametrize("trouble", ["lost before", "lost after"])
def test_lost_commit_is_settled_once(trouble: str) -> None:
    """What it was to make durable is told where it did, also on an empty store. Source: L-7."""
    weather = DiskFaultRates(Dice(1, "disk"))
    with closing(Disk(weather)) as disk:
        archive = SimulatedStore(disk, CrashPoint(), Deaf())
        state = archive.load()
        assert archive.settle() is None
        weather.next = [trouble, "refused", "fine"]
        mark = Changes(state.last_number, mark=("a boot", 1))  # which writes no history
        with pytest.raises(StoreUncertain):
            archive.commit(mark)
        assert archive.settle() is (mark if trouble == "lost after" else None)
        assert archive.settle() is None
        archive.commit(Changes(1, entries=[Entry(1, "operator", "test.done", "done")]))
        state = archive.load()
        assert (state.last_number, state.mark) == (
            1,
            mark.mark if trouble == "lost after" else ("", 0),
        )


def test_bad_time_of_a_disk_ends_by_count() -> None:
    """It lasts until so many writes have met it, however rarely anything is written."""
    weather = DiskFaultRates(Dice(1, "disk"))
    weather.permille, weather.left = 1000, 3
    drawn = [weather.draw() for _ in range(5)]
    assert all(trouble in TROUBLES for trouble in drawn[:3])
    assert drawn[3:] == ["", ""]
    assert sum(weather.met.values()) == 3


def test_agenda_that_runs_in_a_circle_is_stopped() -> None:
    """Something that wakes each millisecond is found within a simulated minute. Source: L-8."""
    agenda = EventQueue()

    def wake() -> None:
        agenda.after(1, wake)

    wake()
    with pytest.raises(Violation, match="steps have come in a simulated minute"):
        _ = [agenda.step(START_MS + 3_600_000) for _ in range(agenda.steps_max + 2)]
    assert agenda.now_ms < START_MS + 60_000


def test_driver_asked_after_what_it_never_began_complains() -> None:
    """It is no driver's failure, which the product would take for one of the work. Source: L-7."""
    operation = Operation(
        number=7,
        request=7,
        cause=Cause.REBOOT,
        impact=Impact.REBOOT,
        source=Source.USER,
        routine=True,
        host="h1",
        vms=("vm",),
        of_vm=True,
        description="",
    )
    with pytest.raises(Violation, match="op-7"):
        SimDriver(Dice(1, "driver")).progress(Task(operation), START_MS)
