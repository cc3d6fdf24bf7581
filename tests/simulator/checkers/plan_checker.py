"""Invariant 19: a plan in force keeps every rule, as it is kept: read from its text.

Written apart from the planner and from the product's own checker; neither is called in here.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from tests.simulator.checkers.contract import OWED_S
from tests.simulator.checkers.maintenance_rules import closed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forewarn.core.maintenance.records import Maintenance, MaintenancePlan
    from forewarn.core.state import State
    from forewarn.planning.policy import Policy

Wave: TypeAlias = "tuple[int, int, int, int, int, int, object, list[str]]"
"""Number, announced, earliest and latest start, latest end, canary, what it waits for, hosts."""


def check_plan(state: State, policy: Policy, plan: MaintenancePlan, *, same_fleet: bool) -> str:
    """Return the first rule that a plan breaks; empty if it keeps them all.

    Args:
        state: what is durable, the plan included.
        policy: the maintenance policy in force.
        plan: what has taken force.
        same_fleet: whether the fleet is as it was when the plan was made.
    """
    maintenance = state.maintenances[plan.maintenance]
    body = json.loads(plan.body.text)
    waves: list[Wave] = body["waves"]
    found = [
        *_names(state, maintenance, waves, body["blocked"]),
        *_order(maintenance, waves, policy),
    ]
    for wave in waves:
        found += _times(state, maintenance, wave, policy)
        if same_fleet:
            found += _together(state, wave)
    return found[0] if found else ""


def _names(
    state: State, maintenance: Maintenance, waves: list[Wave], blocked: list[list[object]]
) -> Iterator[str]:
    named = Counter(
        [host for wave in waves for host in wave[-1]] + [str(each[0]) for each in blocked]
    )
    touched = {
        each.host for each in state.targets.values() if each.maintenance == maintenance.number
    }
    if max(named.values(), default=1) > 1:
        yield "a host is in it twice"
    if named.keys() - set(maintenance.hosts):
        yield "it names a host that was not asked for"
    left_out = set(maintenance.hosts) - touched - named.keys()
    if left_out:
        yield f"it leaves out {sorted(left_out)}"


def _order(maintenance: Maintenance, waves: list[Wave], policy: Policy) -> Iterator[str]:
    canary = [bool(wave[5]) for wave in waves]
    if canary != sorted(canary, reverse=True):
        yield "a canary wave comes later"
    if waves and not maintenance.plan and (maintenance.canary_hosts or policy.canary_count):
        if not canary[0]:
            yield "its first wave has no canary"
        if not maintenance.canary_hosts and len(waves[0][-1]) > policy.canary_count:
            yield "its canary wave is too large"
    for (*_, ends_ms, _, _, _), (number, shown_ms, earliest_ms, *_) in pairwise(waves):
        if shown_ms < ends_ms or earliest_ms < ends_ms + policy.pause_s * 1000:
            yield f"wave {number} comes too soon after the one before it"


def _times(state: State, maintenance: Maintenance, wave: Wave, policy: Policy) -> Iterator[str]:
    number, shown_ms, earliest_ms, latest_ms, end_ms, _, _, hosts = wave
    owed_ms = max(policy.notice_s, OWED_S[maintenance.impact.value]) * 1000
    if latest_ms - shown_ms < owed_ms:
        yield f"wave {number} gives too little notice"
    if (
        not shown_ms <= earliest_ms <= latest_ms
        or end_ms - latest_ms < maintenance.duration_s * 1000
    ):
        yield f"wave {number} has wrong times"
    if earliest_ms < max(maintenance.earliest_ms, maintenance.rests_until_ms):
        yield f"wave {number} starts before it may"
    if maintenance.deadline_ms and end_ms > maintenance.deadline_ms:
        yield f"wave {number} ends after the deadline"
    for host in hosts:
        if closed(policy, state.topology.hosts[host], start_ms=earliest_ms, end_ms=end_ms):
            yield f"host {host} is worked on in closed time"


def _together(state: State, wave: Wave) -> Iterator[str]:
    """Yield which groups a wave disturbs in two fault domains."""
    topology = state.topology
    places: dict[str, set[tuple[str, int]]] = {}
    for name in wave[-1]:
        host = topology.hosts[name]
        for vm in topology.vms_on(name):
            places.setdefault(topology.vms[vm].group, set()).add((host.zone, host.fault_domain))
    for group, there in places.items():
        if len(there) > 1:
            yield f"wave {wave[0]} disturbs group {group} in two fault domains"
