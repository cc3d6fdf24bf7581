"""Random work on nodes in virtual time, while agents, services and the API server fail.

The API server is simulated; the agents' engines, their job for the node, and the control plane's
notices are the product's own. Four nodes are VMs, each with an agent that drains it; the others
are hosts.
`SEED=2 pytest -s -m nightly FILE`, with the path of this file, runs 10,000 others; `LIFECYCLES=N`
runs as many.
"""

import contextlib
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.agent import node_job
from forewarn.agent.core.agent_core import AgentCore
from forewarn.agent.core.identity import Identity
from forewarn.agent.core.rules import PreparationStep, Rule
from forewarn.agent.core.values import (
    ApprovalEnded,
    ApproveIntent,
    DocumentPolled,
    HookEnded,
    HookIntent,
    PrepareIntent,
    Resumed,
    Stimulus,
    StopIntent,
    TimePassed,
)
from forewarn.agent.node_conditions import NodeConditions
from forewarn.errors import ForewarnError
from forewarn.protocol.documents import Document, ScheduledEvent
from forewarn.protocol.timestamps import iso8601
from forewarn_kubernetes.config import KubernetesConfig
from forewarn_kubernetes.host_notices import HostNotices
from kubernetes_tests.test_host_notices import operation
from tests.agent.making import NOW, rule
from tests.clock import VirtualClock
from tests.kubernetes.small_cluster import Cluster, node_status, served

SEED = int(os.environ.get("SEED", "1"))
COUNT = int(os.environ.get("LIFECYCLES", "10000"))
NODES, LEASES = "/api/v1/nodes", "/apis/coordination.k8s.io/v1/namespaces/forewarn/leases"
HOSTS, VMS = ("h1", "h2", "h3", "h4"), ("v1", "v2", "v3", "v4")
#: Interval of the agents' polls; the control plane's turns are five of these apart.
TICK_MS = 2_000
TURN_TICKS = 5
DOWN_TICKS_MAX = 40
#: Longest that a node may be wrong once everything is back. Source: K-1.
WRONG_MS_MAX = 30_000
DRAIN = PreparationStep(
    "node", repeatable=True, timeout_s=120, spec='{"use":"kubernetes","settings":{}}'
)
TYPES = ("MaintenancePlanned", "MaintenanceInProgress", "DrainInProgress", "Drained")


class Work:
    """One piece of work on a node, from its announcement to its end."""

    def __init__(self, number: int, node: str, now_ms: int, dice: random.Random) -> None:
        """Announce it."""
        self.id, self.node = f"op-{number}", node
        self.starts_ms = now_ms - now_ms % 1000 + dice.randrange(10, 300) * 1000
        self.lasts_ms = dice.randrange(2, 200) * 1000
        self.ends_ms = 0
        self.approved = False

    @property
    def state(self) -> str:
        """The state of the operation."""
        return "running" if self.ends_ms else "announced"

    def event(self) -> ScheduledEvent:
        """Return the event in the VM's document."""
        return ScheduledEvent(
            event_id=self.id,
            event_type="Reboot",
            resources=(self.node,),
            status="Started" if self.ends_ms else "Scheduled",
            not_before_ms=None if self.ends_ms else self.starts_ms,
        )


