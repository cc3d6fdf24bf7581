"""What a scenario leaves in the store when the emulator is killed, and the next start.

A kill is a copy of the store as it was at that moment; one test really kills.
"""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from forewarn.emulator.scenario_files import shipped
from tests.emulator.asking import Start, started
from tests.emulator.conftest import Stage

Staged = Callable[..., Stage]


@pytest.fixture
def killed(staged: Staged, tmp_path: Path) -> Callable[[Stage], Stage]:
    """Start again on what a kill of this emulator would have left on the disk."""

    def start_again(stage: Stage) -> Stage:
        left = tmp_path / "left.db"
        with (
            closing(sqlite3.connect(tmp_path / "store.db")) as now,
            closing(sqlite3.connect(left)) as copy,
        ):
            now.backup(copy)
        return staged(store=str(left))

    return start_again


@pytest.fixture
def stage(staged: Staged, tmp_path: Path) -> Stage:
    """An emulator whose state is in a file."""
    return staged(store=str(tmp_path / "store.db"))


LATER = (("host-lost", "6m"), ("hardware-failure", "16m"), ("spot-preemption", "16m"))


@pytest.mark.parametrize(
    ("scenario", "after"), [*((name, "31s") for name in sorted(shipped())), *LATER]
)
def test_fleet_is_what_it_was(
    stage: Stage, killed: Callable[[Stage], Stage], scenario: str, after: str
) -> None:
    """When a scenario is cut off, its machines and its work are gone with the next start."""
    before, policy = stage.fleet(), stage.api.get("/v1/policy")
    stage.run(scenario)
    stage.advance(after)
    again = killed(stage)
    assert again.fleet() == before
    assert again.api.get("/v1/policy") == policy
    assert again.api.get("/v1/maintenances?live=true")["maintenances"] == []
    assert again.api.get("/v1/operations?live=true")["operations"] == []
    assert {host["health"] for host in again.api.get("/v1/hosts")["hosts"]} == {"healthy"}
    again.run(scenario)
    assert again.state(scenario) == "running"


def test_operators_work_stays(stage: Stage, killed: Callable[[Stage], Stage]) -> None:
    """What operators did before and meanwhile, also to a scenario's machines, is theirs."""
    stage.api.put("/v1/hosts/h9", {})
    stage.api.put("/v1/vms/v8", {"host": "h9", "group": "group-1", "spot": True})
    stage.api.put("/v1/vms/v9", {"host": "h9", "group": "group-1"})
    stage.api.post("/v1/vms/v8/evict", {"duration": "5s"})
    stage.advance("40s")
    stage.api.post("/v1/hosts/h9/fail")
    stage.run("host-lost")
    stage.api.put("/v1/hosts/spare-host", {"zone": "mine"})
    left = stage.fleet()
    again = killed(stage)
    assert again.fleet() == left
    health = {host["name"]: host["health"] for host in again.api.get("/v1/hosts")["hosts"]}
    assert health == {"host-1": "healthy", "h9": "failed", "spare-host": "healthy"}
    live = again.api.get("/v1/operations?live=true")["operations"]
    assert [each["cause"] for each in live] == ["hardware-failure"]


def test_what_is_in_use_stays(
    stage: Stage, killed: Callable[[Stage], Stage], caplog: pytest.LogCaptureFixture
) -> None:
    """A machine of a scenario that somebody has put a VM on stays, and that is told."""
    stage.run("host-lost")
    stage.api.put("/v1/vms/mine", {"host": "spare-host", "group": "group-1"})
    left = stage.fleet()
    assert killed(stage).fleet() == left
    assert "spare-host" in caplog.text


def test_calm_end_leaves_nothing(stage: Stage, killed: Callable[[Stage], Stage]) -> None:
    """A scenario that was over is none of the next start's business."""
    stage.run("host-update")
    stage.advance("30m")
    again = killed(stage)
    assert again.emulator.emulator.taken_back == ()


def test_cut_off_is_told(process: Start, tmp_path: Path) -> None:
    """Whoever starts the emulator again after a kill reads what is gone."""
    store = ("--store", str(tmp_path / "store.db"))
    emulator, _, _ = started(process, *store, "--scenario", "shared-host")
    emulator.read_until("sees incarnation 1")
    emulator.end(signal.SIGKILL)
    emulator, _, api = started(process, *store)
    emulator.read_until("scenario shared-host was cut off with a former run")
    assert [vm["name"] for vm in api.get("/v1/vms")["vms"]] == ["vm-1"]
    assert emulator.end() == (0, "")
