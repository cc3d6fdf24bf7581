"""Checks VMs that approve together: what they announce to each other is true, and they do agree.

It sees what a machine's hooks have done and what its agent says and does; nothing is changed in
here. The rules are written a second time, from the documents. Source: C-5.
"""

from forewarn.agent.core.records import APPROVED, HELD, READY, EventRecord
from forewarn.agent.core.rules import STAND_IN_S
from forewarn_base.protocol.documents import ScheduledEvent
from forewarn_core.fleet.lifecycle import EventState
from forewarn_core.fleet.state import Changes
from tests.simulator.checkers.state_checker import StateChecker
from tests.simulator.world.crash_points import Violation
from tests.simulator.world.event_queue import EventQueue
from tests.simulator.world.machine import Machine
from tests.simulator.world.network import Network

E = EventState

PROMISE = "C-5"
#: Where VMs meet: a place such as etcd, or each other's status endpoint. Source: C-5.
SHARED, STATUS = "shared", "status"
PLACES = (SHARED, STATUS)
#: How old an answer may be that is acted on at once: a minute on its way, and what is asked once
#: more before a VM stands in.
STALE_MS = 90_000
#: How long prepared VMs may take to find that out, on a faultless network, besides standing in.
AGREE_MS = 4 * 60_000
FREEZE_TOLERATED_S = 9


