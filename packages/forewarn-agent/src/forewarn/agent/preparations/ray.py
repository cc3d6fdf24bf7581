"""Ray: drains a node with the event as the reason and the seconds until the deadline.

Ray then starts nothing more on the node, and its libraries see the deadline; the node leaves the
cluster once it is idle. Ray cannot take a drain back: a node returns when its service starts it
again. Source: J-3.
"""

from __future__ import annotations

import json
import subprocess

from forewarn.agent.json_fields import inner
from forewarn.agent.preparations import step_state
from forewarn.agent.preparations.local_address import is_local
from forewarn.agent.preparations.wait_until import Unanswered, persist, seconds_left, until
from forewarn_base.errors import PeerError

COMMAND_S = 60.0  # first limit of a run of `ray`, which imports Ray and connects to the cluster
LOOK_S = 5.0  # pause between looks at the node; each costs a second or more of a processor
LATE_S = 2.0  # by how much Ray's deadline may be later than the event's
DRAINS_MAX = 3  # drains of a node, each with a better estimate of how long its command takes
REASON = "DRAIN_NODE_REASON_PREEMPTION"
#: Parts of messages, in lower case, of commands that fail again when they are repeated.
REFUSED = ("not accepted", "invalid", "no such option", "no such command", "ray version")


class RayFailed(PeerError):
    """A Ray command failed."""

    code = "ray-failed"
    message = "{command} failed: {reason}."
    advice = "Run it by hand as the agent's user; `command` names the program `ray`."


def prepare(settings: dict[str, object], hook: dict[str, object]) -> str:
    """Drain the node, and wait until it has left the cluster."""
    event = inner(hook, "event")
    ray = _Ray(settings)
    node = step_state.read().get("node") or persist(ray.find)
    if not node:
        return "no Ray node runs on this machine"
    node = str(node)
    step_state.write({"node": node})
    message = f"forewarn: {event['event_type']} {event['event_id']}"
    persist(lambda: ray.drain(node, message))
    left = f"Ray node {node[:12]} is idle and has left"
    until(lambda: not ray.is_alive(node), left, every_s=LOOK_S)
    return f"Ray node {node[:12]} is idle and has left the cluster"


def recover(_settings: dict[str, object], _hook: dict[str, object]) -> str:
    """Forget the drain: the machine's service starts a new node."""
    node = step_state.read().get("node")
    step_state.clear()
    return "the service of Ray starts a new node" if node else "nothing was prepared"


class _Ray:
    """The program `ray` for one cluster."""

    def __init__(self, settings: dict[str, object]) -> None:
        address = settings.get("address")
        self._where = ("--address", str(address)) if address else ()
        self._command = str(settings.get("command") or "ray")
        self._wanted = str(settings.get("node") or "")
        self._limit_s = COMMAND_S

    def find(self) -> str:
        """Return the id of this machine's node, or of the node in the settings; empty without one.

        Raises:
            RayFailed: the node is not in the cluster, or is the head, without which no cluster is.
        """
        wanted = self._wanted
        for node in self._nodes():
            names = (node.get("node_id"), node.get("node_name"), node.get("node_ip"))
            if node.get("state") != "ALIVE":
                continue
            if wanted in names if wanted else is_local(str(node.get("node_ip"))):
                if node.get("is_head_node"):
                    raise RayFailed(command="ray drain-node", reason="the head cannot be drained")
                return str(node["node_id"])
        if wanted:
            raise RayFailed(command="ray list nodes", reason=f"there is no node {wanted}")
        return ""

    def drain(self, node: str, message: str) -> None:
        """Drain the node; a node that has left already is drained.

        Ray counts the remaining seconds from when its command has started, which at first is
        assumed to take as long as the command before. If it takes longer, Ray's deadline is too
        late, and another drain corrects it.
        """
        before_s = seconds_left()
        if not self.is_alive(node):
            return
        start_s = before_s - seconds_left()
        words = ("--node-id", node, "--reason", REASON, "--reason-message", message)
        for _ in range(DRAINS_MAX):
            before_s = seconds_left()
            left_s = str(max(1, int(before_s - start_s)))
            self._run("drain-node", *words, "--deadline-remaining-seconds", left_s)
            took_s = before_s - seconds_left()
            if took_s <= start_s + LATE_S:
                return
            start_s = took_s

    def is_alive(self, node: str) -> bool:
        """Return whether a node is in the cluster."""
        return any(
            one.get("node_id") == node and one.get("state") == "ALIVE" for one in self._nodes()
        )

    def _nodes(self) -> list[dict[str, object]]:
        output = self._run("list", "nodes", "--format", "json", "--limit", "10000")
        try:
            nodes = json.loads(output[output.index("[") :])
        except ValueError as error:
            raise Unanswered(service="Ray", reason=output.strip()[:300] or "no list") from error
        return [node for node in nodes if isinstance(node, dict)]

    def _run(self, *words: str) -> str:
        """Run a command and return its output.

        A command that exceeds its limit may need longer on a busy machine, or hang; the next one
        has twice the time.

        Raises:
            Unanswered: the cluster does not answer.
            RayFailed: the command is refused, or is not installed.
        """
        command = (self._command, *words, *self._where)
        limit_s = max(1.0, min(self._limit_s, seconds_left()))
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=limit_s
            )
        except subprocess.TimeoutExpired as error:
            self._limit_s *= 2
            raise Unanswered(service="Ray", reason=f"no result after {limit_s:.0f} s") from error
        except OSError as error:
            raise RayFailed(command=command[0], reason="the program cannot be started") from error
        if done.returncode == 0:
            return done.stdout
        lines = done.stderr.strip().splitlines()
        reason = lines[-1][:300] if lines else f"status {done.returncode}"
        if any(part in done.stderr.lower() for part in REFUSED):
            raise RayFailed(command=" ".join(("ray", *words[:2])), reason=reason)
        raise Unanswered(service="Ray", reason=reason)
