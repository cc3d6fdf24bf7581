"""Two-person confirmation: calls that wait until a second principal confirms them. Source: P-8.

A call that needs confirmation is stored as received. The confirmation removes and executes the call
in one transaction. So each call is executed at most once, even across a restart.

The guards belong to effects, whichever call has them. The second person must be another one: a
token counts for its holder and for everybody who may know its secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from forewarn.core.access import Authority, Confirmation, Permission
from forewarn.core.draft import Draft
from forewarn.core.impact import SECOND_MS, TRAITS, Cause, TargetKind
from forewarn.core.state import State
from forewarn.core.stimulus import (
    Acknowledge,
    AddToken,
    ApplyPolicy,
    AskConfirmation,
    ChangeTopology,
    Confirmed,
    DropConfirmation,
    Grant,
    PlaneStimulus,
    RequestMaintenance,
    ResumeToken,
    StartMaintenance,
)
from forewarn.core.topology import Group, Vm
from forewarn.errors import CallerError
from forewarn.planning.policy import ConfirmedAct, MaintenancePolicy
from forewarn.values import replace

#: Maximum number of calls that wait for confirmation, of all principals and of one.
WAITING_MAX, OF_PRINCIPAL_MAX = 100, 10


class ConfirmationNeeded(CallerError):
    """The policy requires a second principal's confirmation. Source: P-8."""

    code = "confirmation-needed"
    status = 409
    message = "The policy requires a second operator to confirm this call."
    advice = "Send the call through the operator API, the page or `forewarn`. Nothing was done."
    #: Form of the call that waits instead, with the names that a selector matches now: a later
    #: change of labels must not change what the second person confirms. None: the call itself.
    pinned: Mapping[str, object] | None = None


class ConfirmationsFull(CallerError):
    """Too many calls wait for confirmation."""

    code = "confirmations-full"
    status = 429
    message = "{limit} calls{whose} wait for confirmation already."
    advice = "Confirm some (`forewarn confirmation list`), or wait until they expire."


class UnknownConfirmation(CallerError):
    """The call to confirm does not wait for confirmation."""

    code = "unknown-confirmation"
    status = 404
    message = "No call {id} waits for confirmation: it was confirmed, dropped or never made."
    advice = "See `forewarn confirmation list` and `forewarn history`."


class OwnConfirmation(CallerError):
    """The caller and the second principal may be the same person."""

    code = "own-confirmation"
    status = 403
    message = "{principal} cannot confirm the call {id} of {asker}: {reason}."
    advice = (
        "Ask another operator, who signs in (a login, a certificate, the Unix socket) or has a "
        "token from somebody else. See 'Access for a team' in the documentation."
    )


class AskerNotPermitted(CallerError):
    """The caller of a waiting call has lost the permission for the call, or the token."""

    code = "asker-not-permitted"
    status = 409
    message = "{asker}, who made the call {id}, may not make it any more."
    advice = "Refuse it (`forewarn confirmation refuse {id}`), or make the call yourself."


def guard(draft: Draft, stimulus: PlaneStimulus) -> bool:
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
    return any(act in confirm for act in _acts(draft, stimulus))


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
        case Acknowledge():
            yield ConfirmedAct.ANSWER
        case ApplyPolicy():
            yield ConfirmedAct.APPLY_POLICY
        case Grant() | AddToken() | ResumeToken():
            yield ConfirmedAct.CREATE_PRINCIPAL
        case ChangeTopology():
            if any(_is_asked_less(draft, group) for group in stimulus.groups):
                yield ConfirmedAct.ANSWER
            if _changes_who_answers(draft, stimulus):
                yield ConfirmedAct.MOVE_ADDRESS
        case RequestMaintenance() | StartMaintenance():
            if _affects_too_many(draft, _hosts_of(draft, stimulus)):
                yield ConfirmedAct.START_MAINTENANCE
            if getattr(stimulus, "cause", None) in {Cause.HARDWARE_FAILURE, Cause.HOST_LOST}:
                yield ConfirmedAct.FAIL_HOST


def _hosts_of(draft: Draft, asked: RequestMaintenance | StartMaintenance) -> Iterable[str]:
    """Return the hosts that work affects; unknown names are refused elsewhere."""
    if isinstance(asked, StartMaintenance):
        maintenance = draft.maintenances.get(asked.maintenance)
        return maintenance.hosts if maintenance else ()
    if TRAITS[asked.cause].target is TargetKind.HOST:
        return asked.targets
    vms = draft.topology.vms
    return [vms[name].host for name in asked.targets if name in vms]


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
    known = draft.topology.vms
    after: dict[str, Vm | None] = {vm.name: vm for vm in change.vms}
    after |= {name: None for kind, name in change.removed if kind == "vm"}
    for name, vm in after.items():
        before = known.get(name)
        if _identity(before) != _identity(vm):
            groups = {each.group for each in (before, vm) if each is not None}
            if any(map(draft.enabled, groups)):
                return True
    return False


