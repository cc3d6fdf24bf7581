"""The judge's book of what became durable: every change is held against the promises.

The rules here are written a second time, from the contract, and share no code with the core's;
what is shown, begun and answered is judged in `invariants.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.lifecycle import EventState, OperationState
from forewarn.core.state import State
from forewarn.sim.crash import Violation
from forewarn.wire import Document

if TYPE_CHECKING:
    from forewarn.core.document import View
    from forewarn.core.lifecycle import Event, Operation
    from forewarn.core.state import Changes
    from forewarn.core.topology import Topology
    from forewarn.sim.agenda import Agenda

OWED_S = {"Freeze": 900, "Reboot": 900, "Redeploy": 600, "Preempt": 30, "Terminate": 300}
FAULTS = {"hardware-failure", "host-lost"}
ROUTINE = {
    *("live-migration", "host-update", "host-reboot", "network-update"),
    *("reboot", "redeploy", "reimage"),
}
SHOWN = {"scheduled": "Scheduled", "approved": "Scheduled", "started": "Started"}
ABORT_TRIES = 8
"""How often a driver that does not hear is told that an operation has ended."""
NOTICE_TOLERANCE_MS = 1500
"""How far the service's clock may be off true time over a restart, both ways, in ms."""

S, E = OperationState, EventState


