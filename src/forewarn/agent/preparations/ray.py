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
from forewarn.errors import PeerError

COMMAND_S = 60.0  # longest run of `ray`, which imports Ray and connects to the cluster
LOOK_S = 5.0  # pause between looks at the node; each costs a second or more of a processor
REASON = "DRAIN_NODE_REASON_PREEMPTION"
REFUSED = ("not accepted", "invalid", "no such option", "no such command", "ray version")
"""Parts of messages, in lower case, of commands that fail again when they are repeated."""


class RayFailed(PeerError):
    """A Ray command failed."""

    code = "ray-failed"
    message = "{command} failed: {reason}."
    advice = "Run it by hand as the agent's user; `command` names the program `ray`."


def prepare(settings: dict[str, object], hook: dict[str, object]) -> str:
    """Drain the node, and wait until it has left the cluster."""
    event = inner(hook, "event")
    node = step_state.read().get("node") or persist(lambda: _find(settings))
    if not node:
        return "no Ray node runs on this machine"
    node = str(node)
    step_state.write({"node": node})
    message = f"forewarn: {event['event_type']} {event['event_id']}"
    persist(lambda: _drain(settings, node, message))
    left = f"Ray node {node[:12]} is idle and has left"
    until(lambda: not _is_alive(settings, node), left, every_s=LOOK_S)
    return f"Ray node {node[:12]} is idle and has left the cluster"


def recover(_settings: dict[str, object], _hook: dict[str, object]) -> str:
    """Forget the drain: the machine's service starts a new node."""
    node = step_state.read().get("node")
    step_state.clear()
    return "the service of Ray starts a new node" if node else "nothing was prepared"


def _find(settings: dict[str, object]) -> str:
    """Return the id of this machine's node, or of the node in the settings; empty without one.

    Raises:
        RayFailed: the node is not in the cluster, or is the head, without which no cluster is.
    """
    wanted = str(settings.get("node") or "")
    for node in _nodes(settings):
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


def _drain(settings: dict[str, object], node: str, message: str) -> None:
    """Drain the node; a node that has left already is drained.

    Ray counts the remaining seconds from when its command has started, which takes as long as that
    of the command before.
    """
    before_s = seconds_left()
    if not _is_alive(settings, node):
        return
    start_s = before_s - seconds_left()
    left_s = max(1, int(seconds_left() - start_s))
    words = ("--node-id", node, "--reason", REASON, "--reason-message", message)
    _run(settings, "drain-node", *words, "--deadline-remaining-seconds", str(left_s))


def _is_alive(settings: dict[str, object], node: str) -> bool:
    return any(
        one.get("node_id") == node and one.get("state") == "ALIVE" for one in _nodes(settings)
    )


def _nodes(settings: dict[str, object]) -> list[dict[str, object]]:
    output = _run(settings, "list", "nodes", "--format", "json", "--limit", "10000")
    try:
        nodes = json.loads(output[output.index("[") :])
    except ValueError as error:
        raise Unanswered(service="Ray", reason=output.strip()[:300] or "no list") from error
    return [node for node in nodes if isinstance(node, dict)]


def _run(settings: dict[str, object], *words: str) -> str:
    """Run a command of Ray and return its output.

    Raises:
        Unanswered: the cluster does not answer.
        RayFailed: the command is refused, or is not installed.
    """
    address = settings.get("address")
    where = ("--address", str(address)) if address else ()
    command = (str(settings.get("command") or "ray"), *words, *where)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=COMMAND_S
        )
    except subprocess.TimeoutExpired as error:
        raise Unanswered(service="Ray", reason="the command takes too long") from error
    except OSError as error:
        raise RayFailed(command=command[0], reason="the program cannot be started") from error
    if done.returncode == 0:
        return done.stdout
    lines = done.stderr.strip().splitlines()
    reason = lines[-1][:300] if lines else f"status {done.returncode}"
    if any(part in done.stderr.lower() for part in REFUSED):
        raise RayFailed(command=" ".join(("ray", *words[:2])), reason=reason)
    raise Unanswered(service="Ray", reason=reason)
