"""Operators' commands about a maintenance, and the arrival of plans and gate results.

`waves.py` then decides on the waves.
"""

from __future__ import annotations

from forewarn_base.protocol.timestamps import duration_text, iso8601
from forewarn_base.values import replace
from forewarn_core.fleet import stimulus as stimuli
from forewarn_core.fleet import transitions
from forewarn_core.fleet.choice_commands import note_displaced
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.host_admission import known_maintenance, plan_remaining_again
from forewarn_core.fleet.impact import DURATION_S_MAX, SECOND_MS, TRAITS, Cause, Source, TargetKind
from forewarn_core.fleet.lifecycle import OperationState
from forewarn_core.fleet.maintenance import (
    ENDED_MAINTENANCE,
    HOSTS_MAX,
    Checking,
    Declaration,
    Due,
    Halted,
    Maintenance,
    MaintenanceMove,
    MaintenancePlan,
    MaintenanceState,
    Phase,
    Planning,
    TargetState,
    Working,
    move_maintenance,
    move_phase,
    phase_with,
    pluralized,
    postponed_hosts,
)
from forewarn_core.fleet.notices import notice_owed_s
from forewarn_core.fleet.policy import FLEET_POLICY, AppliedPolicy
from forewarn_core.fleet.refusals import (
    DeclarationRefused,
    DeclarationRequired,
    MaintenanceImpossible,
    MaintenanceInvalid,
    MaintenanceWrongState,
    PlanSuperseded,
    Unknown,
)
from forewarn_core.fleet.stimulus import ApplyPolicy
from forewarn_core.fleet.targets import return_time_s
from forewarn_core.fleet.ticket import Ticket, TicketTarget, TicketText, TicketType
from forewarn_core.fleet.waiting import waits_until_shown
from forewarn_core.fleet.waves import (
    PLAN_AGAIN_S,
    PLAN_AGAIN_S_MAX,
    pause_end_ms,
    renewal_ms,
    stop,
    with_changed_pause,
    withdraw,
)
from forewarn_core.fleet.why import why_impossible
from forewarn_core.planning.plan_text import PlanBody
from forewarn_core.planning.policy import MaintenancePolicy
from forewarn_core.rules.hand_back import Severity

#: Hosts that cannot be done are planned again after an eighth of their wait. History stores each
#: plan with every host that cannot be done, so retries are limited.
WAITED_PARTS = 8


def create(draft: Draft, request: stimuli.CreateMaintenance) -> tuple[int, ...]:
    """Create a draft; the planner plans it separately. Costs its hosts. See F-1."""
    _check(draft, request)
    maintenance = request.maintenance(draft.next_number(), draft.now_ms, draft.actor)
    maintenance = replace(maintenance, return_s=return_time_s(request, draft.policy))
    hosts = pluralized(len(maintenance.hosts))
    text = f"{maintenance.id} is a draft: {request.cause.value} of {hosts}"
    draft.put("maintenance.created", text, maintenance)
    return (maintenance.number,)


def _check(draft: Draft, request: stimuli.CreateMaintenance) -> None:
    problem = _problem_of_work(request) or _problem_of_hosts(request)
    if not problem and request.deadline_ms:
        late = request.deadline_ms <= max(draft.now_ms, request.earliest_ms or 0)
        problem = "its deadline is not after its earliest start" if late else ""
    if problem:
        raise MaintenanceInvalid(problem=problem)
    for host in request.hosts:
        if host not in draft.topology.hosts:
            raise Unknown(kind="host", name=host)
    problem = _problem_of_domain(draft, request)
    if problem:
        raise MaintenanceInvalid(problem=problem)


def _problem_of_work(request: stimuli.CreateMaintenance) -> str:
    traits = TRAITS[request.cause]
    if traits.target is not TargetKind.HOST or not traits.routine or traits.source is Source.USER:
        return f"{request.cause.value} is not routine work on hosts"
    if request.impact not in {None, traits.impact, *traits.also}:
        return f"its impact cannot be {request.impact.value if request.impact else ''}"
    most = duration_text(DURATION_S_MAX)
    if not 1 <= request.duration_s <= DURATION_S_MAX:
        return f"each host takes {duration_text(request.duration_s)}; give 1s to {most}"
    if not 0 <= request.move_s <= DURATION_S_MAX:
        return f"moving VMs away takes {duration_text(request.move_s)}; give 0s to {most}"
    if request.return_vms and (not request.move_s or request.cause is Cause.LIVE_MIGRATION):
        return "VMs return only if they leave first (--move-vms), and not after live migrations"
    return "" if request.max_failures >= 0 else "its limit of failures is negative"


