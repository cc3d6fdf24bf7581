"""Agents of the VMs of a real Ray cluster: drains, their deadlines, and a training run."""

import functools
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from forewarn.agent.preparations.ray import REASON
from forewarn_base.clock import SystemClock
from tests.agent.agents import Agent
from tests.agent.making import event
from tests.agent.programs import do, free_port, program, running
from tests.agent.ray_cluster import ROOT, START_S, RayCluster
from tests.agent.service import Service
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

NOTICE_MS = 3_600_000
#: Largest difference of a deadline from NotBefore on a busy machine: three starts of `ray`.
SLOW_MS = 600_000
STEPS = """
[step.ray]
use = "ray"
command = "{command}"
address = "{address}"
node = "{node}"

[[rule]]
type = "Freeze"
duration_s = [0, 9]
action = "approve"
"""
JOBS = """
[step.training]
use = "job"
address = "{listen}"
token_file = "{token}"
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """Run one cluster for all tests of this file."""
    program("ray")
    with ExitStack() as stack:
        short = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray"))
        yield RayCluster(tmp_path_factory.mktemp("ray"), Path(short), stack)


def agent_of(directory: Path, service: Service, steps: str) -> Agent:
    """Return the agent of a VM, in a directory of its own."""
    directory.mkdir()
    return Agent(directory, service.endpoint, agent=steps)


def drains(cluster: RayCluster, node: str) -> str:
    """Return the step that drains a node, and the rule for short freezes."""
    return STEPS.format(command=cluster.command, address=cluster.address, node=node)


def far_ms() -> int:
    """Return a NotBefore that no test reaches, ms since the epoch UTC."""
    return SystemClock().now_ms() + NOTICE_MS


def until_ray(true: Callable[[], object], what: str) -> None:
    """Wait for something that Ray does."""
    wait_until(true, what=what, every_s=1, limit_s=START_S)


def test_every_notice_becomes_a_drain_with_its_deadline(
    cluster: RayCluster, tmp_path: Path
) -> None:
    """Reason, deadline, approval once the node has left, and its return. Source: J-3."""
    types = {"w0": "Reboot", "w1": "Preempt", "w2": "Redeploy", "w3": "Freeze"}
    release, limit_ms = tmp_path / "release", far_ms()
    nodes = {name: cluster.alive(name)["id"] for name in types}  # type: ignore[index]
    for node in nodes.values():
        cluster.nodes(hold=node, until=release)
    until_ray(lambda: all(not node["free"] for node in cluster.nodes()), "busy nodes")
    with ExitStack() as stack:
        services = {name: stack.enter_context(Service()) for name in types}
        for name, service in services.items():
            stack.enter_context(agent_of(tmp_path / name, service, drains(cluster, name)))
            notice = event(
                name.upper(), event_type=types[name], not_before_ms=limit_ms, duration_s=5
            )
            service.show(notice)

        def draining() -> dict[str, int]:
            found = cluster.nodes()
            return {n["name"]: n["deadline_ms"] for n in found if n["deadline_ms"] is not None}

        def approved(name: str) -> bool:
            return services[name].approvals == [name.upper()]

        until_ray(lambda: len(draining()) == 3, "three drains")
        deadlines = draining()
        assert sorted(deadlines) == ["w0", "w1", "w2"]
        for name, deadline_ms in deadlines.items():
            print(f"{name}: Ray's deadline is NotBefore {(deadline_ms - limit_ms) / 1000:+.1f} s")
            assert abs(deadline_ms - limit_ms) <= SLOW_MS
        until_ray(lambda: services["w3"].approvals == ["W3"], "the approval of the short freeze")
        assert [services[name].approvals for name in deadlines] == [[]] * 3
        sooner_ms = SystemClock().now_ms() + NOTICE_MS // 2
        message = f"forewarn: {types['w0']} W0"
        cluster.run(
            *("drain-node", "--node-id", nodes["w0"], "--reason", REASON),
            *("--reason-message", message, "--deadline-remaining-seconds", str(NOTICE_MS // 2000)),
        )
        assert abs(draining()["w0"] - sooner_ms) <= SLOW_MS, "another drain replaces the deadline"
        release.touch()
        for name in deadlines:
            until_ray(functools.partial(approved, name), f"the approval of {name}")
        ends = {node["id"]: node["end"] for node in cluster.nodes()}
        for name in deadlines:
            assert ends[nodes[name]] == f"forewarn: {types[name]} {name.upper()}"
        for name in deadlines:
            services[name].show()
            cluster.start(name)
        assert cluster.alive("w3")["id"] == nodes["w3"]  # type: ignore[index]


def is_in_use(cluster: RayCluster, name: str) -> bool:
    """Return whether a node is in the cluster and is not being drained."""
    node = cluster.alive(name)
    return node is not None and node["deadline_ms"] is None


def test_node_that_is_busy_at_the_deadline_holds_the_event(
    cluster: RayCluster, tmp_path: Path
) -> None:
    """Nobody approves while a task runs; the node leaves once the task has ended. Source: J-3."""
    node, release = cluster.alive("w3"), tmp_path / "release"
    assert node is not None
    cluster.nodes(hold=node["id"], until=release)
    settings = {"command": cluster.command, "address": cluster.address, "node": "w3"}
    seconds = 60
    while is_in_use(cluster, "w3"):  # a busy machine starts no command within a minute
        result = do("ray", "prepare", settings, tmp_path / "state", seconds=seconds)
        assert (result.returncode, "has left" in result.stdout) == (1, False), result.stderr
        seconds *= 2
    assert cluster.alive("w3")
    release.touch()
    until_ray(lambda: cluster.alive("w3") is None, "the end of the node")
    cluster.start("w3")


def test_training_run_continues_at_the_checkpoint_of_the_notice(
    cluster: RayCluster, tmp_path: Path
) -> None:
    """All workers stop at one step, consent once, and start there elsewhere. Source: J-1, J-3."""
    token, listen, log = tmp_path / "token", f"127.0.0.1:{free_port()}", tmp_path / "run"
    token.write_text("between us")
    token.chmod(0o600)
    env = {
        **cluster.env,
        "FOREWARN_JOB_ADDRESS": listen,
        "FOREWARN_JOB_TOKEN_FILE": str(token),
        "STORAGE": str(tmp_path / "storage"),
    }

    def said(pattern: str) -> list[tuple[str, ...]]:
        """Return each line once: the log monitors of all nodes read the same files."""
        return list(dict.fromkeys(re.findall(pattern, log.read_text())))

    starts = r"rank (\d) starts at step (\d+) on node (\w+)"
    stops = r"rank (\d) stopped at step (\d+)"
    with ExitStack() as stack:
        other, service = stack.enter_context(Service()), stack.enter_context(Service())
        rendezvous = f'[jobs]\nlisten = "{listen}"\ntoken_file = "{token}"\n'
        stack.enter_context(agent_of(tmp_path / "other", other, rendezvous))
        example = (cluster.python, str(ROOT / "docs/howto/jobs-ray.py"), "1000000000", "3")
        stack.enter_context(running(*example, log=log, env=env))
        until_ray(lambda: len(said(starts)) == 3, "the start of the run")
        node = next(node for rank, _, node in said(starts) if rank == "0")
        name = next(one["name"] for one in cluster.nodes() if one["id"] == node)
        steps = JOBS.format(listen=listen, token=token) + drains(cluster, name)
        stack.enter_context(agent_of(tmp_path / "vm", service, steps))
        service.show(event(not_before_ms=far_ms()))
        until_ray(lambda: len(said(stops)) == 3, "the stop of the run")
        [step] = {step for _, step in said(stops)}
        until_ray(lambda: len(said(starts)) == 6, "the next start of the run")
        assert {(at, on == node) for _, at, on in said(starts)[3:]} == {(step, False)}
        until_ray(lambda: service.approvals == ["E1"], "the approval")
        assert other.approvals == []
        service.show()
    cluster.start(name)
