"""The Ray preparation against a real cluster where Ray is installed, and against a stand-in."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.agent import stand_in_ray
from tests.agent.programs import do, done, free_port, program, running
from tests.waiting import wait_until

REASON = "DRAIN_NODE_REASON_PREEMPTION"
WORKER = {"node_id": "aa11", "node_name": "w", "node_ip": "127.0.0.1", "state": "ALIVE", "looks": 1}
TASK = """
import sys, time, ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On
address, node, seconds = sys.argv[1:]
ray.init(address=address, log_to_driver=False)
@ray.remote(num_cpus=1, max_retries=0)
def work(seconds):
    time.sleep(seconds)
    return "finished"
task = work.options(scheduling_strategy=On(node, soft=False)).remote(float(seconds))
print("submitted", flush=True)
print(ray.get(task), flush=True)
"""


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


WORKERS = 4
START_S = 300.0  # longest start of a cluster on a busy machine
PATIENT = {
    "RAY_NUM_REDIS_GET_RETRIES": "200",
    "RAY_gcs_rpc_server_connect_timeout_s": "120",
    "RAY_gcs_server_request_timeout_seconds": "300",
    "RAY_raylet_start_wait_time_s": "300",
}
"""Ray's own waits, which are too short on a busy machine."""


class Cluster:
    """A real cluster: a head without processors, and four workers."""

    def __init__(self, directory: Path, short: Path, stack: ExitStack) -> None:
        """Start the head and its workers."""
        self.ray = program("ray")
        self.gcs, dashboard = f"127.0.0.1:{free_port()}", free_port()
        self.api = f"http://127.0.0.1:{dashboard}"
        self.python = str(Path(self.ray).resolve().parent / "python")
        self.env = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ADDRESS": self.gcs, **PATIENT}
        words = ("start", "--block", "--disable-usage-stats", "--object-store-memory=80000000")
        head = (f"--port={self.gcs.rpartition(':')[2]}", f"--dashboard-port={dashboard}")
        more = ("--head", "--num-cpus=0", f"--temp-dir={short}")
        stack.enter_context(
            running(self.ray, *words, *head, *more, log=directory / "head", env=self.env)
        )
        wait_until(lambda: len(self.nodes()) == 1, what="the head", every_s=1, limit_s=START_S)
        for number in range(WORKERS):  # one after the other, as each start is costly
            more = (f"--address={self.gcs}", f"--node-name=w{number}", "--num-cpus=1")
            log = directory / f"w{number}"
            stack.enter_context(running(self.ray, *words, *more, log=log, env=self.env))
            wait_until(
                lambda count=number + 2: len(self.nodes()) == count,  # type: ignore[misc]
                what=f"worker {number}",
                every_s=1,
                limit_s=START_S,
            )

    def nodes(self) -> dict[str, tuple[str, str]]:
        """Return the id and the reason of the end of each node, by its name."""
        command = (self.ray, "list", "nodes", "--format", "json", "--address", self.api)
        output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        nodes = json.loads(output) if output.startswith("[") else []
        return {n["node_name"]: (n["node_id"], n["state_message"] or "") for n in nodes}

    def submit(self, node: str, seconds: float) -> subprocess.Popen[str]:
        """Start a task on a node, and return its driver once the task is submitted."""
        words = (self.python, "-c", TASK, self.gcs, self.nodes()[node][0], str(seconds))
        env = {**os.environ, **self.env}
        driver = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env)
        assert driver.stdout is not None
        assert driver.stdout.readline() == "submitted\n"
        return driver


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run one cluster for all tests of this file."""
    program("ray")
    with ExitStack() as stack:
        short = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray"))  # for its sockets
        yield Cluster(tmp_path_factory.mktemp("ray"), Path(short), stack)


@pytest.mark.slow
def test_real_node_finishes_its_task_and_leaves(cluster: Cluster, tmp_path: Path) -> None:
    """A task that runs at the notice is finished before the VM approves. Source: J-3."""
    settings: dict[str, object] = {"command": cluster.ray, "address": cluster.gcs, "node": "w1"}
    with cluster.submit("w1", 8) as driver:
        said = done("ray", "prepare", settings, tmp_path / "state")
        assert said.endswith("is idle and has left the cluster")
        assert driver.communicate()[0] == "finished\n"
    nodes = cluster.nodes()
    assert nodes["w1"][1] == "Terminated due to preemption: forewarn: Reboot E1"
    assert [nodes[name][1] for name in ("w0", "w2", "w3")] == [""] * 3
    assert done("ray", "prepare", settings, tmp_path / "state") == said


@pytest.mark.slow
def test_real_node_that_is_busy_at_the_deadline_holds_the_event(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Nobody approves while a task runs; Ray ends it at the deadline. Source: J-3."""
    settings: dict[str, object] = {"command": cluster.ray, "address": cluster.gcs, "node": "w2"}
    with cluster.submit("w2", 600) as driver:
        result = do("ray", "prepare", settings, tmp_path / "state", seconds=15)
        assert result.returncode == 1 or "has left" in result.stdout, result.stderr
        wait_until(lambda: cluster.nodes()["w2"][1], what="the node's end", every_s=1)
        driver.communicate()
        assert driver.returncode != 0