def _problem_of_hosts(request: stimuli.CreateMaintenance) -> str:
    hosts = set(request.hosts)
    if not 1 <= len(request.hosts) <= HOSTS_MAX:
        return f"it names {len(request.hosts)} hosts; name 1 to {HOSTS_MAX}"
    if len(hosts) != len(request.hosts):
        return "it names a host twice"
    others = sorted(set(request.canary_hosts) - hosts)
    return f"the canary {others[0]} is not among its hosts" if others else ""


def _problem_of_domain(draft: Draft, request: stimuli.CreateMaintenance) -> str:
    """Return why a maintenance cannot work by failure domain; empty if it can. Source: T-12."""
    label = request.failure_domain
    if not label:
        return ""
    if label not in draft.maintenance_policy.failure_domains:
        return f"the policy does not name {label!r} among its failure_domains"
    words = (draft.topology.words_on(host) for host in request.hosts)
    without = [
        host
        for host, labels in zip(request.hosts, words, strict=True)
        if not any(each.startswith(f"{label}=") for each in labels)
    ]
    return f"host {without[0]} has no label {label}" if without else ""


def start(draft: Draft, word: stimuli.StartMaintenance) -> tuple[int, ...]:
    """Start a draft: planning begins, and waves follow. See F-1.

    Raises:
        DeclarationRequired: the policy requires that it is declared. Source: T-1.
        MaintenanceImpossible: by its plan, a host can never be done.
    """
    if draft.maintenance_policy.require_declaration:
        raise DeclarationRequired(maintenance=f"m-{word.maintenance}")
    started = _start_draft(draft, word.maintenance, move="started")
    draft.put("maintenance.started", f"{started.id} is running", started)
    return (word.maintenance,)


def declare(draft: Draft, word: stimuli.DeclareMaintenance) -> tuple[int, ...]:
    """Declare a draft to the owners of its VMs, and start it. Source: T-1.

    The hand-back window begins now: a call that waits for confirmation has not declared anything.

    Raises:
        DeclarationRefused: the policy or the deadline of the maintenance forbids the window.
        MaintenanceImpossible: by its plan, a host can never be done.
    """
    severity, policy = word.severity, draft.maintenance_policy
    emergency = severity is Severity.EMERGENCY
    started = _start_draft(draft, word.maintenance, move="declared", emergency=emergency)
    least_s = policy.least_hand_back_s(severity)
    if emergency:
        named = replace(started, declaration=Declaration(0, 0, severity, waived=word.waived))
        least_s = notice_owed_s(policy, draft.policy, named)
    hand_back_s = least_s if word.hand_back_s is None else word.hand_back_s
    deadline_ms = draft.now_ms + hand_back_s * SECOND_MS
    problem = ""
    if hand_back_s < least_s:
        problem = f"the policy requires {duration_text(least_s)} for {severity.value} work"
        if emergency:
            problem = f"the notice of its impact is {duration_text(least_s)}"
    elif hand_back_s > policy.hand_back_max_s:
        problem = f"the policy allows {duration_text(policy.hand_back_max_s)} at most"
    elif started.deadline_ms and deadline_ms + started.host_s * SECOND_MS > started.deadline_ms:
        problem = "the work would end after the deadline of the maintenance"
    if problem:
        window = duration_text(hand_back_s)
        raise DeclarationRefused(maintenance=started.id, window=window, problem=problem)
    declaration = Declaration(draft.now_ms, deadline_ms, severity, waived=word.waived)
    declared = replace(started, declaration=declaration)
    text = f"{declared.id} is declared as {severity.value}: its hand-back deadline is"
    text = f"{text} {iso8601(deadline_ms)}"
    if emergency:
        assert word.reason, word
        declared = replace(declared, reason=word.reason, postponed=())
        text = transitions.with_reason(text, word.reason)
        draft.put("maintenance.emergency", text, declared)
        _open_review(draft, declared)
    else:
        draft.put("maintenance.declared", text, declared)
    return (word.maintenance,)


def _open_review(draft: Draft, declared: Maintenance) -> None:
    """Open the review of an emergency, with the rules that it waives. Source: T-6."""
    assert declared.declaration is not None
    waived = ", ".join(declared.declaration.waived)
    review = Ticket(
        draft.next_number(),
        TicketType.REVIEW,
        TicketTarget.SERVICE,
        declared.id,
        opened_ms=draft.now_ms,
        updated_ms=draft.now_ms,
        description=declared.reason,
        account=draft.authority.principal if draft.authority else "",
        maintenance=declared.number,
        actor=draft.actor,
        texts=(TicketText(draft.now_ms, draft.actor, f"waived: {waived or 'nothing'}"),),
    )
    text = f"{review.id}: {declared.id} is an emergency: {declared.reason}"
    draft.put("ticket.opened", text, review)


