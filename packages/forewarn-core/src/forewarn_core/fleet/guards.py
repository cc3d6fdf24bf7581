"""Effects that the policy lets nobody cause alone. Source: P-8.

The guards belong to effects, whichever call has them. The call then waits for a second principal:
see `access/confirmations.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from forewarn_base.errors import CallerError
from forewarn_core.access.stimulus import AddToken, Grant, ResumeToken
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.impact import SECOND_MS, TRAITS, Cause, TargetKind
from forewarn_core.fleet.lifts import lift_of
from forewarn_core.fleet.stimulus import (
    Acknowledge,
    ApplyPolicy,
    AskDeferral,
    ChangeTopology,
    ChooseStarts,
    DeclareMaintenance,
    HoldHosts,
    NameFirstGroup,
    PlaneStimulus,
    RequestMaintenance,
    StartMaintenance,
    WithdrawDeferral,
)
from forewarn_core.fleet.topology import Group, Vm
from forewarn_core.planning.policy import ConfirmedAct, MaintenancePolicy


class ConfirmationNeeded(CallerError):
    """The policy requires a second principal's confirmation. Source: P-8."""

    code = "confirmation-needed"
    status = 409
    message = "The policy requires a second operator to confirm this call."
    advice = "Send the call through the operator API, the page or `forewarn`. Nothing was done."
    #: Form of the call that waits instead, with the names that a selector matches now: a later
    #: change of labels must not change what the second person confirms. None: the call itself.
    pinned: Mapping[str, object] | None = None


def needs_second_person(draft: Draft, stimulus: PlaneStimulus) -> bool:
    """Whether the policy requires a second principal for a stimulus of the step's caller.

    Call it on the state before the stimulus. The step decides, so that parallel calls of one
    principal count each other, and each way to the same effect has the same guard.
    """
    confirm = draft.maintenance_policy.confirm
    if draft.authority is None or not confirm:
        return False
    if ConfirmedAct.START_MAINTENANCE in confirm:
        draft.unconfirmed_by = draft.authority.principal
    if isinstance(stimulus, ApplyPolicy) and _is_weaker(stimulus.policy, draft.maintenance_policy):
        return True
    guarded = [act for act in _acts(draft, stimulus) if act in confirm]
    lifts = [each for act in guarded if (each := lift_of(draft, act))]
    if len(lifts) < len(guarded):
        return True
    draft.lifts = lifts
    return False


def _is_weaker(after: MaintenancePolicy, before: MaintenancePolicy) -> bool:
    """Whether a policy leaves to one person what now needs two: nobody undoes a guard alone."""
    if not set(before.confirm) <= set(after.confirm):
        return True
    return ConfirmedAct.START_MAINTENANCE in before.confirm and (
        after.confirm_above > before.confirm_above
        or after.confirm_period_s < before.confirm_period_s
    )


def _acts(draft: Draft, stimulus: PlaneStimulus) -> Iterator[ConfirmedAct]:
    """Yield the policy's names for the effects of a stimulus."""
    match stimulus:
        case (
            Acknowledge()
            | ChooseStarts()
            | AskDeferral()
            | WithdrawDeferral()
            | NameFirstGroup()
            | HoldHosts()
        ):
            if _answers_for_owner(stimulus):
                yield ConfirmedAct.ANSWER
        case ApplyPolicy():
            yield ConfirmedAct.APPLY_POLICY
        case Grant() | AddToken() | ResumeToken():
            yield ConfirmedAct.CREATE_PRINCIPAL
        case ChangeTopology():
            yield from _acts_of_layout(draft, stimulus)
        case RequestMaintenance() | StartMaintenance() | DeclareMaintenance():
            if _affects_too_many(draft, _hosts_of(draft, stimulus)):
                yield ConfirmedAct.START_MAINTENANCE
            if getattr(stimulus, "cause", None) in {Cause.HARDWARE_FAILURE, Cause.HOST_LOST}:
                yield ConfirmedAct.FAIL_HOST


