"""The invariants, checked from outside after every step of a simulated world.

It sees what becomes durable, what nodes show, what drivers are called with and what machines are
answered.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from forewarn_base.ids import Ids
from forewarn_base.protocol.documents import Document
from forewarn_core.fleet.lifecycle import Alert, Event, EventState, Operation, OperationState
from forewarn_core.fleet.maintenance import Maintenance
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.records import Record
from forewarn_core.fleet.state import Changes
from forewarn_core.fleet.stimulus import Acknowledge, Cancel, PlaneStimulus, Retry
from forewarn_metadata.replication.messages import DocumentChange
from tests.core.replay import Replay
from tests.simulator.checkers.client_checker import ClientChecker
from tests.simulator.checkers.contract import (
    DAY_MS,
    OWED_S,
    body_owed,
    is_iaas,
    is_routine,
    obstacle,
    view_owed,
    views_owed,
    waived,
)
from tests.simulator.checkers.maintenance_checker import MaintenanceChecker
from tests.simulator.checkers.node_checker import NodeChecker
from tests.simulator.checkers.state_checker import ABORT_TRIES, StateChecker
from tests.simulator.world.control_process import SimulatedControl
from tests.simulator.world.crash_points import Violation
from tests.simulator.world.dice import Dice
from tests.simulator.world.document_cache import read
from tests.simulator.world.event_queue import EventQueue
from tests.simulator.world.history_reader import HistoryReader
from tests.simulator.world.metadata_node import SimulatedNode, SimulatedReply
from tests.simulator.world.simulated_store import SimulatedStore

S, E = OperationState, EventState

#: How long a driver may be left untold by a service that runs; two minutes of it go by plan.
ABORT_MS = 300_000
#: After this time a node that is well shows what is published, or is waited for. Source: M-4.
SHOWN_MS = 30_000
#: How long a maintenance may wait for nothing: hosts that cannot be done are planned again.
PLANNED_AGAIN_MS = 25 * 60_000
#: How long something due may take to happen while all is well.
LATE_MS = 120_000


class InvariantChecker(StateChecker):
    """Everything that can be seen of the product from outside."""

    def __init__(self, queue: EventQueue, policy: NoticePolicy) -> None:
        """Begin with nothing seen."""
        super().__init__(queue, policy=policy)
        self._policy = policy
        #: View -> what the service's own node shows of it now.
        self.shown: dict[str, Document] = {}
        self.history = HistoryReader()
        self._begun: dict[tuple[int, int], int] = {}
        self._read: set[tuple[str, str, bytes]] = set()
        self._replay = Replay()
        self._refusals: dict[str, None] = {}
        #: What clients were answered, and what must come of it.
        self.clients = ClientChecker(self, policy)
        self.maintenance = MaintenanceChecker(
            self.state,
            policy,
            self.premises,
            events=self.events,
            declarations=self.declarations,
        )
        #: When a policy was applied last, in true time.
        self._policy_ms = 0
        #: Since when a maintenance, or planned work, has nothing that it waits for, in true time.
        self._free_ms: dict[int, int] = {}
        self._clear_ms: dict[int, int] = {}
        #: The nodes away from the service, where it waits for them.
        self.nodes = NodeChecker(self, self._counts)
        self.nodes.delivered = self.clients.accepts
        self.clients.check_age = self.nodes.check_age

    def take(self, changes: Changes, service_ms: int) -> None:
        """Take a change that has become durable, at this time of the service."""
        if changes.policies:
            self._policy_ms = self.queue.now_ms
        self.clients.durable(changes, service_ms)
        self.durable(changes, service_ms)
        self.nodes.durable(changes)
        self.maintenance.durable(changes, service_ms, service_ms - self.queue.now_ms)
        for number in changes.maintenances:
            if number in self.maintenance.halted_ms:
                self.queue.after(LATE_MS + 1, partial(self._check_halted, number))
        self.clients.is_durable(changes)

    def gate_answers(self, number: int, *, passes: bool, polls: bool) -> None:
        """A gate is about to say what it found: with `polls`, whether groups poll again. F-5."""
        self.maintenance.gate_answers(number, passes=passes)
        if not polls or number not in self.state.maintenances:  # it was cancelled meanwhile
            return
        self.premises["F-5: a gate waits for polls"] += 1
        topology = self.state.topology
        for target in self.maintenance.last_wave(number) if passes else ():
            for name in topology.vms_on(target.host):
                ended_ms = self.maintenance.ended_ms[number, target.host]
                self.clients.check_polled(topology.vms[name].group, ended_ms)

    # ---- what nodes show -----------------------------------------------------------------------

    def publishes(self, change: DocumentChange, *, own_ms: int | None) -> None:
        """A node takes over a change; the service's own node does at this time of the service."""
        if own_ms is not None and change.whole:
            self.shown.clear()
            self.clients.whole_ms = self.queue.now_ms
        for publication in change.publications:
            if not publication.enabled:
                if own_ms is not None:
                    self.shown.pop(publication.view, None)
                continue
            document = publication.document
            durable = self.documents.ever.get(publication.view, {}).get(document.incarnation, [])
            if document.events not in durable:
                raise Violation(
                    "8", f"{publication.view} {document.incarnation} is shown and is not durable"
                )
            if own_ms is not None:
                self.shown[publication.view] = document
                self._note_promises(document, own_ms)

    def _note_promises(self, document: Document, now_ms: int) -> None:
        for event in document.events:
            operation = self.operations[self.events[event.event_id].operation]
            enrolment = self.state.enrolments.get(self.events[event.event_id].group)
            if operation.number not in self.first_shown:
                promised_ms = (event.not_before_ms or now_ms) - now_ms
                told = enrolment is not None and enrolment.enabled_ms <= (
                    operation.notice.announced_ms or 0
                )
                if told and "notice" not in waived(operation, self.state.maintenances):
                    promised_ms = max(promised_ms, OWED_S[event.event_type] * 1000)
                shown_ms = self.queue.now_ms + self.jumped_ms
                self.first_shown[operation.number] = (shown_ms, promised_ms)

    def own_node_died(self) -> None:
        """The service's own node shows nothing any more."""
        self.shown.clear()

    def read(self, vm: str, reply: SimulatedReply) -> None:
        """Invariant 7: a VM was shown a document."""
        view = reply.view
        group, _, own = view.partition("/")
        if group not in self.groups_of[vm] or own not in {"", vm}:
            raise Violation("7", f"{vm} was shown the document of {view}")
        self.premises["8: a document is read"] += 1
        key = (view, reply.version, reply.body)
        if key in self._read:
            return
        self._read.add(key)
        document = read(reply.body)
        durable = self.documents.ever.get(view, {}).get(document.incarnation)
        if durable is None:
            raise Violation("8", f"{vm} was shown {view} {document.incarnation}: not durable")
        version, iaas = reply.version, self._is_iaas(group)
        bodies = [body_owed(document.incarnation, e, version, iaas=iaas) for e in durable]
        if reply.body not in bodies:
            owed = bodies[-1]
            text = f"{vm} was shown {reply.body.decode()} where {owed.decode()} is true"
            raise Violation("7", text)

    def _is_iaas(self, group: str) -> bool:
        return is_iaas(self.state.topology.groups.get(group))

    def view_read(self, vm: str, version: str, body: bytes, *, node: SimulatedNode) -> str:
        """The view whose document a VM was sent, by what it says; the one it is owed if none is.

        Two views may have said the same: then it is the one that the node was sent for this VM.
        """
        topology, incarnation = self.state.topology, read(body).incarnation
        known = topology.vms.get(vm)
        owed = view_owed(known, topology.groups[known.group]) if known is not None else ""
        views = [view for group in sorted(self.groups_of[vm]) for view in (group, f"{group}/{vm}")]
        for view in (self.nodes.view_sent(node, vm), owed, *views):
            if (view, version, body) in self._read:
                return view
            durable = self.documents.ever.get(view, {}).get(incarnation, ())
            iaas = self._is_iaas(view.partition("/")[0])
            if any(body == body_owed(incarnation, each, version, iaas=iaas) for each in durable):
                return view
        return owed or views[0]

    # ---- what machines are answered ------------------------------------------------------------

    def asks_to_approve(self, vm: str, event_ids: tuple[str, ...]) -> None:
        """A VM's approval has arrived."""
        for event_id in event_ids:
            self.asked.setdefault(event_id, {})[vm] = None

    def operator_asks(self, stimulus: PlaneStimulus) -> None:
        """An operator's wish is on its way: it may take effect from now on."""
        if isinstance(stimulus, Acknowledge):
            self.acknowledged.update(map(str.upper, stimulus.event_ids))
        elif isinstance(stimulus, Retry):
            self.retries[stimulus.operation] = self.retries.get(stimulus.operation, 0) + 1
        elif isinstance(stimulus, Cancel):
            self.maintenance.cancels.add(stimulus.operation)

    def operator_is_refused(self, stimulus: PlaneStimulus) -> None:
        """It was refused, so that it never takes effect."""
        if isinstance(stimulus, Acknowledge):
            self.acknowledged.difference_update(map(str.upper, stimulus.event_ids))
        elif isinstance(stimulus, Retry):
            self.retries[stimulus.operation] -= 1

    def approved(self, vm: str, node: SimulatedNode, event_ids: tuple[str, ...]) -> bool:
        """Invariant 11: a VM was answered 200, so its approval is durable.

        Returns:
            whether it is at the control plane; else the node has it. Source: M-3.
        """
        delivered = True
        self.premises["11: an approval is answered 200"] += 1
        for event_id in event_ids:
            event = self.events.get(event_id)
            if event is None or event.group not in self.groups_of[vm]:
                raise Violation("7", f"{vm} approved {event_id}, which it is not shown")
            if event.state is E.SCHEDULED and not self._counts(event, vm):
                delivered = False
                if not self.nodes.keeps(node, vm, event_id):
                    text = f"{vm} was answered 200, its approval of {event_id} is not"
                    raise Violation("11", text)
        if delivered:
            self.nodes.answered_approval(vm, node, event_ids)
        return delivered

    def hears_polls(self, groups: frozenset[str], service_ms: int, age_ms: int) -> None:
        """The service hears which groups asked, at this time of its own, and how long ago."""
        self.clients.marked(groups, service_ms, age_ms)
        self.nodes.marked(groups)

    def _counts(self, event: Event, vm: str) -> bool:
        group = self.state.topology.groups[event.group]
        strict = group.strict_approval or event.approved_by
        return bool(strict) and (vm in event.approved_by or vm not in event.resources)

    def foreign_event(self, vm: str, dice: Dice) -> str:
        """An event that a VM must not be able to approve, or an id that never was."""
        groups = self.groups_of[vm]
        foreign = [e.id for e in self.state.events.values() if e.group not in groups]
        if foreign and dice.chance(800):
            return dice.pick(foreign)
        return Ids(dice.below(1 << 30)).guid("nobody's")

    def probe_answered(self, vm: str, event_id: str, reply: SimulatedReply) -> None:
        """Invariant 7: what is none of a VM's business was refused, telling nothing."""
        self.premises["7: a VM asks for another's event"] += 1
        if reply.status == 200:
            raise Violation("7", f"{vm} approved {event_id} of another group")
        if reply.status == 400:
            self._refusals[reply.body.decode().replace(event_id, "?")] = None
        if len(self._refusals) > 1:
            raise Violation("7", f"refusals distinguish ids: {list(self._refusals)}")

    # ---- what drivers are called ----------------------------------------------------------------

    def begins(self, operation: Operation) -> None:
        """Invariants 8 and 9: a driver's begin is called."""
        known = self.state.operations.get(operation.number)
        if (
            known is None
            or known.state is not S.RUNNING
            or known.execution.attempt != operation.execution.attempt
        ):
            raise Violation("8", f"{operation.id} is begun, which is not durably running")
        if operation.execution.attempt > 1 + self.retries.get(operation.number, 0):
            raise Violation("9", f"{operation.id} is begun again and nobody asked for it")
        self.premises["8: a driver's begin is called"] += 1
        key = (operation.number, operation.execution.attempt)
        self.premises["9: a beginning is repeated"] += key in self._begun
        if self._begun.get(key) == self.recoveries:
            raise Violation("9", f"{operation.id} is begun twice")
        self._begun[key] = self.recoveries
        self.nodes.notice.begins(operation)
        sound_ms = self.queue.now_ms - SHOWN_MS
        sound = [node for node in self.nodes.far if self.nodes.sound_since_ms(node) <= sound_ms]
        for view, event_id in self._views_told(operation):
            shown = {"the service": self.shown.get(view)}
            for node in sound:
                if self.nodes.serves(node, view, sound_ms):
                    self.premises["8: a node away from the service shows what begins"] += 1
                    shown[node.name] = self.nodes.shown(node, view)
            for where, document in shown.items():
                statuses = {e.event_id: e.status for e in document.events} if document else {}
                if statuses.get(event_id) != "Started":
                    text = f"{operation.id} is begun, {view} is not shown it yet at {where}"
                    raise Violation("8", text)

    def _views_told(self, operation: Operation) -> Iterator[tuple[str, str]]:
        """Yield the views that show an operation, with its event there."""
        for event_id in operation.events:
            event = self.events[event_id]
            enrolment = self.state.enrolments.get(event.group)
            if enrolment is None or enrolment.enabled_ms >= (operation.execution.started_ms or 0):
                continue
            for view in views_owed(event.group, self.state.topology):
                if view.partition("/")[2] in {"", *event.resources}:
                    yield view, event_id

    def aborts(self, operation: Operation, *, heard: bool) -> None:
        """A driver's abort is called for an operation that ended without it; it is heard or not."""
        known = self.operations.get(operation.number)
        ended = (
            known is not None
            and not known.live
            and known.execution.attempt == operation.execution.attempt
        )
        if not ended or operation.number not in self.owed:
            raise Violation(
                "L-7", f"the driver's abort is called for {operation.id}, whose end is not durable"
            )
        tries = self.abort_calls.get(operation.number, 0) + 1
        self.abort_calls[operation.number] = ABORT_TRIES if heard else tries

    # ---- now and then, and at the end ----------------------------------------------------------

    def audit(self, store: SimulatedStore, service: SimulatedControl) -> None:
        """Invariant 10, and that the service knows what is durable."""
        self._replay.extend(self.history.news(store))
        records, state = self._replay.records, self.state
        self.premises["10: history is replayed"] += 1
        tables: tuple[tuple[str, object, object], ...] = (
            ("operation", _live(records["operation"]), state.operations),
            ("event", _live(records["event"]), state.events),
            ("document", records["document"], state.views),
            ("enrolment", set(records["enrolment"]), set(state.enrolments)),
            ("host", records["host"], state.topology.hosts),
            ("group", records["group"], state.topology.groups),
            ("vm", records["vm"], state.topology.vms),
            ("maintenance", _live(records["maintenance"]), state.maintenances),
            ("policy", records["policy"], state.policies),
        )
        for kind, replayed, durable in tables:
            if replayed != durable:
                raise Violation("10", f"history gives other {kind} records than the state")
        if service.loop is not None and service.loop.settled and service.plane.state != state:
            raise Violation("10", "the service believes something that is not durable")
        self.check_progress(service)

    def in_its_way(self, operation: Operation) -> str:
        """Say why an announced operation may not start now, its budgets included."""
        if operation.maintenance and self.queue.now_ms < self._policy_ms + LATE_MS:
            return "its budgets are found by a new policy"
        if operation.is_return and self.maintenance.holds(operation):
            return "its VM cannot return yet"
        if self.maintenance.rests(operation, self.clients.service_ms):
            return "an owner rests"
        return super().in_its_way(operation) or self.maintenance.lacks_room(operation)

    def check_progress(self, service: SimulatedControl) -> None:
        """L-8: nothing hangs silently; B-2: nobody is waited for who is silent for a day."""
        if service.loop is None or not service.loop.settled:
            return
        now_ms = service.clock.now_ms()
        silent_ms = now_ms - DAY_MS - LATE_MS
        for enrolment in self.state.enrolments.values():
            if enrolment.polled_ms < silent_ms:
                raise Violation("12", f"{enrolment.group} is silent for a day and still asked")
        for operation in self.state.operations.values():
            if operation.state is S.RUNNING:
                self._check_running(operation, now_ms)
            elif operation.state is S.ANNOUNCED:
                self._check_waiting(operation, now_ms)
            else:
                self._check_planned(operation)
        for maintenance in self.state.maintenances.values():
            self._check_goes_on(maintenance, now_ms)
        sound_ms = self.queue.now_ms - self.sound_since_ms(None)
        self.declarations.check_progress(now_ms, sound_ms=sound_ms)
        for operation in self.state.aborts.values():
            if self.owed[operation.number] + ABORT_MS < self.queue.now_ms:
                raise Violation("L-7", f"the driver is not notified that {operation.id} has ended")

    def _check_goes_on(self, maintenance: Maintenance, now_ms: int) -> None:
        """F-4: a maintenance does not wait for what does not keep it back."""
        host = self.maintenance.may_announce(maintenance, now_ms)
        if not host:
            self._free_ms.pop(maintenance.number, None)
            return
        self.premises["F-4: a host may be announced"] += 1
        since_ms = self._free_ms.setdefault(maintenance.number, self.queue.now_ms)
        since_ms = max(since_ms, self.sound_since_ms(None), self._policy_ms)
        if since_ms + PLANNED_AGAIN_MS <= self.queue.now_ms:
            raise Violation("F-4", f"{maintenance.id} waits, and nothing keeps {host} back")

    def _check_planned(self, operation: Operation) -> None:
        """G-1: routine work is announced unless other work is in its way."""
        others = [
            each
            for each in self.state.operations.values()
            if each.number != operation.number
            and (each.state is S.RUNNING or (each.state is S.ANNOUNCED and is_routine(each)))
        ]
        held = operation.is_return and self.maintenance.holds(operation)
        if held or any(obstacle(operation, each, self.state.topology) for each in others):
            self._clear_ms.pop(operation.number, None)
            return
        since_ms = self._clear_ms.setdefault(operation.number, self.queue.now_ms)
        if self._is_late(max(since_ms, self.sound_since_ms(None))):
            raise Violation("L-1", f"{operation.id} may be announced and is not")

    def _check_waiting(self, operation: Operation, now_ms: int) -> None:
        """Invariant 12, on the way: what is due starts, if nothing is in its way."""
        # A service that comes back starts what became due meanwhile in portions, not in one step.
        due = operation.not_before_ms + LATE_MS < now_ms and self._is_late(self.recovered_ms)
        if due and not self.in_its_way(operation) and not self.nodes.notice.waits(operation):
            raise Violation("12", f"{operation.id} is due and has not started")

    def _check_halted(self, number: int) -> None:
        """F-5, F-6: what a maintenance has announced is withdrawn at once where it halts."""
        halted_ms = self.maintenance.halted_ms.get(number)
        if halted_ms is None or not self._is_late(max(halted_ms, self.sound_since_ms(None))):
            return
        for operation in self.state.operations.values():
            own = operation.maintenance == number and not operation.is_return
            if own and operation.state is S.ANNOUNCED:
                raise Violation("F-6", f"{operation.id} is announced, and m-{number} is halted")

    def _check_running(self, operation: Operation, now_ms: int) -> None:
        """Invariant 13, on the way: it is begun, it ends by its driver's word, or people hear."""
        self.premises["13: something runs"] += 1
        key = (operation.number, operation.execution.attempt)
        late = self._is_late(self.running_ms[key])
        due_ms = operation.execution.begun_ms or operation.execution.started_ms or 0
        due_ms += (max(operation.duration_s, 0) + self._policy.overdue_after_s) * 1000
        if late and due_ms + LATE_MS < now_ms and operation.alert is Alert.NONE:
            raise Violation("13", f"{operation.id} hangs, and nobody was alerted")
        if operation.reason:
            return  # it waits for people
        if late and not operation.execution.begun_ms:
            raise Violation("13", f"{operation.id} runs, and its driver's begin was not called")
        if operation.validating:
            return  # its host is checked first. T-7
        if key in self.reported and self._is_late(self.reported[key]):
            raise Violation("13", f"{operation.id} runs on, whose end its driver has reported")

    def _is_late(self, since_ms: int) -> bool:
        """Whether the service has run for long enough to act on what was so since, true time."""
        return max(since_ms, self.recovered_ms) + LATE_MS < self.queue.now_ms

    def healed(self, nodes: Iterable[SimulatedNode]) -> None:
        """Invariants 12 and 13: after healing, everything came to its end, and all nodes know."""
        self.premises["12, 13, 14: a world heals"] += 1
        for operation in self.state.operations.values():
            number = "13" if operation.state is S.RUNNING else "12"
            raise Violation(number, f"{operation.id} is {operation.state.value} for ever")
        for operation in self.state.aborts.values():
            raise Violation("L-7", f"the driver was never notified that {operation.id} has ended")
        for view in self.state.views.values():
            if view.document.events:
                raise Violation("13", f"{view.key} still shows events")
            for node in nodes:
                far = self.nodes.find(node)
                if far is not None and not self.nodes.serves(far, view.key):
                    continue
                shown = node.snapshot.view(view.key)
                if not shown.enabled or shown.document != view.document:
                    text = f"{node.name} shows {view.key} {shown.document} for {view.document}"
                    raise Violation("8", text)


def _live(records: Mapping[str | int, Record]) -> dict[str | int, Record]:
    return {key: each for key, each in records.items() if getattr(each, "live", True)}
