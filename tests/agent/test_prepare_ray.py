"""The Ray preparation against a stand-in for the program `ray`."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from forewarn.agent.preparations import ray as preparation
from forewarn_base.clock import SystemClock
from tests.agent import stand_in_ray
from tests.agent.programs import EVENT, do, done

REASON = "DRAIN_NODE_REASON_PREEMPTION"
WORKER = {"node_id": "aa11", "node_name": "w", "node_ip": "127.0.0.1", "state": "ALIVE", "looks": 1}


class StandIn:
    """A program that speaks as `ray` does, and its cluster."""

    def __init__(self, directory: Path, *nodes: dict[str, object], **cluster: object) -> None:
        """Write the program and its cluster."""
        script = directory / "stand_in_ray.py"
        shutil.copy(str(stand_in_ray.__file__), script)
        self._cluster = script.with_suffix(".json")
        self._cluster.write_text(json.dumps({"nodes": nodes, **cluster}))
        self.command = directory / "ray"
        self.command.write_text(f'#!/bin/sh\nexec {sys.executable} -I {script} "$@"\n')
        self.command.chmod(0o755)
        self.settings: dict[str, object] = {"command": str(self.command)}

    def drains(self) -> list[list[object]]:
        """Return reason, message and remaining seconds of each drain."""
        nodes = json.loads(self._cluster.read_text())["nodes"]
        return [drain for node in nodes for drain in node.get("drained", [])]


def test_drain_has_reason_message_and_remaining_seconds(tmp_path: Path) -> None:
    """The node of this machine is drained with the true deadline, and has left. Source: J-3."""
    elsewhere = {**WORKER, "node_id": "bb22", "node_ip": "203.0.113.9"}
    ray = StandIn(tmp_path, elsewhere, {**WORKER, "looks": 2})
    said = done("ray", "prepare", ray.settings, tmp_path / "state")
    assert said == "Ray node aa11 is idle and has left the cluster"
    [(reason, message, left_s)] = ray.drains()
    assert (reason, message) == (REASON, "forewarn: Reboot E1")
    assert 1 <= int(str(left_s)) <= 58
    assert "starts a new node" in done("ray", "recover", ray.settings, tmp_path / "state")


@pytest.mark.slow
def test_deadline_counts_the_start_of_the_command(tmp_path: Path) -> None:
    """Ray adds the remaining seconds to the time at which its command has started. Source: J-3."""
    ray = StandIn(tmp_path, WORKER, start_s=2)
    done("ray", "prepare", ray.settings, tmp_path / "state")
    [(_, _, left_s)] = ray.drains()
    assert int(str(left_s)) <= 58 - 3 * 2, "two commands have run, and the third must start"


@pytest.mark.slow
def test_late_deadline_is_corrected_by_another_drain(tmp_path: Path) -> None:
    """A drain that starts more slowly than the command before it is repeated. Source: J-3."""
    ray = StandIn(tmp_path, WORKER, drain_start_s=5)
    done("ray", "prepare", ray.settings, tmp_path / "state")
    assert len(ray.drains()) > 1
    assert int(str(ray.drains()[-1][2])) <= 58 - 2 * 5


def test_slow_command_gets_more_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that has no result within its limit has not failed. Source: J-3."""
    monkeypatch.setattr(preparation, "COMMAND_S", 0.1)
    monkeypatch.setenv("FOREWARN_STATE", str(tmp_path))
    monkeypatch.setenv("FOREWARN_DEADLINE", str(SystemClock().now_ms() // 1000 + 600))
    ray = StandIn(tmp_path, WORKER, start_s=0.5)
    assert "has left" in preparation.prepare(ray.settings, {"event": EVENT})


def test_drain_is_asked_for_again_when_the_cluster_does_not_answer(tmp_path: Path) -> None:
    """A head that restarts has refused nothing."""
    ray = StandIn(tmp_path, WORKER, failures=1)
    done("ray", "prepare", ray.settings, tmp_path / "state")
    assert len(ray.drains()) == 1


@pytest.mark.parametrize(
    ("node", "settings", "reason"),
    [
        ({**WORKER, "is_head_node": True}, {}, "the head cannot be drained"),
        (WORKER, {"node": "missing"}, "there is no node missing"),
    ],
    ids=["head", "missing"],
)
def test_drain_fails_when_there_is_no_worker_to_drain(
    node: dict[str, object], settings: dict[str, object], reason: str, tmp_path: Path
) -> None:
    """Nobody approves for a head, which Ray cannot do without, or a wrong name."""
    ray = StandIn(tmp_path, node)
    result = do("ray", "prepare", {**ray.settings, **settings}, tmp_path / "state")
    assert (result.returncode, reason in result.stderr) == (1, True), result.stderr
    assert ray.drains() == []


def test_refused_drain_fails_at_once(tmp_path: Path) -> None:
    """The reason of Ray is the reason of the step."""
    ray = StandIn(tmp_path, WORKER, refuses="node is busy")
    result = do("ray", "prepare", ray.settings, tmp_path / "state")
    assert (result.returncode, "node is busy" in result.stderr) == (1, True), result.stderr


def test_machine_without_a_node_has_nothing_to_drain(tmp_path: Path) -> None:
    """A machine may run Ray only sometimes."""
    ray = StandIn(tmp_path, {**WORKER, "state": "DEAD"})
    said = done("ray", "prepare", ray.settings, tmp_path / "state")
    assert said == "no Ray node runs on this machine"
