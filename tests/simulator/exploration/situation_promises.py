"""What must hold in every situation of the explored core, however it came about.

The rules are those of the contract's invariants, and none of the core's own.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from forewarn_core.fleet.indexes import places_of
from forewarn_core.fleet.lifecycle import Alert, EventState, OperationState
from tests.simulator.checkers.contract import is_owed_notice, views_owed
from tests.simulator.checkers.document_checker import DocumentChecker
from tests.simulator.world.crash_points import Violation

if TYPE_CHECKING:
    from forewarn_core.fleet.lifecycle import Operation
    from forewarn_core.fleet.policy import NoticePolicy
    from forewarn_core.fleet.state import State
    from tests.simulator.exploration.situations import Situation

S, E = OperationState, EventState
#: How exactly it is kept when a group asked last.
COARSE_MS = 60_000


def check_situation(situation: Situation) -> None:
    """Check what must hold whatever has happened."""
    state = situation.state
    topology = state.topology
    for event in state.events.values():
        if not event.live or event.operation not in state.operations:
            raise Violation("13", f"event {event.id} has no operation that lives")
        alone = event.state is E.SCHEDULED and not topology.groups[event.group].strict_approval
        if alone and event.approved_by:
            raise Violation("1", f"event {event.id} has an approval that does not count")
    for operation in state.operations.values():
        _check_told(operation, situation)
    for group in state.enrolments:
        if group not in topology.groups:
            raise Violation("B-2", f"{group} is enabled and is no more")
    owed = {view for group in state.enrolments for view in views_owed(group, topology)}
    if owed != set(state.views):
        raise Violation("S-3", f"the documents are {sorted(state.views)}, not {sorted(owed)}")
    DocumentChecker(state, Counter()).check_groups(state.enrolments)
    _check_found(state)
    _check_deadlines(state)


def _check_found(state: State) -> None:
    """Every operation is found where it is, and nobody is under work that does not name them."""
    topology = state.topology
    found: dict[object, set[int]] = {}
    for operation in state.operations.values():
        for place in places_of(operation, topology):
            found.setdefault(place, set()).add(operation.number)
        if operation.state is S.RUNNING and not operation.of_vm:
            left_out = set(topology.vms_on(operation.host)) - set(operation.vms)
            if left_out:
                raise Violation("1", f"{left_out} are under {operation.id} and were not told")
    if found != state.places.all():
        raise Violation("12", f"operations are found at {state.places.all()}, not {found}")


def _check_told(operation: Operation, situation: Situation) -> None:
    """S-5, L-2: every VM that an announced or running operation hits is named, once."""
    state = situation.state
    if operation.state is S.PLANNED:
        return
    events = [state.events.get(each) for each in operation.events]
    named = [name for event in events if event is not None for name in event.resources]
    if sorted(named) != sorted(() if operation.silent else operation.vms) or None in events:
        raise Violation("1", f"{operation.id} hits {operation.vms}, its events name {named}")
    there = not operation.of_vm or operation.vms[0] in state.topology.vms
    if operation.silent and there and is_owed_notice(operation, state.topology):
        raise Violation("6", f"the VM of {operation.id} asked to be told")


def _check_deadlines(state: State) -> None:
    """What time alone makes due is known by its time."""
    live = state.operations.values()
    starts = {o.number: o.not_before_ms for o in live if o.state is S.ANNOUNCED}
    looks = {number: at for (number, why), at in state.looks._at.items() if why == "start"}
    if looks != starts:
        raise Violation("12", f"NotBefore comes at {looks}, not at {starts}")
    for operation in live:
        running = operation.state is S.RUNNING and operation.alert is Alert.NONE
        if running != (operation.number in state.ends._at):
            raise Violation("L-8", f"nobody looks whether {operation.id} takes too long")
    if set(state.polls._at) != set(state.enrolments):
        raise Violation("B-2", "nobody looks whether a group is silent")


def check_in_time(situation: Situation, policy: NoticePolicy) -> None:
    """B-2 and L-8: silent groups are disabled, and long work raises an alert. Source: B-2."""
    state, now_ms = situation.state, situation.now_ms
    for operation in state.operations.values():
        if operation.state is S.RUNNING and operation.alert is Alert.NONE:
            since_ms = operation.execution.since_ms
            allowed_ms = (max(operation.duration_s, 0) + policy.overdue_after_s) * 1000
            if since_ms + allowed_ms < now_ms:
                raise Violation("13", f"{operation.id} hangs, and nobody was alerted")
    for enrolment in state.enrolments.values():
        if enrolment.polled_ms + policy.disable_after_s * 1000 + 2 * COARSE_MS < now_ms:
            raise Violation("B-2", f"{enrolment.group} is silent for too long and still asked")
