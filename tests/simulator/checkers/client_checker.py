"""Checks what clients see, and when: reads, approvals, enabling, and limits.

The rules are written from the contract; times are true time unless a name says otherwise. What a
single answer says is checked in `invariants.py`, what is durable in `state_checker.py`.
"""

from collections.abc import Callable
from functools import partial

from forewarn_core.fleet.lifecycle import Operation, OperationState
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.state import Changes
from tests.simulator.checkers.client_history import ClientHistory, Exchange
from tests.simulator.checkers.contract import DAY_MS, is_a_users_wish, view_owed
from tests.simulator.checkers.state_checker import StateChecker
from tests.simulator.world.crash_points import Violation
from tests.simulator.world.document_cache import read
from tests.simulator.world.metadata_node import SimulatedNode, SimulatedReply

S = OperationState

#: How long a change may take to be seen at a node while nothing is wrong, in ms.
STALE_MS = 120_000
#: How long approved work may take to start while nothing is wrong and nothing is in its way.
START_MS = 120_000
#: How long after a change a long poll may wait on while nothing is wrong.
WAKE_MS = 5000
#: Who polled in this time before work ended must poll again: an hour, and marks are coarse.
POLLED_BEFORE_MS = 58 * 60_000
#: Who was answered by a node that reached the service for this long has polled. Source: B-2.
HANDED_ON_MS = 60_000
#: How long a request may take to reach a node, and be the poll that a gate waits for.
UNDER_WAY_MS = 60_000
#: How much less than a day the silence may be of a group that is disabled: marks are coarse.
EARLY_MS = 5 * 60_000


