"""Checks that notice counts, and work begins, by what the nodes of its VMs show. Source: M-4.

A node that cannot be reached is waited for as policy says; after that it is reported. What nodes
are sent and how they answer is checked in `node_checker.py`.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from forewarn_base.protocol.documents import Document, ScheduledEvent
from forewarn_core.fleet.lifecycle import Operation, OperationState
from forewarn_core.fleet.state import Changes
from forewarn_core.planning.policy import MaintenancePolicy
from tests.simulator.checkers.state_checker import StateChecker
from tests.simulator.world.crash_points import Violation

S = OperationState

#: How long what nodes are sent may be under way while nothing is wrong: lines are torn, too.
SETTLE_MS = 15_000
#: How long the service waits for nodes that do not show something, by its policy. Source: M-4.
SHOW_TIMEOUT_MS = 10_000
#: How long it may take to report whom work did not wait for.
TOLD_MS = 120_000

#: How long it may take until work goes on once a node shows it. Source: H-7.
SHOWN_AGAIN_MS = 120_000


class FarNode(Protocol):
    """A node away from the service, as it is seen."""

    name: str
    up: bool
    #: Since when its process runs, or does not.
    since_ms: int

    @property
    def hosts(self) -> frozenset[str] | None:
        """Whose VMs it serves; None: everybody's."""

    @property
    def serves(self) -> bool:
        """Whether it has something to show."""

    @property
    def spooled(self) -> list[bytes]:
        """The approvals that are safe on its disk."""

    @property
    def may_come_back_empty(self) -> bool:
        """Whether its disk has refused to keep what it shows."""


class Nodes(Protocol):
    """What is known of all nodes away from the service."""

    far: Sequence[FarNode]

    def shown(self, node: FarNode, view: str) -> Document | None:
        """Return what a node shows of a view."""

    def read_there(self, node: FarNode, view: str, since_ms: int) -> set[str]:
        """Return the documents a node shows to those who are owed a view, since before then."""

    def sound_since_ms(self, node: FarNode) -> int:
        """Since when nothing has kept changes from a node, true time in ms."""