class Ledger:
    """Follows every durable change, and judges it by itself and by what went before."""

    def __init__(self, agenda: Agenda) -> None:
        """Begin with an empty fleet."""
        self.agenda = agenda
        #: What is durable now.
        self.mirror = State()
        #: Every operation and event that ever was, as it was last.
        self.operations: dict[int, Operation] = {}
        self.events: dict[str, Event] = {}
        #: Event -> VMs that have asked to approve it, whatever became of that.
        self.asked: dict[str, dict[str, None]] = {}
        self.acknowledged: set[str] = set()
        #: (operation, attempt) of which its driver has said that it is over, or has failed.
        self.reported: set[tuple[int, int]] = set()
        #: Operation -> since when its driver is owed the word that it has ended, in true ms, or
        #: since when the service runs that owes it.
        self.owed: dict[int, int] = {}
        #: How often the state was loaded.
        self.loads = 0
        #: Operation -> times its driver was told since that it ended without it, until it heard.
        self.told: dict[int, int] = {}
        #: Operation -> times its operator asked to try again.
        self.retries: dict[int, int] = {}
        #: Operation -> true ms from when it was announced until it started, once it has.
        self.waited_ms: dict[int, int] = {}
        self._announced_ms: dict[int, int] = {}
        #: Operation -> true time its notice was first shown, less what clocks had jumped by then.
        self.first_shown: dict[int, int] = {}
        #: How far new processes' clocks were ahead of those before them, summed up, in ms. Only
        #: the system's clock outlives a process: what it was put right by is no broken promise.
        self.jumped_ms = 0
        #: View -> every (incarnation, events) it ever durably had.
        self.ever: dict[str, dict[int, list[object]]] = {}
        self._gone: dict[str, set[str]] = {}
        self.groups_of: dict[str, set[str]] = {}
        self.last_entry_ms = 0

    def loaded(self) -> None:
        """The state was read from the store: a start, or a look after a lost commit."""
        self.loads += 1
        self.owed = dict.fromkeys(self.owed, self.agenda.now_ms)
        self.told = {number: tries for number, tries in self.told.items() if tries >= ABORT_TRIES}

    def durable(self, changes: Changes) -> None:
        """Take a change that has just become durable, and judge it."""
        topology = changes.topology or self.mirror.topology
        for vm in changes.vms.values():
            if vm is not None:
                self.groups_of.setdefault(vm.name, set()).add(vm.group)
        for event in changes.events.values():
            self._judge_event(event, topology, changes)
        for operation in changes.operations.values():
            self._judge_operation(operation, topology, changes)
        reseated = self._judge_reseated(changes)
        for key, view in changes.views.items():
            self._judge_view(key, view, went_on=view is not None and view.group in reseated)
        self.mirror.adopt(changes)
        self.operations.update(changes.operations)
        self.events.update(changes.events)
        if changes.topology is not None:
            self._judge_arrivals()
        for group in {event.group for event in changes.events.values()} | {
            view.group for view in changes.views.values() if view
        }:
            self._judge_group(group)

    # ---- one record at a time ------------------------------------------------------------------

    def _judge_event(self, event: Event, topology: Topology, changes: Changes) -> None:
        before = self.events.get(event.id)
        if before is None:
            machines = [topology.vms[name] for name in event.resources]
            domains = {
                (topology.hosts[vm.host].zone, topology.hosts[vm.host].update_domain)
                for vm in machines
            }
            if len(domains) > 1:
                raise Violation("4", f"event {event.id} spans update domains {sorted(domains)}")
            if not machines or any(vm.group != event.group for vm in machines):
                raise Violation("7", f"event {event.id} names VMs of another group")
            if event.operation not in changes.operations:
                raise Violation("10", f"event {event.id} has no operation")
        else:
            if (before.group, before.resources) != (event.group, event.resources):
                raise Violation("3", f"id {event.id} is used again for something else")
            if before.approved_by != event.approved_by[: len(before.approved_by)]:
                raise Violation("11", f"an approval of {event.id} is lost")
            if not before.live and event.live:
                raise Violation("3", f"event {event.id} has come back")
            operation = changes.operations.get(event.operation) or self.operations[event.operation]
            approved = event.state is E.APPROVED and before.state is E.SCHEDULED
            if approved and not self._is_approved(event.id, operation, topology, changes):
                raise Violation("1", f"event {event.id} counts as approved by {event.approved_by}")

    def _judge_operation(self, operation: Operation, topology: Topology, changes: Changes) -> None:
        before = self.operations.get(operation.number)
        if before is None and operation.number <= self.mirror.last_number:
            raise Violation("3", f"{operation.id} is numbered twice")
        if operation.state is S.NOTICED:
            self._announced_ms.setdefault(operation.number, self.agenda.now_ms)
            self._judge_notice(operation, before, topology)
        started = operation.state is S.RUNNING and (before is None or before.state is not S.RUNNING)
        if started:
            announced_ms = self._announced_ms.get(operation.number)
            if announced_ms is not None:
                self.waited_ms[operation.number] = self.agenda.now_ms - announced_ms
            self._judge_start(operation, before, topology, changes)
        if operation.state in {S.SUCCEEDED, S.FAILED} and not operation.started_ms:
            raise Violation("9", f"{operation.id} has ended and never started")
        self._judge_abort(operation, before)
        for event_id in operation.events:
            event = changes.events.get(event_id) or self.events.get(event_id)
            if event is None or event.live != operation.live:
                raise Violation("13", f"{operation.id} and event {event_id} do not end together")

    def _judge_abort(self, operation: Operation, before: Operation | None) -> None:
        """L-7: a driver is told of every end that came without it, whatever crashes."""
        if operation.abort_owed:
            self.owed.setdefault(operation.number, self.agenda.now_ms)
        if before is None or operation.abort_owed:
            return
        if before.abort_owed and self.told.get(operation.number, 0) < ABORT_TRIES:
            raise Violation("L-7", f"the driver was not told that {operation.id} has ended")
        alone = (operation.number, operation.attempt) not in self.reported
        if before.state is S.RUNNING and not operation.live and alone:
            raise Violation("L-7", f"{operation.id} ends and its driver is owed nothing")

    def _judge_notice(
        self, operation: Operation, before: Operation | None, topology: Topology
    ) -> None:
        """Invariant 6: notice is at least what is owed, from when it was shown."""
        if operation.silent:
            return
        owed_s = OWED_S[operation.impact.value]
        if operation.impact.value == "Terminate" and (before is None or before.state is S.PLANNED):
            vm = topology.vms.get(operation.vms[0])
            owed_s = topology.groups[vm.group].terminate_notice_s if vm else owed_s
        since_ms = operation.shown_ms or operation.noticed_ms
        if operation.not_before_ms - since_ms < owed_s * 1000:
            raise Violation(
                "6",
                f"{operation.id} gives {(operation.not_before_ms - since_ms) / 1000} s of notice,"
                f" {owed_s} s are owed",
            )
        if before is not None and before.not_before_ms > operation.not_before_ms:
            raise Violation("6", f"{operation.id} was put forward")

    def _judge_start(
        self,
        operation: Operation,
        before: Operation | None,
        topology: Topology,
        changes: Changes,
    ) -> None:
        """Invariant 1 and 5: its time has come, or all approved, or a fault; and it may."""
        if operation.cause.value in FAULTS:
            return
        noticed = operation if before is None else before
        due = bool(noticed.shown_ms) and noticed.not_before_ms <= operation.started_ms
        if due:
            self._judge_true_notice(operation)
        else:
            self._judge_early(operation, topology, changes)
        left_out = set(topology.vms_on(operation.host)) - set(operation.vms)
        if left_out and not operation.of_vm:
            raise Violation("1", f"{operation.id} disturbs {sorted(left_out)}, who were not told")
        self._judge_domains(operation, topology, changes)

    def _judge_true_notice(self, operation: Operation) -> None:
        """N-4: by true time, too, whatever the service's clock did."""
        shown_ms = self.first_shown.get(operation.number)
        if shown_ms is None or operation.silent:
            return
        given_ms = self.agenda.now_ms + self.jumped_ms - shown_ms
        if given_ms < OWED_S[operation.impact.value] * 1000 - NOTICE_TOLERANCE_MS:
            raise Violation("6", f"{operation.id} started {given_ms / 1000} s after it was shown")

    def _judge_early(self, operation: Operation, topology: Topology, changes: Changes) -> None:
        waiting = [
            event_id
            for event_id in operation.events
            if self._is_asked(self._group_of(event_id, changes), changes)
        ]
        if not waiting and operation.asked_ms > operation.started_ms:
            raise Violation("1", f"{operation.id} started before its time")
        for event_id in waiting:
            if not self._is_approved(event_id, operation, topology, changes):
                raise Violation("1", f"{operation.id} started without approval of {event_id}")
        if operation.impact.value != "Terminate":
            return
        for other in self.mirror.operations.values():
            sibling = changes.operations.get(other.number, other)
            if (
                sibling.request == operation.request
                and sibling.state is S.NOTICED
                and sibling.not_before_ms == operation.not_before_ms
                and not all(
                    self._is_approved(each, sibling, topology, changes)
                    for each in sibling.events
                    if self._is_asked(self._group_of(each, changes), changes)
                )
            ):
                raise Violation("1", f"{operation.id} did not wait for its sibling {sibling.id}")

    def _judge_domains(self, operation: Operation, topology: Topology, changes: Changes) -> None:
        """Invariant 5: one fault domain of a group at a time, by routine work."""
        place, groups = _place_and_groups(operation, topology)
        running = {**self.mirror.operations, **changes.operations}
        for other in running.values():
            if other.number == operation.number or other.state is not S.RUNNING:
                continue
            if other.host == operation.host and not (other.of_vm or operation.of_vm):
                raise Violation("5", f"{operation.id} and {other.id} work on the same host")
            if not (_is_routine(operation) and _is_routine(other)):
                continue
            elsewhere, theirs = _place_and_groups(other, topology)
            if groups & theirs and elsewhere != place:
                raise Violation(
                    "5",
                    f"{operation.id} and {other.id} disturb two fault domains of {groups & theirs}",
                )

    def _judge_arrivals(self) -> None:
        """Nobody is on a host in the middle of work there without being told. Source: L-5, S-5."""
        for operation in self.mirror.operations.values():
            if operation.state is S.RUNNING and not operation.of_vm:
                there = set(self.mirror.topology.vms_on(operation.host))
                if there - set(operation.vms):
                    untold = sorted(there - set(operation.vms))
                    raise Violation("1", f"{untold} came to {operation.host}, under {operation.id}")

    # ---- documents -----------------------------------------------------------------------------

    def _judge_reseated(self, changes: Changes) -> set[str]:
        """Invariant 2 for VMs that read another document of their group from now on (S-3).

        Returns:
            the groups where VMs do.
        """
        groups: set[str] = set()
        if changes.topology is None:
            return groups
        before, after = self.mirror.topology, changes.topology
        for name, vm in after.vms.items():
            known, group = before.vms.get(name), after.groups[vm.group]
            if known is None or known.group != vm.group:
                continue
            if known is vm and before.groups[vm.group] is group:
                continue
            old, new = before.view_of(name), after.view_of(name)
            if old == new or vm.group not in self.mirror.enrolments:
                continue
            groups.add(vm.group)
            was = self.mirror.views[old].document
            found = changes.views.get(new) or self.mirror.views[new]
            now = found.document
            if now != was and now.incarnation <= was.incarnation and now.events != was.events:
                text = f"{name} read {old} at {was.incarnation}, reads {new} at {now.incarnation}"
                raise Violation("2", text)
        return groups

    def _judge_view(self, key: str, view: View | None, *, went_on: bool) -> None:
        """Invariants 2 and 3, for what became durable."""
        before = self.mirror.views.get(key)
        if view is None:
            self._gone.pop(key, None)
            return
        now, gone = view.document, self._gone.setdefault(key, set())
        if went_on:
            pass  # judged with what its readers read before
        elif before is None:  # with its group, or from where the document all share is
            shared = self.mirror.views.get(view.group)
            since = shared.document if shared else Document(0, ())
            if now.incarnation != since.incarnation + (now.events != since.events):
                raise Violation("2", f"{key} begins at incarnation {now.incarnation}")
        elif now != before.document:
            if now.events == before.document.events:
                raise Violation("2", f"{key} moved to {now.incarnation} without a change")
            if now.incarnation != before.document.incarnation + 1:
                was = before.document.incarnation
                raise Violation("2", f"{key} went from {was} to {now.incarnation} with a change")
            ids = {event.event_id for event in now.events}
            gone |= {event.event_id for event in before.document.events} - ids
            if gone & ids:
                raise Violation("3", f"{key} shows {sorted(gone & ids)} again")
        self.ever.setdefault(key, {}).setdefault(now.incarnation, []).append(now.events)

    def _judge_group(self, group: str) -> None:
        """What is durable to be shown is exactly what is live. Source: D-6, S-1, S-3, S-5."""
        if group not in self.mirror.enrolments or group not in self.mirror.topology.groups:
            return
        live = [self.mirror.events[each] for each in self.mirror.event_ids_of(group)]
        for key in self.mirror.topology.views_of(group):
            vm = key.partition("/")[2]
            wanted = {
                event.id: SHOWN[event.state.value]
                for event in live
                if not vm or vm in event.resources
            }
            shown = {
                event.event_id: event.status for event in self.mirror.views[key].document.events
            }
            if shown != wanted:
                raise Violation("13", f"{key} shows {shown} where {wanted} is true")

    # ---- approvals -----------------------------------------------------------------------------

    def _group_of(self, event_id: str, changes: Changes) -> str:
        event = changes.events.get(event_id) or self.events[event_id]
        return event.group

    def _is_asked(self, group: str, changes: Changes) -> bool:
        if group in changes.enrolments:
            return changes.enrolments[group] is not None
        return group in self.mirror.enrolments

    def _is_approved(
        self, event_id: str, operation: Operation, topology: Topology, changes: Changes
    ) -> bool:
        event = changes.events.get(event_id) or self.events[event_id]
        before = self.events.get(event_id)
        if event_id in self.acknowledged or (before and before.state is E.APPROVED):
            return True
        group = topology.groups[event.group]
        if operation.impact in group.automatic_approval and _is_a_users_wish(operation):
            return True
        asked = self.asked.get(event_id, {})
        left = [name for name in event.resources if name in topology.vms]
        if group.strict_approval or not left:
            return all(name in asked for name in left)
        return any(event.group in self.groups_of[vm] for vm in asked)


def _is_a_users_wish(operation: Operation) -> bool:
    """Whether a user asks for it at once, so that a group's policy may approve. Source: A-10."""
    users = operation.cause.value in {"reboot", "redeploy"} and operation.source.value == "User"
    return users and not operation.asked_ms


def _is_routine(operation: Operation) -> bool:
    """Whether the platform does planned work: a user's own act, on a host too, is none."""
    return operation.cause.value in ROUTINE and operation.source.value == "Platform"


def _place_and_groups(
    operation: Operation, topology: Topology
) -> tuple[tuple[str, int] | None, set[str]]:
    """Where an operation disturbs, as zone and fault domain, and which groups."""
    names = operation.vms if operation.of_vm else topology.vms_on(operation.host)
    machines = [topology.vms[name] for name in names if name in topology.vms]
    places = {topology.hosts[vm.host] for vm in machines}
    place = places.pop() if places else None
    return (place.zone, place.fault_domain) if place else None, {vm.group for vm in machines}
