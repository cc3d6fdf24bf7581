"""PostgreSQL with Patroni: switches over from this member to another member if this member leads.

After the event, this member follows the new leader.
"""

from __future__ import annotations

import base64

from forewarn.agent.preparations.http_call import Called, call, expect, secret
from forewarn.agent.preparations.wait_until import until
from forewarn.errors import PeerError

ADDRESS = "http://127.0.0.1:8008"
SYNCHRONOUS = ("sync_standby", "quorum_standby")
LEADING = ("leader", "master", "primary", "standby_leader")


class NoCandidate(PeerError):
    """No other member of the cluster can become leader."""

    code = "patroni-no-candidate"
    message = "No member of cluster {cluster} can take over from {name}."
    advice = (
        "Run `patronictl list`: a candidate must run, be streaming, not be tagged nofailover, and "
        "be synchronous if the cluster is."
    )


def prepare(settings: dict[str, object], _hook: dict[str, object]) -> str:
    """If this member leads, switch over to another member, and wait for the new leader."""
    url = _address(settings)
    me = _ask(settings, "/patroni").form()
    patroni = me.get("patroni")
    members = _members(settings)
    leader = _leader(members)
    if str(me.get("role")) not in LEADING:
        return f"{leader or 'another member'} leads; no switchover is needed"
    wanted = str(settings.get("candidate") or "")
    fit = _candidates(members, synchronous=_is_synchronous(settings, members))
    candidate = wanted if wanted in fit else "" if wanted else next(iter(fit), "")
    if not candidate:
        scope = patroni.get("scope") if isinstance(patroni, dict) else ""
        raise NoCandidate(cluster=scope, name=leader)
    form = {"leader": leader, "candidate": candidate}
    headers = _headers(settings)
    done = call("POST", f"{url}/switchover", form=form, headers=headers, ca_file=_ca(settings))
    expect(done, "POST", url=f"{url}/switchover", statuses=(200, 202))
    until(
        lambda: _leader(_members(settings)) not in ("", leader),
        f"a member other than {leader} leads",
        seconds=float(str(settings.get("wait_s", 0))),
    )
    return f"switched over from {leader} to {_leader(_members(settings))}"


def recover(settings: dict[str, object], _hook: dict[str, object]) -> str:
    """Check that this member runs in the cluster, without changing the cluster."""
    until(
        lambda: _ask(settings, "/health").status == 200,
        "PostgreSQL of this member runs",
        seconds=float(str(settings.get("wait_s", 0))),
    )
    return f"{_leader(_members(settings))} leads; this member runs"


def _members(settings: dict[str, object]) -> list[dict[str, object]]:
    members = _ask(settings, "/cluster").form().get("members", [])
    assert isinstance(members, list)
    return members


def _leader(members: list[dict[str, object]]) -> str:
    return next((str(one["name"]) for one in members if one.get("role") in LEADING), "")


def _is_synchronous(settings: dict[str, object], members: list[dict[str, object]]) -> bool:
    """Return whether only a synchronous member may become leader; others may lack transactions."""
    mode = _ask(settings, "/config").form().get("synchronous_mode", False)
    seen = any(one.get("role") in SYNCHRONOUS for one in members)
    return seen or str(mode).lower() in ("true", "on", "yes", "1", "quorum")


def _candidates(members: list[dict[str, object]], *, synchronous: bool) -> list[str]:
    """Return the healthy replicas, ordered by lag."""
    fit = []
    for one in members:
        tags = one.get("tags")
        barred = isinstance(tags, dict) and tags.get("nofailover")
        lag = one.get("lag", 0)
        follows = one.get("role") not in LEADING and one.get("state") in ("running", "streaming")
        safe = not synchronous or one.get("role") in SYNCHRONOUS
        if follows and safe and not barred and isinstance(lag, int):
            fit.append((lag, str(one["name"])))
    return [name for _, name in sorted(fit)]


def _ask(settings: dict[str, object], path: str) -> Called:
    url = f"{_address(settings)}{path}"
    return call("GET", url, headers=_headers(settings), ca_file=_ca(settings))


def _address(settings: dict[str, object]) -> str:
    return str(settings.get("address") or ADDRESS).rstrip("/")


def _ca(settings: dict[str, object]) -> str:
    return str(settings.get("ca_file") or "")


def _headers(settings: dict[str, object]) -> dict[str, str]:
    user = settings.get("username")
    if not user:
        return {}
    pair = f"{user}:{secret(settings.get('password_file'))}".encode()
    return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