class NodeNoticeChecker:
    """Follows what was announced and begun, and who showed it."""

    def __init__(self, states: StateChecker, nodes: Nodes) -> None:
        """Begin with nothing announced."""
        self._states = states
        self._nodes = nodes
        #: Operation -> what was reported of who does not show it.
        self._told: dict[int, str] = {}
        #: VM -> its host, and since when.
        self._arrived: dict[str, tuple[str, int]] = {}
        self._noticed: set[int] = set()
        #: Operation -> when it was begun, and the nodes that did not show it, with its VMs there.
        self._unaware: dict[int, tuple[int, dict[FarNode, tuple[str, ...]]]] = {}

    def durable(self, changes: Changes) -> None:
        """A change is durable, and the state has it."""
        for entry in changes.entries:
            if entry.action == "operation.not-shown":
                # The sentence names the first VMs, the operation beside it in history all of them.
                vms = ", ".join(changes.operations[entry.operation].unseen_vms)
                told = (self._told.get(entry.operation, ""), entry.text, vms)
                self._told[entry.operation] = "; ".join(told)
                waits = entry.text.endswith("it waits for them")
                self._states.premises["H-7: work waits for VMs that cannot be shown it"] += waits
        for name, vm in changes.vms.items():
            if vm and vm.host != self._arrived.get(name, ("", 0))[0]:
                self._arrived[name] = vm.host, self._states.queue.now_ms
        for operation in changes.operations.values():
            if operation.notice.shown_ms and operation.number not in self._noticed:
                self._noticed.add(operation.number)
                self._check_notice(operation)

    def _check_notice(self, operation: Operation) -> None:
        """M-4: notice counts once the nodes of its VMs show it, or people know which do not."""
        if operation.state is not S.ANNOUNCED:
            return
        announced_ms = self._states.announced_ms.get(operation.number, 0)
        for node in self._nodes.far:
            behind = self._behind(node, operation, announced_ms, operation.announced_ms)
            self._states.premises["M-4: notice counts from what nodes show"] += behind is False
            if not behind or (node.hosts is None and self._is_new_to_it(node)):
                continue
            self._states.premises["M-4: notice counts though a node is away"] += 1
            unaware = self._listening(operation, node)
            if unaware and operation.impact.value in self._waiting_impacts:
                text = f"{operation.id} is noticed, and {node.name} does not show it to {unaware}"
                raise Violation("H-7", text)
            if self._states.queue.now_ms < announced_ms + SHOW_TIMEOUT_MS:
                text = f"{operation.id} is noticed at once, and {node.name} does not show it"
                raise Violation("M-4", text)
            well = self._states.sound_since_ms(None) <= announced_ms
            if well and node.hosts is not None and not self._is_told(operation.number, node):
                text = f"{operation.id} is noticed, {node.name} does not show it: not reported"
                raise Violation("M-4", text)

    def waits(self, operation: Operation) -> bool:
        """H-7: whether work may wait for VMs that a node could not show it to.

        The policy in force decides; history has named the VMs, perhaps under another one. VMs that
        move to the host of a sound node are shown the work there, as if the old one were back.
        """
        told = self._told.get(operation.number, "")
        since_ms = [
            self._nodes.sound_since_ms(node)
            for node in self._nodes.far
            if any(name in told for name, _ in self._served(operation, node))
        ]
        since_ms += [self._arrived[name][1] for name in operation.vms if name in self._arrived]
        in_time = self._states.queue.now_ms < max(since_ms, default=0) + SHOWN_AGAIN_MS
        return in_time and operation.impact.value in self._waiting_impacts

    @property
    def _waiting_impacts(self) -> tuple[str, ...]:
        """H-7: the impacts whose work waits until its VMs are shown it, by the policy in force."""
        applied = self._states.state.policies.get("fleet")
        return (applied.policy if applied else MaintenancePolicy()).wait_until_shown

    def _listening(self, operation: Operation, node: FarNode) -> tuple[str, ...]:
        """VMs of an operation that a node serves, and that asked before it was announced."""
        announced_ms = operation.notice.announced_ms or 0
        served = self._served(operation, node)
        return tuple(name for name, enabled_ms in served if enabled_ms < announced_ms)

    def _served(self, operation: Operation, node: FarNode) -> Iterator[tuple[str, int]]:
        """Yield the VMs of an operation that a node serves and that asked, with the time of that.

        The service's clock may have been set back since.
        """
        state = self._states.state
        for name in operation.vms:
            vm = state.topology.vms.get(name)
            enrolment = state.enrolments.get(vm.group) if vm else None
            if vm and enrolment and (node.hosts is None or vm.host in node.hosts):
                yield name, enrolment.enabled_ms

    def _behind(
        self, node: FarNode, operation: Operation, since_ms: int, enabled_ms: int
    ) -> bool | None:
        """Whether a node does not show an operation to VMs that were there; None: none were."""
        found = None
        state = self._states.state
        for event_id in operation.events:
            event = self._states.events[event_id]
            enrolment = state.enrolments.get(event.group)
            if enrolment is None or enrolment.enabled_ms >= enabled_ms:
                continue
            named = {"", *event.resources}
            for view in self._states.state.views.values():
                if view.group != event.group or view.key.partition("/")[2] not in named:
                    continue
                for read in self._nodes.read_there(node, view.key, since_ms):
                    shown = {each.event_id: each.status for each in self._events(node, read)}
                    started = operation.state is S.RUNNING
                    if event_id not in shown or (started and shown[event_id] != "Started"):
                        return True
                    found = False
        return found

    def begins(self, operation: Operation) -> None:
        """M-4: an operation is begun; of nodes that do not show it people hear soon."""
        started_ms = self._states.running_ms.get((operation.number, operation.execution.attempt), 0)
        unaware = {
            node: self._listening(operation, node)
            for node in self._nodes.far
            if node.hosts is not None
            and self._behind(node, operation, started_ms, operation.execution.started_ms or 0)
        }
        if unaware and operation.execution.attempt == 1:
            self._states.premises["M-4: work begins though a node is away"] += 1
            self._unaware[operation.number] = self._states.queue.now_ms, unaware

    def check_told(self) -> None:
        """M-4: nodes that did not show what was begun were reported."""
        now_ms = self._states.queue.now_ms
        for number, (begun_ms, nodes) in tuple(self._unaware.items()):
            if begun_ms + TOLD_MS > now_ms:
                continue
            del self._unaware[number]
            told = self._told.get(number, "")
            names = [*(node.name for node in nodes), *(vm for vms in nodes.values() for vm in vms)]
            self._states.premises["H-7: work begins that VMs were not shown"] += any(nodes.values())
            left = [name for name in names if name not in told]
            if left and self._states.sound_since_ms(None) <= begun_ms:
                text = f"op-{number} is begun, {left} did not show it: not reported"
                raise Violation("M-4, H-7", text)

    def _is_new_to_it(self, node: FarNode) -> bool:
        """Whether the service may not know yet that a node is there: only names with hosts are."""
        return self._nodes.sound_since_ms(node) + SETTLE_MS > self._states.queue.now_ms

    def _is_told(self, number: int, node: FarNode) -> bool:
        return node.name in self._told.get(number, "")

    def _events(self, node: FarNode, view: str) -> tuple[ScheduledEvent, ...]:
        document = self._nodes.shown(node, view)
        return document.events if document is not None else ()