class CoordinationChecker:
    """Follows which VMs are prepared, and checks what they say and approve."""

    def __init__(
        self,
        queue: EventQueue,
        state_checker: StateChecker,
        *,
        network: Network,
        machines: dict[str, Machine],
    ) -> None:
        """Begin with nobody prepared."""
        self._queue = queue
        self._state_checker = state_checker
        self._network = network
        self.machines = machines
        #: VM -> since when its preparation is done, and until when it was; 0 for: it still is.
        self._drained: dict[str, tuple[int, int]] = {}
        #: Events for which a VM has truly said that it is prepared.
        self._said: dict[str, set[str]] = {}
        self._decided: set[tuple[str, str]] = set()

    def prepared(self, name: str, *, done: bool) -> None:
        """A VM's preparation is done, or is being undone."""
        now_ms = self._queue.now_ms
        since_ms, until_ms = self._drained.get(name, (0, 1))
        if done:
            self._drained[name] = (now_ms, 0)
        elif not until_ms:
            self._drained[name] = (since_ms, now_ms)

    def says(self, machine: Machine, event: ScheduledEvent) -> None:
        """A VM says that it is prepared: it must be."""
        name = machine.profile.name
        if _needs(event) and not self._is_drained(name, 0):
            raise Violation(PROMISE, f"{name} says it is prepared for {event.event_id} and is not")
        self._said.setdefault(event.event_id.upper(), set()).add(name)

    def approves(self, machine: Machine, event: ScheduledEvent) -> None:
        """A VM approves for all: every other one must have been prepared when it decided so."""
        name = machine.profile.name
        decision = (name, event.event_id.upper())
        if decision in self._decided:
            return  # an approval that got no answer is sent again
        self._decided.add(decision)
        known = self._state_checker.events.get(event.event_id.upper())
        if known is None or known.state is not E.SCHEDULED:
            return  # another one has approved: it may have recovered since from what came after
        self._check_turn(machine, event)
        if not machine.profile.place:
            return
        waits_s = machine.identity.position_in(event.resources) * STAND_IN_S
        stale_ms = STALE_MS + int(waits_s * 1000)
        for resource in machine.identity.others_in(event.resources):
            other = resource.removeprefix("_")  # the oldest version writes it so
            if machine.profile.place == SHARED:  # what is noted there may be of an earlier time
                fine = other in self._said.get(event.event_id.upper(), ())
            else:
                fine = not _needs(event) or self._is_drained(other, stale_ms)
            if not fine:
                raise Violation(
                    PROMISE, f"{name} approves {event.event_id} and {other} is not prepared"
                )

    def _check_turn(self, machine: Machine, event: ScheduledEvent) -> None:
        """Who approves is the first in Resources, or stands in for those who cannot."""
        names = [resource.removeprefix("_") for resource in event.resources]
        name = machine.profile.name
        if name not in names:
            raise Violation(PROMISE, f"{name} approves {event.event_id}, which is of {names}")
        leader = self.machines.get(names[0])
        self._state_checker.premises["C-5: the leader approves"] += leader is machine
        if leader is None or leader is machine:
            return
        self._state_checker.premises["C-5: a VM stands in"] += 1
        if self._ready_for_ms(leader, event.event_id) > AGREE_MS:
            raise Violation(PROMISE, f"{name} approves {event.event_id} for {names[0]}, it could")

    def _ready_for_ms(self, machine: Machine, event_id: str) -> int:
        """For how long a VM could have approved an event, with nothing in its way; 0 if not."""
        record = _record_of(machine, event_id)
        if record is None or record.stage != READY or machine.muted or machine.disk.full:
            return 0
        since_ms = max(self._ready_ms(machine, record), self._calm_since_ms(machine))
        ready = bool(self._ready_ms(machine, record))
        return max(self._queue.now_ms - since_ms, 0) if ready else 0

    def _calm_since_ms(self, machine: Machine) -> int:
        """Since when nothing is in the way of what a VM asks of its node and the service."""
        sound_ms = self._state_checker.sound_since_ms(self._network.node_of(machine.profile.name))
        return max(self._network.calm_since_ms, sound_ms)

    def _check_leader(self, event_id: str, resources: tuple[str, ...]) -> None:
        """Liveness: the first in Resources approves where it could for long enough."""
        leader = self.machines.get(resources[0]) if resources else None
        if leader is None or leader.profile.place or not leader.profile.habit.approves:
            return
        self._state_checker.premises["C-5: nobody approved"] += 1
        if self._ready_for_ms(leader, event_id) > AGREE_MS:
            raise Violation(PROMISE, f"{resources[0]} could approve {event_id} and did not")

    def durable(self, changes: Changes) -> None:
        """Whatever starts unapproved because its time has come: somebody could not approve."""
        for event in changes.events.values():
            before = self._state_checker.events.get(event.id)
            if event.state is E.STARTED and before is not None and before.state is E.SCHEDULED:
                operation = changes.operations.get(event.operation)
                if (
                    operation is not None
                    and (operation.execution.started_ms or 0) >= operation.not_before_ms
                ):
                    self._check_unapproved(event.id, event.resources)
                    self._check_leader(event.id, event.resources)

    def _check_unapproved(self, event_id: str, resources: tuple[str, ...]) -> None:
        """Liveness: where all were prepared for long enough, one of them has approved."""
        machines = [self.machines.get(name) for name in resources]
        calm_ms = self._queue.now_ms - AGREE_MS
        if len(machines) < 2:
            return
        waiting: list[int] = []
        for position, machine in enumerate(machines):
            if machine is None or machine.muted or not machine.profile.place:
                return
            record = _record_of(machine, event_id)
            # One that died before it noted its success does not know of it; and where one has
            # approved, as is not enough in a strict group, its word need not be heard any more.
            if record is None or record.stage in {HELD, APPROVED}:
                return
            ready_ms = self._ready_ms(machine, record)
            since_ms = max(ready_ms, self._calm_since_ms(machine))
            calm_ms = min(calm_ms, self._queue.now_ms - since_ms - AGREE_MS)
            if not ready_ms or calm_ms < 0:
                return
            if record.stage == READY:
                waiting.append(position)
        for position in waiting:
            if calm_ms > position * STAND_IN_S * 1000:
                raise Violation(
                    PROMISE, f"all of {resources} were prepared for {event_id}; nobody approved"
                )

    def _ready_ms(self, machine: Machine, record: EventRecord) -> int:
        """Since when a VM is prepared for an event and its agent knows; 0 if it is not.

        One that was restarted acts on nothing before it has seen what is still announced.
        """
        if not machine.sees_ms:
            return 0
        seen_ms = max(record.seen_ms - machine.ahead_ms, machine.sees_ms)
        if not _needs(record.event) and machine.profile.habit.approves:
            return seen_ms
        since_ms, until_ms = self._drained.get(machine.profile.name, (0, 1))
        return 0 if until_ms else max(since_ms, seen_ms)

    def _is_drained(self, name: str, within_ms: int) -> bool:
        since_ms, until_ms = self._drained.get(name, (0, 1))
        return bool(since_ms) and (not until_ms or until_ms + within_ms >= self._queue.now_ms)


def _record_of(machine: Machine, event_id: str) -> EventRecord | None:
    records = machine.core.events if machine.core is not None else ()
    return next((record for record in records if record.event_id == event_id), None)


def _needs(event: ScheduledEvent) -> bool:
    """Whether an event is prepared for at all. Source: C-4."""
    short = event.event_type == "Freeze" and 0 <= event.duration_s < FREEZE_TOLERATED_S
    return not short
