"""A world: a random fleet, people who ask for work, faults that come, and what must then hold.

No fault is drawn here (`faults.py`), and no promise checked (`invariants.py`).
"""

from collections.abc import Callable

from forewarn_core.fleet.availability import Period
from forewarn_core.fleet.lifecycle import Operation
from tests.simulator.checkers.availability_checker import check_availability
from tests.simulator.checkers.blocker_checker import check_blockers
from tests.simulator.world.crash_points import Violation
from tests.simulator.world.dice import Dice
from tests.simulator.world.event_queue import DAY_MS, HOUR_MS, MINUTE_MS, START_MS
from tests.simulator.world.faults import Faults
from tests.simulator.world.network import NetworkFaultRates
from tests.simulator.world.people import People
from tests.simulator.world.random_fleet import RandomFleet, WorldPlan

__all__ = ["World", "WorldPlan"]

#: How often history is replayed and held against the state.
AUDIT_MS = 6 * HOUR_MS
#: How often one maintenance is asked what it waits for, and that taken away in a copy.
BLOCKER_MS = 70 * MINUTE_MS
#: How often the service is looked at for what should have happened.
LOOK_MS = 10 * MINUTE_MS
#: Longest a healed world may take to settle: predictions are announced a week ahead.
HEAL_DAYS_MAX = 9
#: How long a world at rest runs on, so that every node has heard the last word.
QUIET_MS = 10_000


class World(RandomFleet):
    """One simulated fleet under faults."""

    def __init__(self, plan: WorldPlan) -> None:
        """Draw the fleet and start the service."""
        super().__init__(plan)
        self.people = People(self)
        self.faults = Faults(self, self.people, plan.without)
        self.start_service()
        self.populate()
        self.people.begin(plan.without)
        self._regularly(AUDIT_MS, self.audit)
        self._regularly(LOOK_MS, self._check_progress)
        self._blocker_dice = Dice(plan.seed, "blockers")
        self._regularly(BLOCKER_MS, self._check_blockers)

    # ---- running -------------------------------------------------------------------------------

    def run(self) -> None:
        """Hurt it for its days, then heal it until nothing moves.

        Raises:
            Violation: the product broke a promise.
        """
        with self.captured_logs():
            until_ms = START_MS + int(self.plan.days * DAY_MS)
            self._run_until(until_ms)
            self.heal()
            until_ms += HEAL_DAYS_MAX * DAY_MS
            self._run_until(self.queue.now_ms + QUIET_MS)
            while self.unfinished() and self.queue.now_ms < until_ms:
                while self.unfinished() and self.queue.step(until_ms):
                    pass
                # A host that failed before may be reported only now.
                self._run_until(self.queue.now_ms + QUIET_MS)
            self.audit()
            self.checker.healed(self.nodes)
            unfinished = self.unfinished()
            if unfinished:
                raise Violation("14", f"after {HEAL_DAYS_MAX} days of healing, {unfinished}")
            self._check_machines()
            now_ms = self.service.clock.now_ms()
            period = Period(START_MS, now_ms, now_ms)
            check_availability(self.store, self.checker.state, period, self.checker.premises)

    def heal(self) -> None:
        """End every fault, and let nobody ask for anything new."""
        self.healing = True
        self.faults.stop()
        self.node_faults.heal()
        self.people.heal()
        self.crash_point.armed = ""
        self.disk_fault_rates.permille = 0
        self.driver.faulty = False
        self.publish_lag_ms = 0
        self.publish_fails = False
        self.network.set_fault_rates(NetworkFaultRates())
        for node in self.nodes[1:]:
            self.join(node)
        for group in list(self.topology.groups):
            self.unmute(group)

    def _run_until(self, at_ms: int) -> None:
        while self.queue.step(at_ms):
            pass

    def unfinished(self) -> str:
        """What is still under way; empty if nothing is."""
        state = self.checker.state
        for under_way in (state.operations, state.aborts):
            for operation in under_way.values():
                return f"{operation.id} goes on"
        for maintenance in state.maintenances.values():
            return f"{maintenance.id} is {maintenance.state.value}"
        return self._unfinished_processes() or self._unfinished_machines()

    def _unfinished_processes(self) -> str:
        if not self.service.up:
            return "the service is down"
        for node in self.nodes[1:]:
            if not self.follows(node):
                return f"{node.name} does not follow"
        for far in self.nodes_by_host:
            if far.waits_to_deliver:
                return f"{far.name} has approvals to deliver"
        if self.replaced_writer is not None:  # VMs may still ask its node
            return "the writer before has not ended"
        return ""

    def _unfinished_machines(self) -> str:
        for name, machine in self.machines.items():
            if not machine.up:
                return f"vm {name} is down"
            if machine.core is None and machine.profile.habit.polls:
                return f"the agent of vm {name} does not run"
            if machine.core is not None and machine.core.events:
                return f"vm {name} still follows {[e.event_id for e in machine.core.events]}"
        return ""

    def _check_progress(self) -> None:
        self.checker.nodes.look_at_all()
        if self.is_calm():
            self.checker.check_progress(self.service)

    def _check_blockers(self) -> None:
        """Invariant 17, of one maintenance that is drawn, in a copy of the world."""
        state, loop = self.checker.state, self.service.loop
        live = list(state.maintenances)
        if not live or loop is None or not loop.settled or not self.is_calm():
            return
        number = self._blocker_dice.pick(live)
        now_ms, premises = self.service.clock.now_ms(), self.checker.premises
        check_blockers(state.copy(), self.policy, now_ms=now_ms, number=number, premises=premises)

    def _check_machines(self) -> None:
        """Invariant 14: every prepared machine has recovered."""
        for name, machine in self.machines.items():
            core = machine.core
            if core is not None and core.steps:
                raise Violation("14", f"{name} is still prepared: {[s.key for s in core.steps]}")

    def begun(self, operation: Operation) -> None:
        """A driver begins: a fault may be waiting for that."""
        super().begun(operation)
        self.faults.begun(operation)

    def crashed(self) -> None:
        """The process has just ended; it may end again before it is up."""
        self.faults.crashed()

    def _regularly(self, every_ms: int, act: Callable[[], None]) -> None:
        def due() -> None:
            act()
            self.queue.after(every_ms, due)

        self.queue.after(every_ms, due)