def _start_draft(draft: Draft, number: int, *, move: str, emergency: bool = False) -> Maintenance:
    """Return a draft as it is once started.

    The plan of a draft does not know yet that the draft is an emergency.

    Raises:
        MaintenanceImpossible: by its plan, a host can never be done.
    """
    maintenance = _movable(draft, number, MaintenanceState.DRAFT, move=move)
    impossible = None if emergency else why_impossible(draft, maintenance)
    if impossible is not None:
        raise MaintenanceImpossible(maintenance=maintenance.id, problem=impossible.text)
    planning = Planning(reason=maintenance.halt_reason)
    started = move_maintenance(maintenance, MaintenanceMove.START, planning, now_ms=draft.now_ms)
    return replace(started, unconfirmed_by=draft.unconfirmed_by)


def pause(draft: Draft, word: stimuli.PauseMaintenance) -> tuple[int, ...]:
    """Pause a maintenance: announce no more hosts, and withdraw announced work. Source: F-6."""
    maintenance = _movable(draft, word.maintenance, MaintenanceState.RUNNING, move="paused")
    phase = maintenance.phase
    halted = Halted(
        word.reason,
        maintenance.wave,
        phase.gate if isinstance(phase, Checking) else None,
        Planning() if maintenance.plan_wanted and word.keep_announced else None,
        keeps_announced=word.keep_announced,
    )
    paused = move_maintenance(maintenance, MaintenanceMove.PAUSE, halted, now_ms=draft.now_ms)
    draft.put(
        "maintenance.paused", transitions.with_reason(f"{paused.id} is paused", word.reason), paused
    )
    if not word.keep_announced:
        withdraw(draft, paused)
    return (word.maintenance,)


def resume(draft: Draft, word: stimuli.ResumeMaintenance) -> tuple[int, ...]:
    """Resume a maintenance; hosts that failed are tried again. See F-1."""
    halted = (MaintenanceState.PAUSED, MaintenanceState.STOPPED)
    maintenance = _movable(draft, word.maintenance, *halted, move="resumed")
    number, phase = maintenance.number, maintenance.phase
    assert isinstance(phase, Halted), maintenance
    forgiven = maintenance.forgiven
    rests_until_ms = maintenance.rests_until_ms
    if maintenance.state is MaintenanceState.STOPPED:
        targets = draft.progress(number).targets.values()
        failed = [each for each in targets if each.state is TargetState.FAILED]
        if failed:
            text = f"{pluralized(len(failed))} of {maintenance.id} that failed: tried again"
            draft.remove("maintenance.retried", text, *failed)
            ended_ms = max(each.ended_ms or 0 for each in failed)  # a pause follows these, too
            rests_until_ms = max(pause_end_ms(draft, maintenance, ended_ms), rests_until_ms or 0)
        forgiven = len(draft.progress(number).failed)
    wave_begun = draft.progress(number).has_begun(maintenance.wave)
    # If hosts of a stopped wave are still in work, the wave ends like any other: check, then pause.
    goes_on = wave_begun and (
        maintenance.state is MaintenanceState.PAUSED or bool(draft.progress(number).working)
    )
    after: Phase = Checking(phase.gate) if phase.gate is not None else Planning()
    if goes_on:
        assert phase.wave is not None, maintenance
        after, rests_until_ms = Working(phase.wave, phase.plan), maintenance.rests_until_ms
    elif wave_begun:
        rests_until_ms = pause_end_ms(draft, maintenance)
    resumed = move_maintenance(maintenance, MaintenanceMove.RESUME, after, now_ms=draft.now_ms)
    resumed = replace(resumed, forgiven=forgiven, rests_until_ms=rests_until_ms)
    draft.put("maintenance.resumed", f"{resumed.id} goes on", resumed)
    draft.look_at(number)
    return (word.maintenance,)


