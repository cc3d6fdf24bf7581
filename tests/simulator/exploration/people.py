"""What people may ask for in a situation, and how everything ends once nobody asks any more."""

from collections.abc import Iterator

from forewarn_core.fleet.lifecycle import EventState, OperationState
from forewarn_core.fleet.state import State
from forewarn_core.fleet.stimulus import (
    Acknowledge,
    Cancel,
    Complete,
    DriverAborted,
    DriverBegun,
    DriverDone,
    Enable,
    GroupsPolled,
    NoticeShown,
    PlaneStimulus,
    Repair,
    Retry,
)
from forewarn_core.fleet.topology import Health
from forewarn_core.requests import ApprovalRequest
from tests.simulator.exploration.situation_promises import check_in_time
from tests.simulator.exploration.situations import Effect, Situations
from tests.simulator.exploration.worlds import SmallWorld
from tests.simulator.world.crash_points import Violation

S, E = OperationState, EventState
#: Steps after which a world in which nothing goes wrong any more must have come to its end.
HEAL_STEPS_MAX = 80


class People:
    """Who asks, decides and repairs in one small world."""

    def __init__(self, world: SmallWorld, cores: Situations) -> None:
        """Begin with nothing asked for."""
        self._world, self._cores = world, cores
        self._wishes: list[tuple[str, PlaneStimulus, int]] = []
        wishes: tuple[PlaneStimulus, ...] = (*world.asks, *world.changes, *world.words)
        for number, stimulus in enumerate(wishes):
            label = f"ask {number}" if number < len(world.asks) else f"change {number}"
            if number >= len(world.asks) + len(world.changes):
                label = f"{type(stimulus).__name__} {number}"
            self._wishes.append((label, stimulus, 1 << number))
        self._asks_mask = (1 << len(world.asks)) - 1
        self._offers: dict[int, list[tuple[str, Effect]]] = {}
        self._healed: set[int] = set()

    def offered(self, core: int) -> list[tuple[str, Effect]]:
        """What people, and groups as a whole, may do in a situation; each comes to something."""
        offers = self._offers.get(core)
        if offers is None:
            offers = self._offers[core] = []
            for label, stimulus, wish in [*self._wanted(core)]:  # a step may touch what it reads
                effect = self._cores.effect(core, stimulus, wish)
                if effect is not None:
                    offers.append((label, effect))
            offers += self._planned(core)
            self._check_strangers(core)
            check_in_time(self._cores.all[core], self._world.policy)
            self.heals(core)
        return offers

    def _planned(self, core: int) -> Iterator[tuple[str, Effect]]:
        for number, maintenance in [*self._cores.all[core].state.maintenances.items()]:
            effect = self._cores.planned(core, number) if maintenance.plan_wanted else None
            if effect is not None:
                yield f"m-{number} is planned", effect

    def _wanted(self, core: int) -> Iterator[tuple[str, PlaneStimulus, int]]:
        situation = self._cores.all[core]
        asked = (situation.uttered & self._asks_mask).bit_count()
        for label, stimulus, wish in self._wishes:
            full = wish & self._asks_mask and asked >= self._world.asks_max
            if not situation.uttered & wish and not full:
                yield label, stimulus, wish
        state = situation.state
        for group in state.topology.groups:
            if group not in state.enrolments:
                yield f"{group} asks first", Enable(group), 0
            elif self._world.silence:
                yield f"{group} polls", GroupsPolled(frozenset({group})), 0
        if self._world.operators:
            yield from self._wanted_by_operators(core)

    def _wanted_by_operators(self, core: int) -> Iterator[tuple[str, PlaneStimulus, int]]:
        state = self._cores.all[core].state
        for number, operation in state.operations.items():
            if operation.state is not S.RUNNING:
                yield f"cancel op-{number}", Cancel(number), 0
                continue
            yield f"complete op-{number}", Complete(number), 0
            if operation.reason and operation.execution.attempt == 1:
                yield f"retry op-{number}", Retry(number), 0
                yield f"fail op-{number}", Complete(number, failed=True), 0
        for event in state.events.values():
            if event.state is E.SCHEDULED:
                yield f"acknowledge {event.id[:8]}", Acknowledge((event.id,)), 0
        for host in state.topology.hosts.values():
            if host.health is not Health.HEALTHY:
                yield f"repair {host.name}", Repair(host.name), 0

    def _check_strangers(self, core: int) -> None:
        """Invariant 7: what is none of a VM's business is refused; and a driver may be gone."""
        state = self._cores.all[core].state
        for number in tuple(state.aborts):
            self._cores.effect(core, DriverAborted(number, "it cannot be reached"))
        for event in tuple(state.events.values()):
            for vm in tuple(state.topology.vms.values()):
                asked = ApprovalRequest(vm.name, (event.id,), "")
                if vm.group != event.group and self._cores.effect(core, asked) is not None:
                    raise Violation("7", f"{vm.name} approved {event.id} of {event.group}")

    # ---- liveness ------------------------------------------------------------------------------

    def heals(self, core: int) -> None:
        """Invariants 12 and 13: where nothing goes wrong any more, everything comes to its end."""
        passed = []
        for _ in range(HEAL_STEPS_MAX):
            if core in self._healed:
                break
            passed.append(core)
            state = self._cores.all[core].state
            if not state.operations and not state.aborts:
                break
            after = next(
                (e for s in [*_next_good(state)] if (e := self._cores.effect(core, s))), None
            )
            after = after or self._cores.passing(core)
            if after is None:
                raise Violation("12", f"{list(state.operations.values())} come to no end")
            core = after.after
        else:
            state = self._cores.all[core].state
            raise Violation("13", f"{list(state.operations.values())} come to no end")
        self._healed.update(passed)


def _next_good(state: State) -> Iterator[PlaneStimulus]:
    """Yield what a sound process, its node and its drivers do next of themselves."""
    operations = state.operations
    for number in state.aborts:
        yield DriverAborted(number)
    for number, operation in operations.items():
        if operation.state is S.ANNOUNCED and not operation.notice.shown_ms:
            yield NoticeShown((number,))
        elif operation.state is S.RUNNING and operation.reason:
            yield Complete(number, failed=True)
        elif operation.state is S.RUNNING and not operation.execution.begun_ms:
            yield DriverBegun(number, operation.execution.attempt)
        elif operation.state is S.RUNNING:
            yield DriverDone(number, operation.execution.attempt)
