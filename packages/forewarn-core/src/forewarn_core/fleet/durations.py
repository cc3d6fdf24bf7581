"""How long work on a host takes: as announced, else as planned, else as asked. Source: F-9."""

from __future__ import annotations

from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import Operation
from forewarn_core.fleet.maintenance import Maintenance, target_key
from forewarn_core.fleet.state import State
from forewarn_core.fleet.topology import words_of
from forewarn_core.planning.durations import LearnedDuration


def work_s(state: State, maintenance: Maintenance, host: str) -> int:
    """Return how long the work on a host takes, in seconds."""
    target = state.targets.get(target_key(maintenance.number, host))
    if target is not None:
        return target.duration_s or maintenance.duration_s
    learned = learned_duration(state, maintenance, host)
    return learned.duration_s if learned else maintenance.duration_s


def learned_duration(state: State, maintenance: Maintenance, host: str) -> LearnedDuration | None:
    """Return the duration by which the plan in force plans a host; None: what was asked."""
    plan, record = state.plans.get(maintenance.plan), state.topology.hosts.get(host)
    if plan is None or record is None or not plan.body.learned:
        return None
    labels = words_of(record) | {""}
    return next((each for each in plan.body.learned if each.label in labels), None)


def host_s(state: State, maintenance: Maintenance, host: str) -> int:
    """Return how long a host is under work, its VMs' moves included, in seconds."""
    return maintenance.move_s + work_s(state, maintenance, host) + maintenance.return_s


def least_host_s(state: State, maintenance: Maintenance) -> int:
    """Return the shortest time for which a host can be under work, in seconds."""
    plan = state.plans.get(maintenance.plan)
    learned = plan.body.learned if plan else ()
    least_s = min([maintenance.duration_s, *(each.duration_s for each in learned)])
    return maintenance.move_s + least_s + maintenance.return_s


def span_s(state: State, maintenance: Maintenance, operation: Operation) -> int:
    """Return how long a host is under work from the start of an operation, in seconds.

    If its VMs leave by a live migration, the maintenance's own work follows.
    """
    if operation.is_return:
        return maintenance.move_s
    if operation.cause is Cause.LIVE_MIGRATION:
        return host_s(state, maintenance, operation.host)
    return work_s(state, maintenance, operation.host)
