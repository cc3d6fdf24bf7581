"""How long events are Started in the emulator, and how long their VMs are interrupted."""

from collections.abc import Callable

import pytest

from emulator_tests.conftest import Stage
from tests.waiting import wait_until


def outcome(stage: Stage) -> dict[str, object]:
    """Return what is reported of the one event that has ended."""
    [only] = stage.api.get("/v1/outcomes")["outcomes"]
    return dict(only)


def test_started_and_interruption_are_two_things(staged: Callable[..., Stage]) -> None:
    """Seven seconds of interruption in ten minutes of Started, as in Azure. Source: D-9, X-1."""
    stage = staged(started_for_s=600)
    stage.api.post("/v1/hosts/host-1/update", {"duration": "7s"})
    stage.approve()
    stage.advance("9m59s")
    assert stage.sees() == ["Freeze Started vm-1 Platform 7"]
    stage.advance("1s")
    assert stage.sees() == []
    ended = outcome(stage)
    assert (ended["lasted_s"], ended["interruption_ms"], ended["duration_s"]) == (600, 7000, 7)


@pytest.mark.parametrize("scenario", ["typical-update", "second-pause"])
def test_scenario_is_started_for_ten_minutes(stage: Stage, scenario: str) -> None:
    """Its client must wait for the end of the event, not of the pause. Source: D-9."""
    stage.run(scenario)
    stage.approve()
    stage.advance("9m")
    assert stage.sees() == ["Freeze Started vm-1 Platform 7"]
    stage.advance("1m")
    assert (stage.sees(), stage.state(scenario)) == ([], "finished")
    ended = outcome(stage)
    assert (ended["lasted_s"], ended["interruption_ms"]) == (600, 7000)


def test_second_pause_is_in_the_history(stage: Stage) -> None:
    """A shorter interruption follows while the event is Started. Source: D-9."""
    stage.run("second-pause")
    stage.approve()
    stage.advance("5m")
    told = "its VMs are interrupted once more, for 2 s"  # by the driver, on a thread of its own
    wait_until(lambda: stage.api.get("/v1/operations")["operations"][0]["progress"] == told)