def _identity(vm: Vm | None) -> tuple[object, ...]:
    """Return what decides which machine answers as a VM, and for which group. Source: S-6."""
    return (vm.group, {*vm.addresses}, vm.interface, vm.instance_id) if vm else ()


def persons(state: State, authority: Authority) -> frozenset[str]:
    """Return the principals who may have made a call: the caller, and who knows its token."""
    token = state.tokens.get(authority.token)
    return frozenset((authority.principal, *(token.makers if token else ())))


def holds(state: State, authority: Authority, permission: Permission, *, now_ms: int) -> bool:
    """Whether a caller still has a permission for the whole fleet."""
    if authority.built_in:
        return True
    if authority.token:
        token = state.tokens.get(authority.token)
        if token is None or token.principal != authority.principal:
            return False
        return token.is_accepted(now_ms) and token.bearer.owners_for(permission) is None
    principals = [each for name in authority.names if (each := state.principals.get(name))]
    return any(each.owners_for(permission) is None for each in principals)


def ask(draft: Draft, stimulus: AskConfirmation) -> None:
    """Store a call until it is confirmed or expires; a repeated call is stored once.

    Raises:
        ConfirmationsFull: too many calls wait.
    """
    expire(draft)
    waiting = draft.state.confirmations
    call = stimulus.call
    if any(each.is_same_as(call) for each in waiting.values()):
        return
    if len(waiting) >= WAITING_MAX:
        raise ConfirmationsFull(limit=WAITING_MAX, whose="")
    if sum(each.principal == call.principal for each in waiting.values()) >= OF_PRINCIPAL_MAX:
        raise ConfirmationsFull(limit=OF_PRINCIPAL_MAX, whose=f" of {call.principal}")
    expires_ms = draft.now_ms + draft.maintenance_policy.confirm_within_s * SECOND_MS
    asked = replace(call, number=draft.next_number(), expires_ms=expires_ms)
    text = f"{asked.id} of {asked.principal} waits for a second person: {asked.words}"
    draft.put("confirmation.asked", text, asked)


def confirm(draft: Draft, stimulus: Confirmed) -> None:
    """Remove a confirmed call; the same step then executes the call.

    Raises:
        UnknownConfirmation, OwnConfirmation: this principal cannot confirm the call.
        AskerNotPermitted: the call's own principal has lost its permission.
    """
    known, second = _waiting(draft, stimulus.number), draft.authority
    assert second is not None, "somebody confirms"
    asker = known.principal
    same = persons(draft.state, known.authority) & persons(draft.state, second)
    if same:
        reason = f"both count as {', '.join(sorted(same))}, who may know the secret of a token"
        if second.principal == asker:
            reason = "both are the same principal"
        raise OwnConfirmation(id=known.id, principal=second.principal, asker=asker, reason=reason)
    needed = Permission(known.permission) if known.permission else None
    if needed is None or not holds(draft.state, known.authority, needed, now_ms=draft.now_ms):
        raise AskerNotPermitted(id=known.id, asker=asker)
    text = f"{known.id} of {asker} is confirmed by {second.principal}: {known.words}"
    actor, draft.actor = draft.actor, f"operator {second.principal}"
    draft.remove("confirmation.given", text, known)
    draft.actor = actor


def drop(draft: Draft, stimulus: DropConfirmation) -> None:
    """Remove a call that its principal withdraws or another principal refuses.

    Raises:
        UnknownConfirmation: no such call waits.
    """
    known = _waiting(draft, stimulus.number)
    if known.principal == stimulus.principal:
        text = f"{known.id} is withdrawn by {known.principal}: {known.words}"
        draft.remove("confirmation.withdrawn", text, known)
    else:
        text = f"{known.id} of {known.principal} is refused by {stimulus.principal}"
        draft.remove("confirmation.refused", f"{text}: {known.words}", known)


def drop_all(draft: Draft, reason: str) -> None:
    """Drop every waiting call."""
    for each in tuple(draft.state.confirmations.values()):
        text = f"{each.id} of {each.principal} is dropped: {reason}: {each.words}"
        draft.remove("confirmation.dropped", text, each)


def _waiting(draft: Draft, number: int) -> Confirmation:
    known = draft.state.confirmations.get(number)
    if known is None or known.expires_ms <= draft.now_ms:
        raise UnknownConfirmation(id=f"c-{number}")
    return known


def expire(draft: Draft) -> None:
    """Drop calls that expired without confirmation."""
    for each in tuple(draft.state.confirmations.values()):
        if each.expires_ms <= draft.now_ms:
            text = f"{each.id} of {each.principal} has expired: {each.words}"
            draft.remove("confirmation.expired", text, each)
