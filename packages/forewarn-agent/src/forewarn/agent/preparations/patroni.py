"""PostgreSQL with Patroni: switches over from this member to another member if this member leads.

After the event, this member follows the new leader.
"""

from __future__ import annotations

import base64
import sys

from forewarn.agent.preparations.http_call import (
    Called,
    CallFailed,
    CallUnanswered,
    call,
    expect,
    secret,
)
from forewarn.agent.preparations.wait_until import persist, until
from forewarn_base.clock import SystemClock
from forewarn_base.errors import PeerError

ADDRESS = "http://127.0.0.1:8008"
REQUEST_AGAIN_MS = 30_000  # interval of requests whose result is unknown
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
    name, leads, members = persist(lambda: _standing(settings))
    leader = _leader(members)
    if not leads:
        return f"{leader} leads; no switchover is needed"
    wanted = str(settings.get("candidate") or "")
    synchronous = persist(lambda: _is_synchronous(settings, members))
    fit = _candidates(members, synchronous=synchronous)
    candidate = wanted if wanted in fit else "" if wanted else next(iter(fit), "")
    if not candidate:
        raise NoCandidate(cluster=name, name=leader)
    return f"switched over from {leader} to {_switch_over(settings, leader, candidate)}"


def recover(settings: dict[str, object], _hook: dict[str, object]) -> str:
    """Check that this member runs in the cluster, without changing the cluster."""
    until(
        lambda: _ask(settings, "/health").status == 200,
        "PostgreSQL of this member runs",
        seconds=float(str(settings.get("wait_s", 0))),
    )
    return f"{_leader(persist(lambda: _members(settings)))} leads; this member runs"


def _standing(settings: dict[str, object]) -> tuple[str, bool, list[dict[str, object]]]:
    """Return the name of the cluster, whether this member leads, and the members.

    Raises:
        CallUnanswered: Patroni does not answer, or knows no leader at the moment.
    """
    response = _ask(settings, "/patroni")
    me = response.form()
    patroni = me.get("patroni")
    facts = patroni if isinstance(patroni, dict) else {}
    if "role" not in me:  # an answer without a role, also of a proxy, leaves the role unknown
        expect(response, "GET", url=_address(settings), statuses=())
    members = _members(settings)
    leader = _leader(members)
    if not leader:
        reason = "the cluster has no leader at the moment"
        raise CallUnanswered(method="GET", url=f"{_address(settings)}/cluster", reason=reason)
    leads = str(me["role"]) in LEADING or leader == facts.get("name")
    return str(facts.get("scope", "")), leads, members


def _switch_over(settings: dict[str, object], leader: str, candidate: str) -> str:
    """Request a switchover until another member leads; return that member.

    Patroni answers after the switchover, within 20 s or more, and with 503 if its result is
    unknown. A repeated request names the old leader, and so has no effect after a switchover.
    """
    url, clock = f"{_address(settings)}/switchover", SystemClock()
    form = {"leader": leader, "candidate": candidate}
    again_ms, doubtful, now = 0, False, ""

    def request() -> None:
        """Request the switchover once; again later only if its result is unknown."""
        nonlocal again_ms, doubtful
        again_ms = clock.now_ms() + REQUEST_AGAIN_MS
        try:
            done = call("POST", url, form=form, headers=_headers(settings), ca_file=_ca(settings))
            expect(done, "POST", url=url, statuses=(200, 202))
        except CallUnanswered:
            doubtful = True
            raise
        except CallFailed as error:
            if doubtful:  # an earlier request may have been carried out
                raise CallUnanswered(**error.facts) from error
            if _leader(_members(settings)) in ("", leader):  # it has not switched over
                raise
        again_ms = sys.maxsize  # one request is enough

    def has_moved() -> bool:
        nonlocal now
        if clock.now_ms() >= again_ms:
            request()
        now = _leader(_members(settings))
        return now not in ("", leader)

    wait_s = float(str(settings.get("wait_s", 0)))
    until(has_moved, f"a member other than {leader} leads", seconds=wait_s)
    return now


def _members(settings: dict[str, object]) -> list[dict[str, object]]:
    response = _ask(settings, "/cluster")
    url = f"{_address(settings)}/cluster"
    members = expect(response, "GET", url=url, statuses=(200,)).form().get("members", [])
    assert isinstance(members, list)
    return members


def _leader(members: list[dict[str, object]]) -> str:
    return next((str(one["name"]) for one in members if one.get("role") in LEADING), "")


def _is_synchronous(settings: dict[str, object], members: list[dict[str, object]]) -> bool:
    """Return whether only a synchronous member may become leader; others may lack transactions."""
    response = _ask(settings, "/config")
    url = f"{_address(settings)}/config"
    form = expect(response, "GET", url=url, statuses=(200,)).form()
    mode = form.get("synchronous_mode", False)
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
