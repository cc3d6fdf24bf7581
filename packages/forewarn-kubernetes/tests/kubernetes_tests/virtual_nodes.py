"""Nodes in virtual time: agents, the control plane's follower, and a simulated API server.

The agents' engines, their job for the node, and the control plane's notices are the product's own.
Some nodes are VMs, each with an agent that drains it; the others are hosts.
"""

import contextlib
import io
import json
import random
import socket
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
from forewarn_base.errors import ForewarnError
from forewarn_base.protocol.documents import Document, ScheduledEvent
from forewarn_base.protocol.timestamps import iso8601
from forewarn_kubernetes import host_notices
from forewarn_kubernetes.config import KubernetesConfig
from forewarn_kubernetes.host_notices import HostNotices
from kubernetes_tests.test_host_notices import operation
from tests.agent.making import NOW, rule
from tests.clock import VirtualClock
from tests.kubernetes.small_cluster import Cluster, direct_socket, node_status

NODES, LEASES = "/api/v1/nodes", "/apis/coordination.k8s.io/v1/namespaces/forewarn/leases"
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
        self._incarnation = 0
        self._shown: tuple[ScheduledEvent, ...] = ()
        #: Key -> the hook that runs, and its end, ms since the epoch.
        self.hooks: dict[str, tuple[HookIntent, int]] = {}
        self._statuses: dict[int, int] = {}
        self.drained = False
        self._core = AgentCore(Identity(vm), self._rules)
        self._node = NodeConditions(self._settings)

    def restart(self) -> None:
        """Start again with what the killed process has written, which it does at each step."""
        journal = json.loads(json.dumps(self._core.journal()))
        self._core = AgentCore(Identity(self._vm), self._rules, journal=journal)
        self._node = NodeConditions(self._settings)
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
            work = world.work.get(self._vm)
            shown = () if work is None else (work.event(),)
            if shown != self._shown:
                self._shown, self._incarnation = shown, self._incarnation + 1
            self._give(DocumentPolled(Document(self._incarnation, shown)))
        self._give(TimePassed())
        now_ms = world.clock.now_ms()
        job = self._node.job(self._core, Identity(self._vm), now_ms)
        if job is None:
            return
        try:
            with contextlib.redirect_stdout(io.StringIO()):
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
                accepted = self._world.approve(self._vm, intent.event.event_id)
                self._give(ApprovalEnded(intent.event.event_id, accepted=accepted))


class World:
    """A cluster of hosts and VMs, a service, its follower and the agents."""

    def __init__(
        self, cluster: Cluster, config: KubernetesConfig, seed: int, *, hosts: int, vms: int
    ) -> None:
        """Start everything."""
        names = [f"v{number}" for number in range(1, vms + 1)]
        self.nodes = (*(f"h{number}" for number in range(1, hosts + 1)), *names)
        self.clock, self.dice = VirtualClock(NOW), random.Random(seed)
        self.cluster, self._config = cluster, config
        #: Node -> its work.
        self.work: dict[str, Work] = {}
        self.begun = self.kills = 0
        #: Program -> the tick at which it is back.
        self._down: dict[str, int] = {}
        self._tick = 0
        self.longest_ms = 0
        self._wrong_since_ms: dict[str, int] = {}
        for name in self.nodes:
            cluster.put(f"{NODES}/{name}", status=node_status("boot-1"))
        settings: dict[str, object] = {
            "server": config.server,
            "token_file": config.token_file,
            "ca_file": "",
        }
        self.agents = {vm: NodeAgent(self, vm, settings) for vm in names}
        self._follower = HostNotices(config, "k", self.clock)

    def is_up(self, program: str) -> bool:
        """Return whether a program runs."""
        return self._down.get(program, 0) <= self._tick

    def approve(self, vm: str, event_id: str) -> bool:
        """Approve a VM's event; return whether the service has answered."""
        work = self.work.get(vm)
        if work is not None and work.id == event_id and self.is_up("service"):
            work.approved = True
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
        for each in list(self.work.values()):
            if each.ends_ms and each.ends_ms <= now_ms:
                del self.work[each.node]
            elif not each.ends_ms and (each.approved or each.starts_ms <= now_ms):
                each.ends_ms = now_ms + each.lasts_ms
        for node in self.nodes:
            if begins and node not in self.work and self.dice.random() < 0.1:
                self.begin(node)

    def begin(self, node: str) -> None:
        """Announce work on a node."""
        self.begun += 1
        self.work[node] = Work(self.begun, node, self.clock.now_ms(), self.dice)

    def _kill(self) -> None:
        """Kill a program for a while; answers that are on their way to it are lost."""
        programs = ("API server", "service", "follower", *(f"agent of {vm}" for vm in self.agents))
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
            agent.restart()
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
            for each in self.work.values()
            if each.node not in self.agents
        ]
        with contextlib.suppress(ForewarnError):  # the next turn repeats it
            self._follower.turn(live)

    def expected(self, node: str) -> set[str]:
        """Return the conditions that a node should have."""
        work = self.work.get(node)
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
        for node in self.nodes:
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
                for name in self.nodes
                if self.shown(name)
                or self.cluster.node(name)["metadata"].get("annotations")
                or self.cluster.node(name).get("spec", {}).get("unschedulable")
            ]
            leases = [path for path in self.cluster.objects if path.startswith(LEASES)]
            return marks + [path for path in leases if "agent" in path]


def virtual_nodes(
    directory: Path, monkeypatch: pytest.MonkeyPatch, seed: int, *, hosts: int, vms: int
) -> World:
    """Return nodes whose API server answers in the same thread, without a network."""
    cluster = Cluster()
    cluster.objects.clear()
    cluster.page_objects = 500
    cluster.plays = False
    (directory / "token").write_text("right\n")
    monkeypatch.setattr(socket, "socket", direct_socket(cluster))
    monkeypatch.setattr(host_notices, "WRITERS_MAX", 1)
    config = KubernetesConfig("http://127.0.0.1", str(directory / "token"), "")
    world = World(cluster, config, seed, hosts=hosts, vms=vms)
    monkeypatch.setattr(node_job, "SystemClock", lambda: world.clock)
    return world
