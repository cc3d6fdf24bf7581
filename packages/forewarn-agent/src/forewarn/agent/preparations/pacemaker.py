"""Pacemaker: puts the cluster node into standby until no resource runs on it.

A standby set by an operator remains.
"""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ET

from forewarn.agent.preparations import step_state
from forewarn.agent.preparations.http_call import local_host
from forewarn.agent.preparations.wait_until import Unanswered, persist, until
from forewarn_base.errors import PeerError

#: Exit statuses of Pacemaker's tools without an answer of the cluster: it is temporarily not
#: available, not connected, without quorum, or too slow.
UNKNOWN_STATUSES = (75, 102, 106, 124)


class PacemakerFailed(PeerError):
    """A Pacemaker tool failed."""

    code = "pacemaker-failed"
    message = "{command} failed: {reason}."
    advice = "Check `crm_mon -1` and the cluster's log."


def prepare(settings: dict[str, object], _hook: dict[str, object]) -> str:
    """Set the node to standby and wait until its resources have moved."""
    node = _node(settings)
    element = persist(lambda: _node_element(node))
    if element.get("standby") == "true" and not step_state.read().get("standby"):
        return f"another program has already put {node} into standby"
    step_state.write({"standby": node})
    lifetime = str(settings.get("lifetime", "forever"))
    persist(lambda: _run("crm_standby", "-N", node, "-v", "on", "-l", lifetime))
    until(
        lambda: _resources(node) == 0,
        f"all resources have left {node}",
        seconds=float(str(settings.get("wait_s", 0))),
    )
    return f"{node} is in standby, and no resource runs on it"


def recover(settings: dict[str, object], _hook: dict[str, object]) -> str:
    """End a standby of the node that this step has set."""
    node = step_state.read().get("standby")
    if not node:
        return "the standby belongs to another program"
    lifetime = str(settings.get("lifetime", "forever"))
    persist(lambda: _run("crm_standby", "-N", str(node), "-D", "-l", lifetime))
    step_state.clear()
    return f"{node} is online again"


def _node(settings: dict[str, object]) -> str:
    given = str(settings.get("node") or "")
    return given or persist(lambda: _run("crm_node", "-n")).strip() or local_host()


def _node_element(node: str) -> ET.Element:
    text = _run("crm_mon", "-1", "--output-as=xml")
    element = ET.fromstring(text).find(f"./nodes/node[@name='{node}']")  # noqa: S314  see above
    if element is None:
        raise PacemakerFailed(command="crm_mon", reason=f"there is no node {node}")
    return element


def _resources(node: str) -> int:
    return int(_node_element(node).get("resources_running", "0"))


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = done.stderr.strip() or f"status {done.returncode}"
        if done.returncode in UNKNOWN_STATUSES:
            raise Unanswered(service="Pacemaker", reason=reason)
        raise PacemakerFailed(command=" ".join(command), reason=reason)
    return done.stdout