def cancel(draft: Draft, word: stimuli.CancelMaintenance) -> tuple[int, ...]:
    """Cancel a maintenance: withdraw announced work; running work finishes first. See F-6."""
    states = [each for each in MaintenanceState if each not in ENDED_MAINTENANCE]
    maintenance = _movable(draft, word.maintenance, *states, move="cancelled")
    halted = Halted(word.reason)
    cancelled = move_maintenance(maintenance, MaintenanceMove.CANCEL, halted, now_ms=draft.now_ms)
    text = transitions.with_reason(f"{cancelled.id} is cancelled", word.reason)
    withdraw(draft, maintenance)
    draft.put("maintenance.cancelled", text, cancelled)
    if cancelled.return_s:
        draft.wake_arrivals(cancelled.hosts)
    return (word.maintenance,)


def adopt_plan(draft: Draft, report: stimuli.PlanMade) -> None:
    """Put a plan in force if its parent is in force; O(its hosts). Source: F-2."""
    maintenance = known_maintenance(draft, report.maintenance)
    plan = report.plan
    if _is_outdated(draft, maintenance, report):
        raise PlanSuperseded(
            plan=plan.id,
            maintenance=maintenance.id,
            parent=plan.parent or "(none)",
            in_force=maintenance.plan or "(none)",
        )
    beside = isinstance(maintenance.phase, Working | Halted)  # the plan only has new budgets
    following = (
        phase_with(maintenance.phase, None) if beside else _next_phase(draft, maintenance, plan)
    )
    planned = move_phase(maintenance, following)
    records = [] if _is_in_force(draft, maintenance, plan) else [plan]
    if records:
        planned = replace(planned, plan=plan.id)
    text = f"{planned.id} is planned in {pluralized(len(plan.waves), 'wave')}"
    blocked = plan.body.blocked
    if blocked:
        text += f"; {pluralized(len(blocked))} cannot be done now"
    if report.time_zones:
        text += f"; time zones by {report.time_zones}"
    draft.put("maintenance.planned", text, planned, *records)
    if not beside:
        note_displaced(draft, planned, plan)
    draft.look_at(planned.number)
    _wake_work(draft, planned)


def _is_outdated(draft: Draft, maintenance: Maintenance, report: stimuli.PlanMade) -> bool:
    """Whether the maintenance or the policy has changed since the planner read them."""
    return (
        report.plan.parent != maintenance.plan
        or not maintenance.plan_wanted
        or report.rests_until_ms != maintenance.rests_until_ms
        or report.policy != draft.state.applied_policy
        or report.declaration != maintenance.declaration
        or report.postponed != postponed_hosts(maintenance)
        or _leaves_out(draft, maintenance, report.plan)
    )


def _is_in_force(draft: Draft, maintenance: Maintenance, plan: MaintenancePlan) -> bool:
    """Whether a plan equals the one in force; never if a later clock made that one."""
    before = draft.plans.get(maintenance.plan)
    if before is None or before.made_ms > draft.now_ms:
        return False
    return _without_times(before) == _without_times(plan)


def _wake_work(draft: Draft, maintenance: Maintenance) -> None:
    """Look at the work that waits for a plan, or for room in its new budgets."""
    for target in draft.progress(maintenance.number).worked_on:
        draft.look_at(target.operation)


def _without_times(plan: MaintenancePlan) -> PlanBody:
    """Return the content of a plan without the times at which its waves began to wait."""
    waves = [replace(each, waits=replace(each.waits, since_ms=0)) for each in plan.waves]
    return replace(plan.body, waves=tuple(waves))


def _leaves_out(draft: Draft, maintenance: Maintenance, plan: MaintenancePlan) -> bool:
    """Whether work on a host was withdrawn after the plan was made."""
    named = {host for wave in plan.waves for host in wave.hosts}
    named.update(host for host, _ in plan.body.blocked)
    named.update(draft.progress(maintenance.number).targets)
    return not named.issuperset(maintenance.hosts)


