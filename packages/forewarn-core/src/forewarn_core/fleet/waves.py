"""The sequence of waves of a running maintenance: announce, wait, continue, stop, finish.

Source: F-3, F-5, F-6. Planning is separate. `host_admission.py` decides whether one host may be
announced.
"""

from __future__ import annotations

from forewarn_base.values import replace
from forewarn_core.fleet import transitions
from forewarn_core.fleet.draft import Draft, StepRule
from forewarn_core.fleet.durations import work_s
from forewarn_core.fleet.host_admission import Admission, plan_again, planned_placements
from forewarn_core.fleet.impact import DURATION_UNKNOWN_S, SECOND_MS, TRAITS, Cause, Impact
from forewarn_core.fleet.lifecycle import Operation, OperationState, with_execution
from forewarn_core.fleet.maintenance import (
    Announcing,
    Checking,
    Due,
    Halted,
    Maintenance,
    MaintenanceMove,
    MaintenancePlan,
    Planning,
    Target,
    Working,
    move_maintenance,
    move_phase,
    pluralized,
    target_key,
)
from forewarn_core.fleet.notices import starts_without_notice
from forewarn_core.fleet.operation_requests import plan as planned_operations
from forewarn_core.fleet.stimulus import RequestMaintenance
from forewarn_core.fleet.targets import followed_by
from forewarn_core.fleet.waiting import crowded
from forewarn_core.planning.plan import Wave
from forewarn_core.planning.policy import MaintenancePolicy
from forewarn_core.rules.pause import after_pause_ms

#: Delay before planning again, in seconds: after a plan without a wave, a failed planning, or a
#: wave without an announceable host.
PLAN_AGAIN_S = 60

#: Maximum delay before hosts that cannot be done are planned again, in seconds.
PLAN_AGAIN_S_MAX = 600


def announce_hosts(draft: Draft, number: int, room: int) -> int:
    """Announce at most this many hosts of a maintenance's due wave; return how many.

    Costs the announced hosts, and a check of each host of the wave. See F-3.
    """
    maintenance = draft.maintenances.get(number)
    if maintenance is None or not _is_due(draft, maintenance):
        return 0
    announced = _announce_wave(draft, maintenance, room)
    if announced == room:
        draft.look_at(number)
    return announced


def renewal_ms(plan: MaintenancePlan) -> int:
    """Return when a plan with moves of VMs is made again, shortly before its first wave."""
    return plan.waves[0].shown_ms - PLAN_AGAIN_S_MAX * SECOND_MS


def is_ahead_of_clock(draft: Draft, maintenance: Maintenance) -> bool:
    """Whether a maintenance was planned by a later clock, which was set back since. See F-4."""
    planning, plan = maintenance.planning, draft.plans.get(maintenance.plan)
    if planning is not None:
        at_ms = planning.at_ms or 0
        if plan is not None and plan.waves and at_ms == renewal_ms(plan):
            return plan.made_ms > draft.now_ms
        return at_ms > draft.now_ms + PLAN_AGAIN_S_MAX * SECOND_MS
    return isinstance(maintenance.phase, Due) and plan is not None and plan.made_ms > draft.now_ms


def _is_due(draft: Draft, maintenance: Maintenance) -> bool:
    due_ms = maintenance.due_ms
    if not maintenance.running or due_ms is None:
        return False
    if due_ms > draft.now_ms and not is_ahead_of_clock(draft, maintenance):
        return False
    # Between waves, work that stayed announced through a pause ends first.
    return maintenance.wave is not None or not draft.progress(maintenance.number).working


def conclude(draft: Draft, number: int) -> None:
    """Stop a maintenance, end it or its wave, or make its next wave due. F-1, F-3, F-5."""
    maintenance = draft.maintenances.get(number)
    if maintenance is None or not maintenance.running:
        return
    _conclude(draft, maintenance)
    maintenance = draft.maintenances.get(number)
    if maintenance is not None and _is_due(draft, maintenance):
        draft.agenda.add(StepRule.WAVE, number, -maintenance.priority)


