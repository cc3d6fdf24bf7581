"""The return of VMs to the host that they left for a maintenance: one held operation for each.

Source: F-1, F-3. Each return is announced and approved like other work on a VM. A return is
requested as soon as the VMs have left, independently of the maintenance's end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.impact import TRAITS, Cause, Impact, Source
from forewarn.core.lifecycle import FollowedBy, Operation
from forewarn.core.maintenance import TargetState
from forewarn.core.room import lack_of_room
from forewarn.core.topology import Health
from forewarn.planning.blockers import Blocker, Code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forewarn.core.draft import Draft
    from forewarn.core.maintenance import Maintenance
    from forewarn.core.policy import NoticePolicy
    from forewarn.core.stimulus import CreateMaintenance


def return_time_s(asked: CreateMaintenance, policy: NoticePolicy) -> int:
    """Return how long the VMs of a host take to return, in seconds, notice included; 0: they stay.

    The return takes as long as the departure did.
    """
    return policy.notice_s[Impact.FREEZE] + asked.move_s if asked.return_vms else 0


def followed_by(maintenance: Maintenance) -> FollowedBy:
    """Return the work that follows once the VMs have left a host."""
    if maintenance.cause is Cause.LIVE_MIGRATION:
        return FollowedBy.NOTHING
    return FollowedBy.RETURN if maintenance.return_s else FollowedBy.WORK


def plan_returns(draft: Draft, move: Operation) -> None:
    """Request the return of the VMs that a move took away; O(its VMs)."""
    if move.followed_by is not FollowedBy.RETURN:
        return
    traits = TRAITS[Cause.LIVE_MIGRATION]
    for name in move.vms:
        vm = draft.topology.vms.get(name)
        if vm is None or vm.host == move.host:
            continue
        number = draft.next_number()
        back = Operation(
            number,
            number,
            Cause.LIVE_MIGRATION,
            Impact.FREEZE,
            Source.PLATFORM,
            routine=True,
            host=vm.host,
            vms=(name,),
            of_vm=True,
            description=traits.description,
            duration_s=traits.duration_s,
            notice_s=draft.policy.notice_s[Impact.FREEZE],
            created_ms=draft.now_ms,
            destination=move.host,
            actor=move.actor,
            maintenance=move.maintenance,
        )
        text = f"{back.id}: vm {name} is to return to {move.host} from {vm.host}"
        draft.put("operation.planned", text, back)
        draft.look_at(number)


def returns_to(draft: Draft, maintenance: int, host: str) -> Iterator[Operation]:
    """Yield the unfinished returns of VMs to a host of a maintenance."""
    for each in draft.operations_at(("destination", host)):
        if each.is_return and each.maintenance == maintenance:
            yield each


def return_blocker(draft: Draft, operation: Operation) -> Blocker | None:
    """Return why a VM cannot return yet; None if it can.

    The VM waits until its maintenance has finished the host or has ended, and until the host has
    room.
    """
    maintenance = draft.maintenances.get(operation.maintenance)
    since_ms = operation.created_ms
    if maintenance is not None:
        target = draft.target(maintenance.number, operation.destination)
        under_way = draft.operation(target.operation) if target else None
        at_work = under_way is not None and not under_way.is_return
        if target is None or target.state is TargetState.FAILED or at_work:
            text = f"{maintenance.id} is not done with host {operation.destination}"
            return Blocker(Code.HOST_BUSY, maintenance.id, since_ms, text=text)
    vm = draft.topology.vms.get(operation.target)
    host = draft.topology.hosts.get(vm.host) if vm else None
    if host is not None and host.health is Health.FAILED:
        text = f"host {host.name}, where vm {operation.target} is, has failed"
        return Blocker(Code.HOST_FAILED, host.name, since_ms, text=text)
    return lack_of_room(draft, operation)