def _next_phase(draft: Draft, maintenance: Maintenance, plan: MaintenancePlan) -> Due | Planning:
    """Return the phase until the first wave's announcement, or until planning repeats.

    Planning repeats because blockers may clear early: other work ends, or VMs leave. See F-4.
    Destinations of VMs are planned again before the wave, because VMs may move meanwhile. See F-3.
    """
    blocked = [each for _, each in plan.body.blocked]
    waited_ms = draft.now_ms - min((each.since_ms for each in blocked), default=0)
    again_s = max(PLAN_AGAIN_S, min(waited_ms // WAITED_PARTS // SECOND_MS, PLAN_AGAIN_S_MAX))
    again_ms = draft.now_ms + again_s * SECOND_MS
    waits = any(not each.code.meaning.never_clears for each in blocked)
    waits = waits or any(each.waits.code.meaning.clears_early for each in plan.waves[:1])
    if plan.waves and (not waits or plan.waves[0].shown_ms <= again_ms):
        if maintenance.move_s and renewal_ms(plan) > again_ms:
            return Planning(renewal_ms(plan))
        return Due(plan.waves[0].number, plan.waves[0].shown_ms)
    later = [each.clears_ms for each in blocked if each.clears_ms > draft.now_ms]
    return Planning(min([again_ms, *later]))


def plan_failed(draft: Draft, failed: stimuli.PlanFailed) -> None:
    """Note that planning failed, and schedule another try."""
    maintenance = draft.maintenances.get(failed.maintenance)
    if maintenance is None or not maintenance.plan_wanted:
        return
    again = Planning(draft.now_ms + PLAN_AGAIN_S * SECOND_MS, failed.reason)
    later = move_phase(maintenance, phase_with(maintenance.phase, again))
    text = f"no plan could be made for {later.id}: {failed.reason}"
    draft.put("maintenance.unplanned", text, later)
    _wake_work(draft, later)


def gate_passed(draft: Draft, passed: stimuli.GatePassed) -> None:
    """Resume a maintenance whose gate has passed. See F-5."""
    maintenance = draft.maintenances.get(passed.maintenance)
    if maintenance is None:
        return
    phase = maintenance.phase
    if isinstance(phase, Checking):
        going_on = move_phase(maintenance, Planning())
    elif isinstance(phase, Halted) and phase.gate is not None:
        going_on = move_phase(maintenance, replace(phase, gate=None))
    else:
        return
    text = f"gate {maintenance.gate} lets {maintenance.id} go on"
    draft.put("maintenance.gate-passed", text, going_on)
    draft.look_at(maintenance.number)


def gate_failed(draft: Draft, failed: stimuli.GateFailed) -> None:
    """Stop a maintenance whose checks have failed. See F-5."""
    maintenance = draft.maintenances.get(failed.maintenance)
    if maintenance is not None and maintenance.running:
        stop(draft, maintenance, failed.reason)


def _movable(draft: Draft, number: int, *states: MaintenanceState, move: str) -> Maintenance:
    maintenance = known_maintenance(draft, number)
    if maintenance.state not in states:
        state = maintenance.state.value
        raise MaintenanceWrongState(maintenance=maintenance.id, state=state, asked=move)
    return maintenance


def apply_policy(draft: Draft, word: ApplyPolicy) -> None:
    """Put a policy in force and plan all unannounced hosts again.

    Announced work stays unless its time is closed now, and starts once the new budgets have room.
    Costs the hosts that maintenances work on.
    """
    if word.policy == draft.maintenance_policy:
        return
    before = draft.maintenance_policy
    applied = AppliedPolicy(FLEET_POLICY, draft.now_ms, draft.actor, word.policy)
    unseen = [
        operation
        for operation in draft.operations(("state", OperationState.ANNOUNCED.value))
        if waits_until_shown(draft, operation, operation.unseen_vms)
    ]
    draft.put("policy.applied", _sentence(before, word.policy), applied)
    for operation in unseen:
        if not waits_until_shown(draft, operation, operation.unseen_vms):
            transitions.renew(draft, operation)  # the notice counts from now. H-7
    for maintenance in tuple(draft.maintenances.values()):
        withdraw(draft, maintenance)
        maintenance = with_changed_pause(draft, maintenance, before)
        text = f"{maintenance.id} is planned by the new policy"
        plan_remaining_again(draft, maintenance, text)
        _plan_limits_again(draft, maintenance, text)


def _plan_limits_again(draft: Draft, maintenance: Maintenance, text: str) -> None:
    """Request a plan for the budgets of announced work, even if every host is announced."""
    working = draft.progress(maintenance.number).working
    at_work = isinstance(maintenance.phase, Working) or maintenance.keeps_announced
    if working and at_work and not maintenance.plan_wanted:
        planned = move_phase(maintenance, phase_with(maintenance.phase, Planning()))
        draft.put("maintenance.replanning", text, planned)


def _sentence(before: MaintenancePolicy, policy: MaintenancePolicy) -> str:
    parts = (
        pluralized(len(policy.budgets), "budget"),
        pluralized(len(policy.windows), "window"),
        pluralized(len(policy.freezes), "freeze"),
    )
    text = f"the maintenance policy has {', '.join(parts)}"
    if policy.confirm != before.confirm:
        acts = ", ".join(act.value for act in policy.confirm) or "nothing"
        text += f"; a second person confirms {acts} from now on"
    return text