class ClientChecker:
    """Follows every client, and what must happen because of what it was answered."""

    def __init__(self, states: StateChecker, policy: NoticePolicy) -> None:
        """Begin with nobody there."""
        self.history = ClientHistory()
        self._states = states
        self._queue = states.queue
        self._policy = policy
        self._premises = states.premises
        #: (VM, node, view, version) -> what was read last: resets of the view by then, the
        #: incarnation, and the bytes.
        self._last: dict[tuple[str, int, str, str], tuple[int, int, bytes]] = {}
        #: View -> times it started over, because its group was disabled or it was dropped. B-2.
        self._resets: dict[str, int] = {}
        #: (view, resets, incarnation) -> since when that is no longer the newest.
        self._superseded: dict[tuple[str, int, int], int] = {}
        #: Group -> when its VMs, or its options, changed last.
        self._changed_ms: dict[str, int] = {}
        #: Event -> VMs whose approval of it was answered 200.
        self._accepted: dict[str, set[str]] = {}
        self._acknowledged: set[str] = set()
        #: How far the service's clock was ahead of true time at the last change, in ms.
        self._ahead_ms = 0
        #: Group -> when a request of its VMs was reported last, by true and the service's time.
        self._marked: dict[str, tuple[int, int]] = {}
        #: Group -> when a VM of it was answered last by a node that reaches the service, or such a
        #: report came while nothing was wrong: with the store a report may be lost. Likewise.
        self._heard: dict[str, tuple[int, int]] = {}
        #: Group -> when a VM of it sent a request last, or was answered, or it was enabled.
        self._asked_ms: dict[str, int] = {}
        self._awaited: set[int] = set()
        #: Group that is not enabled -> when the first request of its VMs was sent.
        self._first_asked_ms: dict[str, int] = {}
        #: When the service showed everything again, as after it asked its store: true time in ms.
        self.whole_ms = 0
        #: How long the first answer to a group is held; 0 where requests are not seen. Source: B-1.
        self.enable_delay_ms = 0
        #: Called with a document that is not the newest, and since when it is not.
        self.check_age: Callable[..., None] = lambda *_, **__: None
        #: Whether nodes report every request; without connections only some are. Source: B-2.
        self.polls_are_marked = False

    # ---- reads ---------------------------------------------------------------------------------

    def polled(
        self, vm: str, node: SimulatedNode, reply: SimulatedReply, *, answered_ms: int
    ) -> None:
        """A VM's poll was answered by a node now; the VM has that at `answered_ms`, or never."""
        now_ms = self._queue.now_ms
        if reply.status != 200 or not reply.view:
            self.history.add(Exchange(vm, node.name, now_ms, answered_ms, reply.status))
            return
        view, document = reply.view, read(reply.body)
        incarnation = document.incarnation
        self.history.add(
            Exchange(
                vm,
                node.name,
                now_ms,
                answered_ms,
                200,
                view=view,
                version=reply.version,
                incarnation=incarnation,
                body=reply.body,
            )
        )
        if self.polls_are_marked and self._states.sound_since_ms(node) + HANDED_ON_MS < now_ms:
            self._heard[view.partition("/")[0]] = (now_ms, now_ms + self._ahead_ms)
        self._asked_ms[view.partition("/")[0]] = now_ms
        self._check_order((vm, id(node), view, reply.version), incarnation, reply.body)
        self._check_age(vm, node, view, incarnation)
        self._check_view(vm, node, view)

    @property
    def service_ms(self) -> int:
        """The service's time, by how far it was ahead at the last change."""
        return self._queue.now_ms + self._ahead_ms

    def _check_order(self, key: tuple[str, int, str, str], incarnation: int, body: bytes) -> None:
        """D-1: reads at one node never go back, and equal numbers mean equal events."""
        vm, _, view, _ = key
        resets = self._resets.get(view, 0)
        before, newest = self._last.get(key), self._states.state.views.get(view)
        if newest is None or incarnation > newest.document.incarnation:
            resets -= 1  # what a node that lags still has of the time before
        self._last[key] = (resets, incarnation, body)
        if before is None or before[0] < resets:  # at most one reset may be seen late
            return
        self._premises["D-1: the same document read again"] += 1
        if incarnation < before[1]:
            text = f"{vm} read {view} at {before[1]} and then at {incarnation} at one node"
            raise Violation("D-1", text)
        if incarnation == before[1] and body != before[2]:
            raise Violation("D-1", f"{vm} read two documents of {view} at {incarnation}")

    def _check_age(self, vm: str, node: SimulatedNode, view: str, incarnation: int) -> None:
        """S-1: a change is seen at every sound node within two minutes."""
        states, resets = self._states.state, self._resets.get(view, 0)
        newest = states.views.get(view)
        if newest is not None and newest.document.incarnation == incarnation:
            return
        self._premises["S-1: an older document read"] += 1
        since_ms = self._superseded.get((view, resets, incarnation), 0)
        if since_ms:
            self.check_age(vm, node, view, superseded_ms=since_ms)
        oldest_ms = max(since_ms, self._superseded.get((view, resets, -1), 0))
        if max(oldest_ms, self._states.sound_since_ms(node)) + STALE_MS < self._queue.now_ms:
            age_s = (self._queue.now_ms - oldest_ms) // 1000
            text = f"{vm} read {view} at {incarnation} at {node.name}, which is {age_s} s old"
            raise Violation("S-1", text)

    def _check_view(self, vm: str, node: SimulatedNode, view: str) -> None:
        """S-1, S-3: it reads its group's document, or its own where it has one."""
        topology = self._states.state.topology
        known = topology.vms.get(vm)
        if known is None:
            return
        group = topology.groups[known.group]
        owed = view_owed(known, group)
        self._premises["S-3: a VM reads its own document"] += owed != known.group
        if owed == view:
            return
        changed_ms = self._changed_ms.get(group.name, 0)
        if max(changed_ms, self._states.sound_since_ms(node)) + STALE_MS < self._queue.now_ms:
            raise Violation("S-3", f"{vm} reads {view} at {node.name} and is owed {owed}")

    # ---- how requests are answered over a wire -------------------------------------------------

    def asks(self, vm: str) -> None:
        """A VM sends a request; it may be the first of its group. Source: B-1."""
        known = self._states.state.topology.vms.get(vm)
        if known is not None:
            self._asked_ms[known.group] = self._queue.now_ms
        if known is not None and known.group not in self._states.state.enrolments:
            self._first_asked_ms.setdefault(known.group, self._queue.now_ms)

    def waited(
        self, vm: str, node: SimulatedNode, reply: SimulatedReply, *, asked_ms: int, known: int
    ) -> None:
        """E-9: a long poll is answered as soon as there is another document than the known one."""
        incarnation = read(reply.body).incarnation
        resets = self._resets.get(reply.view, 0)
        since_ms = self._superseded.get((reply.view, resets, known), 0)
        changed_ms = self._changed_ms.get(reply.view.partition("/")[0], 0)
        if incarnation == known or not since_ms or changed_ms >= asked_ms:  # of another document
            return
        self._premises["E-9: a long poll hears of a change"] += 1
        since_ms = max(since_ms, asked_ms, self.whole_ms, self._states.sound_since_ms(node))
        if since_ms + WAKE_MS < self._queue.now_ms:
            late_s = (self._queue.now_ms - since_ms) // 1000
            raise Violation("E-9", f"{vm} waits for {reply.view} and hears of it {late_s} s late")

    def throttled(self, vm: str, *, few: bool) -> None:
        """E-6: a VM is refused for asking too often."""
        if few:
            raise Violation("E-6", f"{vm} asks seldom and is answered that it asks too often")

    def flooded(self, vm: str, answered: int, *, burst: int) -> None:
        """E-6: a VM asked far too often, all at once, and had this number of answers."""
        self._premises["E-6: a VM asks too often"] += 1
        if answered > burst:
            raise Violation("E-6", f"{vm} asks too often and gets {answered} answers at once")

    def _check_delay(self, group: str) -> None:
        """B-1: a group is enabled once the first answer to it was held for the delay."""
        asked_ms = self._first_asked_ms.pop(group, 0)
        if not self.enable_delay_ms:
            return
        self._premises["B-1: a group is enabled after the delay"] += 1
        if not asked_ms or self._queue.now_ms < asked_ms + self.enable_delay_ms:
            raise Violation("B-1", f"{group} is enabled before its first answer was held")

    # ---- approvals -----------------------------------------------------------------------------

    def approval(
        self,
        vm: str,
        node: SimulatedNode,
        event_ids: tuple[str, ...],
        *,
        status: int,
        answered_ms: int,
    ) -> None:
        """A VM's approval was answered by a node now; 202 where it only is on its way. M-3."""
        now_ms = self._queue.now_ms
        self.history.add(Exchange(vm, node.name, now_ms, answered_ms, status, event_ids))
        if status == 200:
            for event_id in event_ids:
                self.accepts(vm, event_id)

    def accepts(self, vm: str, event_id: str) -> None:
        """A VM's approval counts."""
        self._accepted.setdefault(event_id, set()).add(vm)
        self._await_event(event_id)

    def acknowledged(self, event_ids: tuple[str, ...]) -> None:
        """An operator's approval was accepted. Source: A-9."""
        for event_id in map(str.upper, event_ids):
            self._acknowledged.add(event_id)
            self._await_event(event_id)

    def _await_event(self, event_id: str) -> None:
        event = self._states.events.get(event_id)
        operation = self._states.operations.get(event.operation) if event is not None else None
        if operation is not None:
            self._premises["L-1: everybody approved"] += self._are_answered(operation)
            self._await(operation.number)

    def _await(self, number: int) -> None:
        """Have it seen that an operation starts, now that nothing of its VMs is missing."""
        operation = self._states.state.operations.get(number)
        if operation is None or number in self._awaited or not self._is_released(operation):
            return
        self._awaited.add(number)
        self._queue.after(START_MS, partial(self._check_started, number, self._queue.now_ms))

    def _check_started(self, number: int, free_since_ms: int) -> None:
        """L-1, N-3: what everybody approved starts within minutes, if nothing is in its way."""
        states, now_ms = self._states, self._queue.now_ms
        operation = states.state.operations.get(number)
        if operation is None or operation.state is not S.ANNOUNCED:
            return
        if not self._is_released(operation):
            self._awaited.discard(number)
            return
        held = (operation.earliest_start_ms or 0) > self.service_ms
        if held or states.in_its_way(operation):
            free_since_ms = now_ms
        free_since_ms = max(free_since_ms, self._states.sound_since_ms(None))
        if free_since_ms + 2 * START_MS <= now_ms:
            since_s = (now_ms - free_since_ms) // 1000
            raise Violation("L-1", f"{operation.id} is approved for {since_s} s and not started")
        self._queue.after(START_MS, partial(self._check_started, number, free_since_ms))

    def _is_released(self, operation: Operation) -> bool:
        """Whether its VMs have nothing against its start, as their clients were answered."""
        if operation.state is not S.ANNOUNCED or not self._are_answered(operation):
            return False
        if operation.impact.value != "Terminate":
            return True
        alike = (operation.request, operation.not_before_ms)
        siblings = [
            other
            for other in self._states.state.operations.values()
            if other.state is S.ANNOUNCED and (other.request, other.not_before_ms) == alike
        ]
        apart = any(
            other.request == operation.request and other not in siblings
            for other in self._states.state.operations.values()
        )
        self._premises["A-8: a deletion of another time"] += apart
        return all(map(self._are_answered, siblings))

    def _are_answered(self, operation: Operation) -> bool:
        states = self._states
        topology, asked = states.state.topology, False
        for event_id in operation.events:
            event = states.events[event_id]
            if event.group not in states.state.enrolments:
                continue  # B-3
            asked = True
            if event_id in self._acknowledged:
                continue
            group = topology.groups[event.group]
            if operation.impact in group.automatic_approval and is_a_users_wish(operation):
                continue
            accepted = self._accepted.get(event_id, set())
            if not (accepted.issuperset(event.resources) if group.strict_approval else accepted):
                return False
        return asked or bool(operation.maintenance) or not operation.requested_start_ms

    # ---- what is durable -----------------------------------------------------------------------

    def durable(self, changes: Changes, service_ms: int) -> None:
        """A change becomes durable, at this time of the service; the state is still without it."""
        now_ms, state = self._queue.now_ms, self._states.state
        self._ahead_ms = service_ms - now_ms
        for view, after in changes.views.items():
            resets, before = self._resets.get(view, 0), state.views.get(view)
            if after is None:
                self._resets[view] = resets + 1
                self._superseded[view, resets + 1, -1] = now_ms
            elif before is not None:
                self._superseded.setdefault((view, resets, before.document.incarnation), now_ms)
        for vm in changes.vms.values():
            if vm is not None:
                self._changed_ms[vm.group] = now_ms
        self._changed_ms.update(dict.fromkeys(changes.groups, now_ms))
        for group, enrolment in changes.enrolments.items():
            if enrolment is None:
                self._check_disabled(group, changes, service_ms)
            elif group not in state.enrolments:
                self._changed_ms[group] = now_ms
                self._marked[group] = self._heard[group] = (now_ms, service_ms)
                self._asked_ms[group] = now_ms
                self._check_delay(group)

    def is_durable(self, changes: Changes) -> None:
        """The same change, once the state has it."""
        users = [o for o in changes.operations.values() if o.source.value == "User"]
        if any(operation.state in {S.PLANNED, S.ANNOUNCED} for operation in users):
            self._check_limit(users)
        awaited = set(changes.operations)
        if changes.of_fleet or None in changes.enrolments.values():  # fewer are asked: A-7, B-3
            state = self._states.state
            awaited.update(each.operation for each in state.events.values() if each.live)
        for number in awaited:
            self._await(number)

    def marked(self, groups: frozenset[str], service_ms: int, age_ms: int = 0) -> None:
        """Requests of these groups were reported, at this time of the service, some time late."""
        asked = self._queue.now_ms - age_ms, service_ms - age_ms
        well = not self.polls_are_marked or self._states.sound_since_ms(None) < self._queue.now_ms
        for of in (self._marked, self._heard) if well else (self._marked,):
            of.update({each: asked for each in groups if of.get(each, (0, 0))[0] <= asked[0]})

    def check_polled(self, group: str, ended_ms: int) -> None:
        """F-5: a gate may pass where a group that polled before work ended then has polled since.

        Whatever its mark says: a node that was away hands on late what it has heard. By true time:
        the service's clock may be put back in between.
        """
        marked_ms, _ = self._marked.get(group, (0, 0))
        if ended_ms - POLLED_BEFORE_MS < marked_ms < ended_ms:
            text = f"a gate passes, and {group} has not polled for {ended_ms - marked_ms} ms"
            raise Violation("F-5", text)
        enrolment, asked_ms = self._states.state.enrolments.get(group), self._asked_ms.get(group, 0)
        passes = enrolment is not None and enrolment.polled_ms - self._ahead_ms >= ended_ms
        owed = ended_ms - POLLED_BEFORE_MS < asked_ms < ended_ms - UNDER_WAY_MS
        if self.polls_are_marked and passes and owed:
            text = f"a gate passes, and {group} asked last {ended_ms - asked_ms} ms too early"
            raise Violation("F-5", text)

    def _check_disabled(self, group: str, changes: Changes, service_ms: int) -> None:
        """B-2: a group is disabled after a day of silence, and never earlier."""
        if group not in self._heard or changes.groups.get(group, group) is None:
            return
        self._premises["B-2: a group is disabled"] += 1
        true_ms, marked_ms = self._heard.pop(group)
        self._marked.pop(group, None)
        silent_ms = max(self._queue.now_ms - true_ms, service_ms - marked_ms)
        if silent_ms < DAY_MS - EARLY_MS:
            text = f"{group} is disabled after {silent_ms / 3_600_000:.1f} hours of silence"
            raise Violation("B-2", text)

    def _check_limit(self, asked: list[Operation]) -> None:
        """O-1: no more of its users' work is scheduled for an owner than the limit."""
        owners = {self._owner(operation) for operation in asked} - {None}
        for owner in owners:
            scheduled = sum(
                self._owner(each) == owner for each in self._states.state.operations.values()
            )
            self._premises["O-1: an owner at the limit"] += (
                scheduled >= self._policy.max_user_operations
            )
            if scheduled > self._policy.max_user_operations:
                raise Violation("O-1", f"{owner} has {scheduled} operations scheduled")

    def _owner(self, operation: Operation) -> str | None:
        """Whose limit an operation that was just asked for counts against, if it does."""
        state = self._states.state
        vm = state.topology.vms.get(operation.vms[0]) if operation.of_vm else None
        waits = operation.state in {S.PLANNED, S.ANNOUNCED} and operation.source.value == "User"
        if vm is None or not waits or operation.silent or vm.group not in state.enrolments:
            return None
        group = state.topology.groups[vm.group]
        if operation.impact in group.automatic_approval and is_a_users_wish(operation):
            return None
        return group.owner
