"""Availability in random worlds: VMs that come, move and go, owners that change, work that ends.

`AVAILABILITY_WORLDS=1000` plays this many worlds instead of three.
"""

import os
import random
from collections import Counter
from contextlib import closing, suppress

import pytest

from forewarn_base.errors import CallerError
from forewarn_core.fleet import stimulus as words
from forewarn_core.fleet.availability import Period
from forewarn_core.fleet.state import State
from forewarn_core.fleet.stimulus import PlaneStimulus
from forewarn_core.fleet.topology import Group, Host, Vm
from forewarn_store import open_store
from tests.simulator.checkers.availability_checker import check_availability
from tests.store.random_work import RandomWork
from tests.store.story import START_MS, Story, begin

STEPS = 120
WORLDS = int(os.environ.get("AVAILABILITY_WORLDS", "3"))
FIRST = int(os.environ.get("AVAILABILITY_SEED", "1"))
OWNERS = ("", "shop", "bank")
#: Rounds in which all work of a world must end.
ROUNDS_MAX = 200


class OwnedWork(RandomWork):
    """Work of owners: groups are handed over, VMs move, and some drivers measure."""

    def __init__(self, seed: int) -> None:
        """Draw by a seed."""
        super().__init__(seed)
        self._owned = random.Random(seed + 1)

    def next(self, state: State) -> PlaneStimulus:
        """Return something that may happen in a state."""
        drawn, draw = super().next(state), self._owned
        if isinstance(drawn, words.DriverDone) and draw.random() < 0.5:
            measured_ms = draw.choice((0, 1, 999, 60_000, 10**9))
            return words.DriverDone(drawn.operation, drawn.attempt, measured_ms)
        if not isinstance(drawn, words.ChangeTopology) or draw.random() < 0.3:
            return drawn
        groups = sorted(state.topology.groups) or ["g0"]
        group = Group(draw.choice(groups), owner=draw.choice(OWNERS))
        vms = sorted(state.topology.vms)
        if not vms or draw.random() < 0.5:
            return words.ChangeTopology((), (group,))
        host = Host(f"h{draw.randrange(5)}", fault_domain=draw.randrange(3))
        moved = state.topology.vms[draw.choice(vms)]
        to_group = draw.choice((moved.group, group.name))
        return words.ChangeTopology((host,), (group,), (Vm(moved.name, host.name, to_group),))


def end_all(story: Story) -> None:
    """End all work of a world."""
    for _ in range(ROUNDS_MAX):
        state = story.state
        if not state.operations and not state.aborts:
            return
        endings: list[PlaneStimulus] = [
            *(words.CancelMaintenance(n, "") for n in state.maintenances),
            *(words.DriverAborted(n) for n in state.aborts),
            *(words.Complete(n) for n in state.operations),
            *(words.Cancel(n, "") for n in state.operations),
        ]
        for each in endings:
            try:
                story.tell(each)
            except CallerError:
                continue
    raise AssertionError(f"work goes on: {[*story.state.operations.values()]}")


def play(seed: int, premises: Counter[str]) -> None:
    """Play a world, and compare its figures.

    Raises:
        Violation: they differ.
    """
    work, draw = OwnedWork(seed), random.Random(seed + 2)
    with closing(open_store("sqlite::memory:")) as store:
        story = begin(store)
        for _ in range(STEPS):
            story.now_ms += work.wait_ms()
            for each in work.several(story.state):
                with suppress(CallerError):
                    story.tell(each)
        end_all(story)
        ends_ms = story.now_ms + draw.choice((0, 1, 86_400_000))
        first_ms = draw.choice((START_MS, draw.randrange(START_MS, ends_ms)))
        period = Period(first_ms, ends_ms, ends_ms)
        check_availability(store, story.state, period, premises)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + WORLDS))
def test_figures_are_equal_to_the_millisecond(seed: int) -> None:
    """The service, history and the published procedure have the same figures. Source: T-13."""
    play(seed, Counter())


def test_worlds_disturb_vms() -> None:
    """The comparison is about disturbed VMs. Source: T-13."""
    premises: Counter[str] = Counter()
    play(FIRST, premises)
    play(FIRST + 1, premises)
    assert premises["T-13: an event disturbs a VM"]