def _conclude(draft: Draft, maintenance: Maintenance) -> None:
    progress, phase = draft.progress(maintenance.number), maintenance.phase
    failed = len(progress.failed)
    if exceeds_failure_budget(maintenance, failed):
        reason = f"{pluralized(failed)} failed; {maintenance.max_failures} may"
        stop(draft, maintenance, reason)
        return
    if progress.working or isinstance(phase, Checking):
        return
    left = len(maintenance.hosts) - len(progress.targets)
    if left and isinstance(phase, Planning | Due):
        _pause_again(draft, maintenance)
    over = isinstance(phase, Working) or (isinstance(phase, Announcing) and not left)
    if over and left and not progress.has_begun(maintenance.wave):  # all its hosts were postponed
        plan_again(draft, maintenance)
    elif over and (left or maintenance.gate):
        _wave_over(draft, maintenance, left)
    elif not left:
        done = move_maintenance(maintenance, MaintenanceMove.FINISH, Halted(), now_ms=draft.now_ms)
        draft.put("maintenance.done", f"{done.id} is done", done)
        if done.return_s:
            draft.wake_arrivals(done.hosts)


def exceeds_failure_budget(maintenance: Maintenance, failed: int) -> bool:
    """Stop a maintenance that exceeds its failure budget. Source: F-5."""
    return failed > maintenance.max_failures + maintenance.forgiven


def pause_end_ms(draft: Draft, maintenance: Maintenance, ended_ms: int | None = None) -> int:
    """Return when the pause after a wave ends, ms since the epoch UTC; it begins now, or earlier.

    `ended_ms`: when the wave ended. A later time is one of a clock that was set back.
    """
    ended_ms = draft.now_ms if ended_ms is None else min(ended_ms, draft.now_ms)
    return after_pause_ms(draft.policy_of(maintenance), ended_ms)


def with_changed_pause(
    draft: Draft, maintenance: Maintenance, before: MaintenancePolicy
) -> Maintenance:
    """Return a maintenance whose pause, if one has begun, is as long as the new policy says."""
    longer_ms = after_pause_ms(draft.maintenance_policy, 0) - after_pause_ms(before, 0)
    if not maintenance.rests_until_ms or not longer_ms or maintenance.exemption.emergency:
        return maintenance
    rests_until_ms = max(maintenance.rests_until_ms + longer_ms, 0) or None
    maintenance = replace(maintenance, rests_until_ms=rests_until_ms)
    text = f"{maintenance.id} pauses as long as the new policy says"
    draft.put("maintenance.pause-changed", text, maintenance)
    return maintenance


def _pause_again(draft: Draft, maintenance: Maintenance) -> None:
    """Start the pause again when the last hosts of a stopped wave end between waves.

    Costs the touched hosts.
    """
    policy = draft.policy_of(maintenance)
    rests_until_ms = pause_end_ms(draft, maintenance)
    if not policy.spaces_waves or rests_until_ms <= (maintenance.rests_until_ms or 0):
        return
    targets = draft.progress(maintenance.number).targets.values()
    if any(each.ended_ms == draft.now_ms for each in targets):
        plan_again(draft, replace(maintenance, rests_until_ms=rests_until_ms))


def _wave_over(draft: Draft, maintenance: Maintenance, left: int) -> None:
    """End a wave: check its gate, if it has one, and plan the remaining hosts again."""
    after = Checking(maintenance.gate) if maintenance.gate else Planning()
    between = replace(
        move_phase(maintenance, after), rests_until_ms=pause_end_ms(draft, maintenance)
    )
    text = f"wave {maintenance.wave} of {between.id} is over; {pluralized(left)} left"
    draft.put("maintenance.wave-over", text, between)


def stop(draft: Draft, maintenance: Maintenance, reason: str) -> None:
    """Stop a maintenance and withdraw its remaining work. Source: G-3."""
    halted = Halted(reason, maintenance.wave)
    stopped = move_maintenance(maintenance, MaintenanceMove.STOP, halted, now_ms=draft.now_ms)
    draft.put("maintenance.stopped", f"{stopped.id} is stopped: {reason}", stopped)
    withdraw(draft, stopped)


def withdraw(draft: Draft, maintenance: Maintenance) -> None:
    """Withdraw announced work, in portions, so that it cannot start. See F-6.

    Costs a look-up for each host in work.
    """
    for target in draft.progress(maintenance.number).worked_on:
        draft.look_at(target.operation)