class NodeAgent:
    """An agent with its journal on disk, and the drain that outlives a crash of the agent."""

    def __init__(self, world: "World", vm: str, settings: dict[str, object]) -> None:
        """Start for the first time."""
        self._world, self._vm = world, vm
        self._settings = {**settings, "node": vm, "namespace": "forewarn"}
        self._rules: tuple[Rule, ...] = (rule((DRAIN,)),)
        self._disk = ""
        self._incarnation = 0
        self._shown: tuple[ScheduledEvent, ...] = ()
        #: Key -> the hook that runs, and its end, ms since the epoch.
        self.hooks: dict[str, tuple[HookIntent, int]] = {}
        self._statuses: dict[int, int] = {}
        self.drained = False
        self.start()

    def start(self) -> None:
        """Start with what an earlier process has written."""
        journal = json.loads(self._disk) if self._disk else None
        self._core = AgentCore(Identity(self._vm), self._rules, journal=journal)
        self._node = NodeConditions(self._settings)
        if journal:
            self._give(Resumed({key: self._found(key, run) for key, run in self._runs()}))

    def _runs(self) -> list[tuple[str, int]]:
        return list(self._core.running().items())

    def _found(self, key: str, run: int) -> str:
        if key in self.hooks and self.hooks[key][0].run == run:
            return "running"
        return str(self._statuses[run]) if run in self._statuses else "never"

    def tick(self) -> None:
        """Poll the document if there is one, see hooks end, and write the node when that is due."""
        world = self._world
        for key, run in self._runs():
            if run in self._statuses:
                self._give(HookEnded(key, self._statuses[run]))
        if world.is_up("service"):
            shown = tuple(each.event() for each in world.work if each.node == self._vm)
            if shown != self._shown:
                self._shown, self._incarnation = shown, self._incarnation + 1
            self._give(DocumentPolled(Document(self._incarnation, shown)))
        self._give(TimePassed())
        now_ms = world.clock.now_ms()
        job = self._node.job(self._core, Identity(self._vm), now_ms)
        if job is None:
            return
        try:
            node_job.main(json.loads(json.dumps(job)))
        except (ForewarnError, OSError):
            self._node.ended(failed=True, now_ms=now_ms)
        else:
            self._node.ended(failed=False, now_ms=now_ms)

    def hooks_go_on(self) -> None:
        """End hooks whose time has come, whether the agent runs or not."""
        ended = [key for key, (_, at) in self.hooks.items() if at <= self._world.clock.now_ms()]
        for key in ended:
            hook, _ = self.hooks.pop(key)
            self._statuses[hook.run] = 0
            self.drained = isinstance(hook, PrepareIntent)
            if not self.drained:
                self._world.cordon(self._vm, cordoned=False)

    def _give(self, stimulus: Stimulus) -> None:
        intents = self._core.step(stimulus, self._world.clock.now_ms())
        self._disk = json.dumps(self._core.journal())
        for intent in intents:
            if isinstance(intent, HookIntent):
                seconds = self._world.dice.randrange(1, 60)
                until_ms = self._world.clock.now_ms() + seconds * 1000
                self.hooks[intent.key] = intent, until_ms
                if isinstance(intent, PrepareIntent):
                    self._world.cordon(self._vm, cordoned=True)
            elif isinstance(intent, StopIntent) and intent.key in self.hooks:
                hook, _ = self.hooks.pop(intent.key)
                self._statuses[hook.run] = -9
            elif isinstance(intent, ApproveIntent):
                accepted = self._world.approve(intent.event.event_id)
                self._give(ApprovalEnded(intent.event.event_id, accepted=accepted))


