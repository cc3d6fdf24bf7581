"""Nomad: drains the client node until the deadline, and makes it eligible again afterwards.

A drain of another person, and a node that was ineligible before, stay unchanged. Source: J-3.
"""

from __future__ import annotations

import os
from urllib.parse import quote

from forewarn.agent.json_fields import inner
from forewarn.agent.preparations import step_state
from forewarn.agent.preparations.http_call import call, expect, secret
from forewarn.agent.preparations.wait_until import persist, seconds_left, until
from forewarn_base.errors import PeerError

ADDRESS = "http://127.0.0.1:4646"
META = "forewarn"  # member of a drain's metadata, by which the step knows its own drain
SECOND_NS = 1_000_000_000


class NomadNodeMissing(PeerError):
    """The agent of Nomad is a server only, without a node to drain."""

    code = "nomad-node-missing"
    message = "The Nomad agent at {address} is not a client."
    advice = "Set `node` to the id of the client's node, or `address` to the client's agent."


def prepare(settings: dict[str, object], hook: dict[str, object]) -> str:
    """Drain the node, and wait until its allocations have left."""
    event = inner(hook, "event")
    mark = f"{event['event_type']} {event['event_id']}"
    node = str(step_state.read().get("node") or persist(lambda: _node(settings)))
    ours = persist(lambda: _drain(settings, node, mark))
    until(lambda: _is_drained(settings, node), f"no allocation is left on {node[:8]}")
    return f"{node[:8]} is drained{'' if ours else ' by another administrator'}"


def recover(settings: dict[str, object], _hook: dict[str, object]) -> str:
    """End our drain, and make the node eligible, unless another person has changed it since."""
    notes = step_state.read()
    if not notes:
        return "nothing was changed"
    node = str(notes["node"])
    back = persist(lambda: _resume(settings, node, str(notes["mark"])))
    step_state.clear()
    return f"{node[:8]} {'is eligible again' if back else 'stays as another administrator left it'}"


def _drain(settings: dict[str, object], node: str, mark: str) -> bool:
    """Begin a drain unless the node is out of service already; return whether it is ours."""
    state = _read(settings, node)
    if _is_ours(state, mark):
        return True
    if state.get("DrainStrategy") or state.get("SchedulingEligibility") == "ineligible":
        return False
    step_state.write({"node": node, "mark": mark})
    form = {
        "DrainSpec": {
            "Deadline": max(1, int(seconds_left())) * SECOND_NS,
            "IgnoreSystemJobs": bool(settings.get("ignore_system_jobs")),
        },
        "Meta": {META: mark, "message": f"forewarn: {mark}"},
    }
    _ask(settings, "POST", f"node/{quote(node, safe='')}/drain", form)
    return True


def _resume(settings: dict[str, object], node: str, mark: str) -> bool:
    """Return whether the drain was ours and has been undone."""
    state = _read(settings, node)
    if not _is_ours(state, mark):
        return False
    if state.get("DrainStrategy"):
        form: dict[str, object] = {"DrainSpec": None, "MarkEligible": True}
        _ask(settings, "POST", f"node/{quote(node, safe='')}/drain", form)
    else:
        form = {"Eligibility": "eligible"}
        _ask(settings, "POST", f"node/{quote(node, safe='')}/eligibility", form)
    return True


def _is_ours(state: dict[str, object], mark: str) -> bool:
    """Return whether the node is out of service by the drain of this event."""
    last = state.get("LastDrain")
    meta = last.get("Meta") if isinstance(last, dict) else None
    out = state.get("DrainStrategy") or state.get("SchedulingEligibility") == "ineligible"
    return bool(out) and isinstance(meta, dict) and meta.get(META) == mark


def _is_drained(settings: dict[str, object], node: str) -> bool:
    """Return whether no drain runs and no allocation of the node runs."""
    if _read(settings, node).get("DrainStrategy"):
        return False
    allocations = _ask(settings, "GET", f"node/{quote(node, safe='')}/allocations").get("", [])
    left = allocations if isinstance(allocations, list) else []
    ignored = ("system", "sysbatch") if settings.get("ignore_system_jobs") else ()
    return not any(
        isinstance(one, dict)
        and one.get("ClientStatus") in ("pending", "running")
        and _job_type(one) not in ignored
        for one in left
    )


def _job_type(allocation: dict[str, object]) -> object:
    job = allocation.get("Job")
    return job.get("Type") if isinstance(job, dict) else allocation.get("JobType")


def _node(settings: dict[str, object]) -> str:
    given = str(settings.get("node") or "")
    if given:
        return given
    stats = _ask(settings, "GET", "agent/self").get("stats")
    client = stats.get("client") if isinstance(stats, dict) else None
    node = client.get("node_id") if isinstance(client, dict) else None
    if not node:
        raise NomadNodeMissing(address=_address(settings))
    return str(node)


def _read(settings: dict[str, object], node: str) -> dict[str, object]:
    return _ask(settings, "GET", f"node/{quote(node, safe='')}")


def _ask(
    settings: dict[str, object], method: str, path: str, form: object = None
) -> dict[str, object]:
    url = f"{_address(settings)}/v1/{path}"
    token = secret(settings.get("token_file"))
    headers = {"X-Nomad-Token": token} if token else {}
    ca_file = str(settings.get("ca_file") or "")
    response = call(method, url, form=form, headers=headers, ca_file=ca_file)
    return expect(response, method, url=url, statuses=(200,)).form()


def _address(settings: dict[str, object]) -> str:
    return str(settings.get("address") or os.environ.get("NOMAD_ADDR") or ADDRESS).rstrip("/")