def withdrawn_because(draft: Draft, operation: Operation) -> str:
    """Return why announced work of a maintenance must be withdrawn; empty if it may start."""
    assert operation.maintenance, operation
    assert operation.state is OperationState.ANNOUNCED, operation
    if operation.is_return:  # every absent VM returns, perhaps later
        return ""
    maintenance = draft.maintenances.get(operation.maintenance)
    if maintenance is None:
        return f"m-{operation.maintenance} has ended"
    if not maintenance.running and not maintenance.keeps_announced:
        return f"{maintenance.id} is {maintenance.state.value}"
    admission = Admission(draft, maintenance)
    closed = admission.closed_since(operation) or crowded(draft, maintenance, operation)
    at_once = not operation.requested_start_ms  # the VMs have left, so no notice runs
    if not closed and (at_once or draft.now_ms >= operation.not_before_ms):
        return admission.too_late(operation)
    return closed


def _announce_wave(draft: Draft, maintenance: Maintenance, room: int) -> int:
    """Announce the admissible hosts of the due wave; return how many.

    If a plan is due instead, request it now.
    """
    phase = maintenance.phase
    if not isinstance(phase, Due | Announcing) or is_ahead_of_clock(draft, maintenance):
        plan_again(draft, maintenance)
        return 0
    plan = draft.plans.get(maintenance.plan)
    assert plan is not None, maintenance
    wave = plan.waves[0]
    working = draft.progress(maintenance.number).working
    if isinstance(phase, Due):
        maintenance = move_phase(maintenance, Announcing(wave.number, phase.at_ms))
        text = f"wave {wave.number} of {maintenance.id} begins: {pluralized(len(wave.hosts))}"
        draft.put("maintenance.wave-begun", text, maintenance)
    admission = Admission(draft, maintenance)
    announced = 0
    for host in wave.hosts:
        if announced >= room:
            return announced
        touched = draft.target(maintenance.number, host)
        if touched is None and admission.blocker(host, wave) is None:
            earliest_start_ms = admission.earliest_start_ms(host, wave)
            _announce(draft, maintenance, wave, host=host, earliest_start_ms=earliest_start_ms)
            announced += 1
    _wave_called(draft, maintenance, working=bool(working or announced))
    return announced


def _announce(
    draft: Draft, maintenance: Maintenance, wave: Wave, *, host: str, earliest_start_ms: int | None
) -> None:
    """Announce the work on one host, to start with its wave."""
    moves = maintenance.move_s and draft.topology.vms_on(host)
    _, interruption_s = TRAITS[maintenance.cause].shown(maintenance.impact)
    duration_s = work_s(draft.state, maintenance, host)
    # A reboot interrupts the VMs for the whole work; other causes have their own duration.
    lasts = not moves and interruption_s == DURATION_UNKNOWN_S
    without_notice = starts_without_notice(maintenance)
    request = RequestMaintenance(
        cause=Cause.LIVE_MIGRATION if moves else maintenance.cause,
        targets=(host,),
        impact=Impact.FREEZE if moves else maintenance.impact,
        duration_s=duration_s if lasts else None,
        description=maintenance.description or None,
        not_before_ms=None if without_notice else wave.latest_start_ms,
        queue=True,
    )
    [operation] = planned_operations(draft, request)
    if without_notice:
        start_ms = wave.latest_start_ms
        operation = replace(operation, notice_s=0, requested_start_ms=start_ms)
    operation = replace(
        operation,
        maintenance=maintenance.number,
        actor=maintenance.actor,
        unconfirmed_by=maintenance.unconfirmed_by,
        earliest_start_ms=earliest_start_ms,
    )
    if moves:
        placements = planned_placements(draft, maintenance, host)
        operation = with_execution(operation, placements=placements)
        operation = replace(operation, followed_by=followed_by(maintenance))
    target = Target(
        target_key(maintenance.number, host),
        maintenance.number,
        host,
        wave.number,
        operation.number,
        duration_s=duration_s,
    )
    text = f"{operation.id}: host {host} is in wave {wave.number} of {maintenance.id}"
    draft.put("operation.planned", text, operation, target)
    transitions.announce(draft, operation)


def _wave_called(draft: Draft, maintenance: Maintenance, *, working: bool) -> None:
    """Wait for the wave's work; if no host could be announced, plan again later."""
    again_ms = draft.now_ms + PLAN_AGAIN_S * SECOND_MS
    if working:
        assert maintenance.wave is not None, maintenance
        called = move_phase(maintenance, Working(maintenance.wave))
        text = f"wave {maintenance.wave} of {called.id} is announced"
        draft.put("maintenance.wave-announced", text, called)
        return
    blocked = move_phase(maintenance, Planning(again_ms))
    text = f"no host of wave {maintenance.wave} of {blocked.id} can be announced now"
    draft.put("maintenance.wave-blocked", text, blocked)