class World:
    """A cluster of hosts and VMs, a service, its follower and the agents."""

    def __init__(self, cluster: Cluster, config: KubernetesConfig, seed: int) -> None:
        """Start everything."""
        self.clock, self.dice = VirtualClock(NOW), random.Random(seed)
        self.cluster, self._config = cluster, config
        self.work: list[Work] = []
        self.begun = self.kills = 0
        #: Program -> the tick at which it is back.
        self._down: dict[str, int] = {}
        self._tick = 0
        self.longest_ms = 0
        self._wrong_since_ms: dict[str, int] = {}
        for name in (*HOSTS, *VMS):
            cluster.put(f"{NODES}/{name}", status=node_status("boot-1"))
        settings: dict[str, object] = {
            "server": config.server,
            "token_file": config.token_file,
            "ca_file": "",
        }
        self.agents = {vm: NodeAgent(self, vm, settings) for vm in VMS}
        self._follower = HostNotices(config, "k", self.clock)

    def is_up(self, program: str) -> bool:
        """Return whether a program runs."""
        return self._down.get(program, 0) <= self._tick

    def approve(self, event_id: str) -> bool:
        """Approve an event; return whether the service has answered."""
        for each in self.work:
            if each.id == event_id and self.is_up("service"):
                each.approved = True
        return self.is_up("service")

    def cordon(self, node: str, *, cordoned: bool) -> None:
        """Cordon a node, or uncordon it."""
        with self.cluster.lock:
            form = self.cluster.node(node)
            self.cluster.put(f"{NODES}/{node}", **{**form, "spec": {"unschedulable": cordoned}})

    def tick(self, *, kills: bool, begins: bool) -> None:
        """Let two seconds pass."""
        self._tick += 1
        self.clock.advance(TICK_MS)
        if kills and self.dice.random() < 0.02:
            self._kill()
        self.cluster.away = not self.is_up("API server")
        if self.is_up("service"):
            self._go_on(begins=begins)
        for vm, agent in self.agents.items():
            agent.hooks_go_on()
            if self.is_up(f"agent of {vm}"):
                agent.tick()
        if self._tick % TURN_TICKS == 0 and self.is_up("service") and self.is_up("follower"):
            self._follow()
        self.cluster.log.clear()
        self._judge()

    def _go_on(self, *, begins: bool) -> None:
        """Start and end work, and announce some."""
        now_ms = self.clock.now_ms()
        for each in list(self.work):
            if each.ends_ms and each.ends_ms <= now_ms:
                self.work.remove(each)
            elif not each.ends_ms and (each.approved or each.starts_ms <= now_ms):
                each.ends_ms = now_ms + each.lasts_ms
        busy = {each.node for each in self.work}
        for node in (*HOSTS, *VMS):
            if begins and node not in busy and self.dice.random() < 0.1:
                self.begun += 1
                self.work.append(Work(self.begun, node, now_ms, self.dice))

    def _kill(self) -> None:
        """Kill a program for a while; answers that are on their way to it are lost."""
        programs = ("API server", "service", "follower", *(f"agent of {vm}" for vm in VMS))
        name = self.dice.choice(programs)
        self._down[name] = self._tick + self.dice.randrange(1, DOWN_TICKS_MAX)
        self.kills += 1
        if name == "follower":
            self.cluster.lost = self.dice.randrange(4)
            self._follow()
            self._follower = HostNotices(self._config, "k", self.clock)
        elif name.startswith("agent"):
            agent = self.agents[name.removeprefix("agent of ")]
            self.cluster.lost = self.dice.randrange(4)
            agent.tick()
            agent.start()
        self.cluster.lost = 0

    def _follow(self) -> None:
        """Write the nodes of the hosts, as far as the API server answers."""
        live = [
            operation(
                each.node,
                each.state,
                id=each.id,
                not_before=None if each.ends_ms else iso8601(each.starts_ms),
                duration_s=each.lasts_ms // 1000,
            )
            for each in self.work
            if each.node in HOSTS
        ]
        with contextlib.suppress(ForewarnError):  # the next turn repeats it
            self._follower.turn(live)

    def expected(self, node: str) -> set[str]:
        """Return the conditions that a node should have."""
        work = next((each for each in self.work if each.node == node), None)
        if work is None:
            return set()
        types = {"MaintenanceInProgress" if work.ends_ms else "MaintenancePlanned"}
        agent = self.agents.get(node)
        if agent is not None and any(isinstance(h, PrepareIntent) for h, _ in agent.hooks.values()):
            types.add("DrainInProgress")
        elif agent is not None and agent.drained and not agent.hooks:
            types.add("Drained")
        return types

    def shown(self, node: str) -> set[str]:
        """Return the conditions that a node has."""
        with self.cluster.lock:
            conditions = self.cluster.node(node)["status"]["conditions"]
            return {each["type"] for each in conditions if each["status"] == "True"} & set(TYPES)

    def _judge(self) -> None:
        """Fail if a node has been wrong for too long since everything has been back."""
        now_ms = self.clock.now_ms()
        if any(back > self._tick for back in self._down.values()):
            self._wrong_since_ms.clear()
            return
        for node in (*HOSTS, *VMS):
            if self.shown(node) == self.expected(node):
                self._wrong_since_ms.pop(node, None)
                continue
            wrong_ms = now_ms - self._wrong_since_ms.setdefault(node, now_ms)
            self.longest_ms = max(self.longest_ms, wrong_ms)
            facts = (node, self.shown(node), self.expected(node), self.begun)
            assert wrong_ms <= WRONG_MS_MAX, facts

    def left(self) -> list[str]:
        """Return what is left on nodes, and the Leases of writers."""
        with self.cluster.lock:
            marks = [
                name
                for name in (*HOSTS, *VMS)
                if self.shown(name)
                or self.cluster.node(name)["metadata"].get("annotations")
                or self.cluster.node(name).get("spec", {}).get("unschedulable")
            ]
            leases = [path for path in self.cluster.objects if path.startswith(LEASES)]
            return marks + [path for path in leases if "agent" in path]


@pytest.fixture
def cluster() -> Cluster:
    """Give an empty cluster."""
    made = Cluster()
    made.page_objects = 100
    return made


@pytest.fixture
def config(cluster: Cluster, tmp_path: Path) -> Iterator[KubernetesConfig]:
    """Serve the cluster."""
    (tmp_path / "token").write_text("right\n")
    with served(cluster) as url:
        yield KubernetesConfig(url, str(tmp_path / "token"), "")


@pytest.mark.slow
@pytest.mark.parametrize("count", [100, pytest.param(COUNT, marks=pytest.mark.nightly)])
def test_nodes_are_right_within_30_virtual_seconds(
    count: int, cluster: Cluster, config: KubernetesConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is wrong for longer once everything is back, and nothing is left. Source: K-1."""
    world = World(cluster, config, SEED)
    monkeypatch.setattr(node_job, "SystemClock", lambda: world.clock)
    while world.begun < count:
        world.tick(kills=True, begins=True)
    while world.work or not all(map(world.is_up, ("API server", "service", "follower"))):
        world.tick(kills=False, begins=False)
    for _ in range(DOWN_TICKS_MAX + 2 * TURN_TICKS + 60 // (TICK_MS // 1000)):
        world.tick(kills=False, begins=False)
    assert world.left() == []
    print(f"{world.begun} lifecycles, {world.kills} kills: wrong for {world.longest_ms / 1000} s")