def _acts_of_layout(draft: Draft, change: ChangeTopology) -> Iterator[ConfirmedAct]:
    if any(_is_asked_less(draft, group) for group in change.groups):
        yield ConfirmedAct.ANSWER
    if _changes_who_answers(draft, change):
        yield ConfirmedAct.MOVE_ADDRESS


def _answers_for_owner(
    stimulus: Acknowledge
    | ChooseStarts
    | AskDeferral
    | WithdrawDeferral
    | NameFirstGroup
    | HoldHosts,
) -> bool:
    """Whether a stimulus answers for an owner; VMs without an owner have only operators."""
    match stimulus:
        case Acknowledge():
            return True
        case ChooseStarts():
            return any(each.owner for each in stimulus.choices)
        case AskDeferral() | WithdrawDeferral():
            return any(owner for _, owner in stimulus.places)
        case NameFirstGroup() | HoldHosts():
            return bool(stimulus.owner)


def _hosts_of(
    draft: Draft, request: RequestMaintenance | StartMaintenance | DeclareMaintenance
) -> Iterable[str]:
    """Return the hosts that work affects; unknown names are refused elsewhere."""
    if not isinstance(request, RequestMaintenance):
        maintenance = draft.maintenances.get(request.maintenance)
        return maintenance.hosts if maintenance else ()
    if TRAITS[request.cause].target is TargetKind.HOST:
        return request.targets
    vms = draft.topology.vms
    return [vms[name].host for name in request.targets if name in vms]


def _affects_too_many(draft: Draft, hosts: Iterable[str]) -> bool:
    """Whether the caller would affect more hosts than the policy allows one principal.

    Hosts of the caller's live maintenances and other live work count, whenever it was requested,
    and hosts of work that has ended within `confirm_period`. Work that a second person has
    confirmed does not count, nor does work that was cancelled before it started.
    """
    assert draft.authority is not None
    policy, caller = draft.maintenance_policy, draft.authority.principal
    since_ms = draft.now_ms - policy.confirm_period_s * SECOND_MS
    times_ms = draft.state.affected_ms.get(caller, {})
    affected = {host for host, at_ms in times_ms.items() if at_ms > since_ms}
    affected.update(draft.state.unconfirmed.get(caller, {}).values())
    for maintenance in draft.maintenances.values():
        if maintenance.unconfirmed_by == caller:
            affected.update(maintenance.hosts)
    return len(affected.union(hosts)) > policy.confirm_above


def _is_asked_less(draft: Draft, after: Group) -> bool:
    """Whether a change of a listening group makes approvals or notices unneeded, or others'."""
    before = draft.topology.groups.get(after.name)
    if before is None or not draft.enabled(after.name):
        return False
    return (
        after.owner != before.owner
        or after.kind is not before.kind
        or after.fault_domain_count != before.fault_domain_count
        or not after.automatic_approval <= before.automatic_approval
        or after.terminate_notice_s < before.terminate_notice_s
        or after.strict_approval < before.strict_approval
        or after.reimage_notice < before.reimage_notice
        or after.approves_when_down > before.approves_when_down
    )


def _changes_who_answers(draft: Draft, change: ChangeTopology) -> bool:
    """Whether a listening group gets or loses a VM, or one of its VMs another identity.

    A VM that is removed, and added again with another address, is such a change, too.
    """
    vms = draft.topology.vms
    after: dict[str, Vm | None] = {vm.name: vm for vm in change.vms}
    after |= {name: None for kind, name in change.removed if kind == "vm"}
    for name, vm in after.items():
        before = vms.get(name)
        if _identity(before) != _identity(vm):
            groups = {each.group for each in (before, vm) if each is not None}
            if any(map(draft.enabled, groups)):
                return True
    return False


def _identity(vm: Vm | None) -> tuple[object, ...]:
    """Return what decides which machine answers as a VM, and for which group. Source: S-6."""
    return (vm.group, {*vm.addresses}, vm.interface, vm.instance_id) if vm else ()
