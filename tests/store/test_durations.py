"""Samples of durations: durable with their commit, loaded at a start, bounded."""

from collections.abc import Callable

from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.state import Changes
from forewarn_core.planning.durations import SAMPLES_MAX, DurationSample
from forewarn_store import Store
from tests.store.story import begin


def test_samples_survive_a_restart(address: str, opened: Callable[[str], Store]) -> None:
    """The state that is loaded plans by the same samples. Source: F-9."""
    story = begin(opened(address))
    number = story.reboot("h0")
    samples = story.state.samples_of(Cause.HOST_REBOOT)
    assert [each.operation for each in samples] == [number]
    story.store.close()
    assert opened(address).load().samples_of(Cause.HOST_REBOOT) == samples


def test_oldest_samples_are_deleted(address: str, opened: Callable[[str], Store]) -> None:
    """Beyond the limit of each kind alone. Source: F-9."""
    story = begin(opened(address))
    many = [DurationSample(n, ("zone=",), n) for n in range(100, 102 + SAMPLES_MAX)]
    update = DurationSample(7, ("zone=",), 7)
    durations = [(Cause.HOST_REBOOT, each) for each in many[2:]]
    last_number = story.state.last_number
    story.store.commit(
        Changes(last_number=last_number, durations=[(Cause.HOST_UPDATE, update), *durations])
    )
    assert story.store.trim_durations() == 0
    older = [(Cause.HOST_REBOOT, each) for each in many[:2]]
    story.store.commit(Changes(last_number=last_number, durations=older))
    assert story.store.trim_durations() == 2
    story.store.close()
    state = opened(address).load()
    assert state.samples_of(Cause.HOST_REBOOT) == tuple(many[2:])
    assert state.samples_of(Cause.HOST_UPDATE) == (update,)
