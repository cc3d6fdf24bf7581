"""Drain request: asks another project in the cluster to drain this node, and clears the request.

NVSentinel takes a `MaintenanceRequest`: created, it drains the node; deleted, it returns the node.
NVIDIA's maintenance operator takes a `NodeMaintenance` in the same way. Source: K-5.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from forewarn.agent.json_fields import inner
from forewarn.agent.preparations import step_state
from forewarn.agent.preparations.http_call import Called, expect
from forewarn.agent.preparations.kubernetes import ask, node_name, node_path
from forewarn.agent.preparations.wait_until import persist, seconds_left, until
from forewarn_base.errors import PeerError

NVSENTINEL, OPERATOR = "nvsentinel", "maintenance-operator"
REQUESTOR = "forewarn.io"
STATE_LABEL = "dgxc.nvidia.com/nvsentinel-state"
EMITTED = "HealthEventEmitted"  # condition: NVSentinel has taken the request on
NAMESPACE = "default"
#: Annotation: the operator otherwise deletes a request that has been ready for 1,600 s.
KEPT = "maintenance.nvidia.com/garbage-collector.ignore"


class DrainFailed(PeerError):
    """The other project could not drain the node."""

    code = "drain-failed"
    message = "{project} could not drain node {node}."
    advice = "See the pods that are left on the node, and the log of {project}."


def prepare(settings: dict[str, object], hook: dict[str, object]) -> str:
    """Create the request, and wait until the node is drained."""
    node, name = node_name(settings), _name(settings, hook)
    step_state.write({"name": name})
    path = _folder(settings)
    if _via(settings) == NVSENTINEL:
        form, is_drained = _sentinel_form(node, name, hook), _is_drained_by_sentinel
    else:
        form, is_drained = _operator_form(settings, node, name), _is_ready
    persist(lambda: _ask(settings, "POST", path, form=form, statuses=(201, 409)))
    until(lambda: is_drained(settings, f"{path}/{name}"), f"{_via(settings)} has drained {node}")
    return f"{_via(settings)} has drained {node}"


def recover(settings: dict[str, object], _hook: dict[str, object]) -> str:
    """Delete the request; the other project then returns the node."""
    name = step_state.read().get("name")
    if not name:
        return "nothing was requested"
    path = f"{_folder(settings)}/{name}"
    persist(lambda: _ask(settings, "DELETE", path, statuses=(200, 202, 404)))
    step_state.clear()
    return f"the request is deleted; {_via(settings)} returns the node"


def _via(settings: dict[str, object]) -> str:
    return str(settings["via"])


def _name(settings: dict[str, object], hook: dict[str, object]) -> str:
    """Return the name of the request, the same for every attempt of an event."""
    text = f"forewarn-{node_name(settings)}-{inner(hook, 'event')['event_id']}".lower()
    return re.sub(r"[^a-z0-9.-]", "-", text)


def _folder(settings: dict[str, object]) -> str:
    if _via(settings) == NVSENTINEL:
        return "/apis/nvsentinel.dgxc.nvidia.com/v1/maintenancerequests"
    namespace = quote(str(settings.get("namespace") or NAMESPACE), safe="")
    return f"/apis/maintenance.nvidia.com/v1alpha1/namespaces/{namespace}/nodemaintenances"


def _sentinel_form(node: str, name: str, hook: dict[str, object]) -> dict[str, object]:
    event = inner(hook, "event")
    return {
        "apiVersion": "nvsentinel.dgxc.nvidia.com/v1",
        "kind": "MaintenanceRequest",
        "metadata": {"name": name},
        "spec": {
            "healthEvent": {
                "version": 1,
                "agent": "forewarn",
                "componentClass": "Node",
                "checkName": "ScheduledEvent",
                "nodeName": node,
                "isHealthy": False,
                "isFatal": False,
                "recommendedAction": "NONE",  # drain only; the event itself does the rest
                "message": f"forewarn: {event['event_type']} {event['event_id']}",
            }
        },
    }


def _operator_form(settings: dict[str, object], node: str, name: str) -> dict[str, object]:
    return {
        "apiVersion": "maintenance.nvidia.com/v1alpha1",
        "kind": "NodeMaintenance",
        "metadata": {"name": name, "annotations": {KEPT: "true"}},
        "spec": {
            "requestorID": REQUESTOR,
            "nodeName": node,
            "cordon": True,
            "drainSpec": {
                "force": bool(settings.get("force")),
                "deleteEmptyDir": bool(settings.get("delete_local", True)),
                "timeoutSeconds": max(1, int(seconds_left())),
            },
        },
    }


def _is_drained_by_sentinel(settings: dict[str, object], path: str) -> bool:
    """Return whether NVSentinel has taken the request on, and has drained the node since.

    Raises:
        DrainFailed: it could not.
    """
    if _conditions(_get(settings, path)).get(EMITTED) != "True":
        return False
    meta = _get(settings, node_path(settings)).get("metadata")
    labels = meta.get("labels") if isinstance(meta, dict) else None
    state = labels.get(STATE_LABEL) if isinstance(labels, dict) else None
    if state == "drain-failed":
        raise DrainFailed(project="NVSentinel", node=node_name(settings))
    return state == "drain-succeeded"


def _is_ready(settings: dict[str, object], path: str) -> bool:
    return _conditions(_get(settings, path)).get("Ready") == "True"


def _conditions(form: dict[str, object]) -> dict[str, object]:
    status = form.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    listed = conditions if isinstance(conditions, list) else []
    return {str(one.get("type")): one.get("status") for one in listed if isinstance(one, dict)}


def _get(settings: dict[str, object], path: str) -> dict[str, object]:
    return _ask(settings, "GET", path).form()


def _ask(
    settings: dict[str, object],
    method: str,
    path: str,
    *,
    form: object = None,
    statuses: tuple[int, ...] = (200,),
) -> Called:
    return expect(ask(settings, method, path=path, form=form), method, url=path, statuses=statuses)
