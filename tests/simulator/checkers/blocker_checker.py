"""Invariant 17: what waits has a true first blocker, as a copy of the world shows. Source: F-4.

The copy is the real core and planner over what the store holds: in it exactly the named blocker is
taken away, and then nobody may name it any more. Nothing of the world is changed.
"""

from collections import Counter
from collections.abc import Callable

from forewarn_base.errors import CallerError
from forewarn_base.ids import Ids
from forewarn_base.values import replace
from forewarn_core.fleet import stimulus as stimuli
from forewarn_core.fleet.draft import Draft, Terms
from forewarn_core.fleet.lifecycle import OperationState
from forewarn_core.fleet.maintenance import Due, Maintenance, MaintenanceState
from forewarn_core.fleet.policy import NoticePolicy, maintenance_policy
from forewarn_core.fleet.state import State
from forewarn_core.fleet.step import step
from forewarn_core.fleet.stimulus import (
    ApplyPolicy,
    GatePassed,
    PlaneStimulus,
    PlanMade,
    ResumeMaintenance,
    StartMaintenance,
)
from forewarn_core.fleet.why import why_host, why_maintenance
from forewarn_core.planning.policy import MaintenancePolicy
from forewarn_core.rules.blockers import Blocker, Code, code_of
from forewarn_server.control.planning import plan_made, planner_task
from tests.simulator.world.crash_points import Violation

#: Steps in which what follows from a blocker's end must have come.
STEPS_MAX = 200
#: Time that a plan of a fleet takes at most, and that its notices include.
PLANNING_MS = 600_000
S = OperationState
#: What only the work of others ends, or nothing that can be drawn here.
UNDECIDED = frozenset({code_of("previous-wave"), code_of("unknown-host")})


def check_blockers(
    state: State, policy: NoticePolicy, *, now_ms: int, number: int, premises: Counter[str]
) -> None:
    """Hold what a maintenance and its hosts are said to wait for against a copy of the world.

    Args:
        state: a copy of what is durable, which nobody else has; it is changed.
        policy: the service's.
        now_ms: the service's time.
        number: the maintenance.
        premises: where it is counted what there was to check.
    """
    world = WorldCopy(state, policy, now_ms)
    maintenance = state.maintenances[number]
    for host in maintenance.hosts:
        target = state.targets.get(f"{number}/{host}")
        if (target is None or target.state.value == "working") and not world.why(number, host):
            raise Violation("17", f"host {host} of {maintenance.id} waits, and nothing is said")
    blocker = world.why(number)
    if blocker is None:
        raise Violation("17", f"{maintenance.id} waits for nothing, and is not over")
    if blocker.since_ms > now_ms:
        raise Violation("17", f"{maintenance.id} waits since a time that is to come")
    remove = world.remover(blocker, maintenance)
    premises["17: a maintenance waits"] += 1
    if remove is None:
        return
    touched = world.touched(number)
    premises[f"17: {blocker.code.value}"] += 1
    remove()
    after = world.why(number)
    same = after is not None and (after.code, after.subject) == (blocker.code, blocker.subject)
    if same and world.touched(number) == touched:
        text = blocker.sentence(maintenance.id)
        raise Violation("17", f"{maintenance.id} waits on, though this was removed: {text}")


class WorldCopy:
    """The core and the planner over a state of their own, stepped until they rest."""

    def __init__(self, state: State, policy: NoticePolicy, now_ms: int) -> None:
        """Begin at a time of the service."""
        self.state, self.now_ms = state, now_ms
        self._policy = policy
        ids = Ids(1)
        self._terms = Terms(policy, "operator", lambda: ids.guid("copy"), "simulated")

    def why(self, number: int, host: str = "") -> Blocker | None:
        """What a maintenance, or one host of it, waits for first."""
        maintenance = self.state.maintenances.get(number)
        if maintenance is None:
            return None
        draft = Draft(self.state, self.now_ms, self._terms)
        return why_host(draft, maintenance, host) if host else why_maintenance(draft, maintenance)

    def touched(self, number: int) -> object:
        """How far a maintenance has come, to see whether it goes on."""
        work = [each for each in self.state.operations.values() if each.maintenance == number]
        return sorted((each.number, each.state.value) for each in work)

    def take(self, *asked: PlaneStimulus) -> None:
        """Do something, and what follows from it, plans included."""
        left = list(asked)
        for _ in range(STEPS_MAX):
            if not left:
                return
            try:
                outcome = step(self.state, left.pop(0), now_ms=self.now_ms, terms=self._terms)
            except CallerError:
                continue  # such as a plan that came too late
            self.state.keep()
            shown = tuple(
                number
                for number, each in outcome.changes.operations.items()
                if each.state is S.ANNOUNCED and not each.notice.shown_ms
            )
            left += [stimuli.NoticeShown(shown)] if shown else []
            left += [stimuli.Proceed(outcome.remaining)] if outcome.remaining else []
            left += [self._plan(number) for number in outcome.to_plan if self._wants_plan(number)]
        raise Violation("17", "a copy of the world does not settle")

    def _wants_plan(self, number: int) -> bool:
        maintenance = self.state.maintenances.get(number)
        return maintenance is not None and maintenance.plan_wanted

    def _plan(self, number: int) -> PlanMade:
        maintenance = self.state.maintenances[number]
        return plan_made(
            planner_task(self.state, maintenance, policy=self._policy, now_ms=self.now_ms)
        )

    # ---- taking one blocker away ---------------------------------------------------------------

    def remover(  # noqa: C901 - a flat table
        self, blocker: Blocker, maintenance: Maintenance
    ) -> Callable[[], None] | None:
        """Return what takes exactly this blocker away; None where nothing here can."""
        number, code = maintenance.number, blocker.code
        works = [each for each in self.state.targets.values() if each.maintenance == number]
        operation = min((t.operation for t in works if t.state.value == "working"), default=0)
        if code is code_of("operator") and not maintenance.running:
            draft = maintenance.state is MaintenanceState.DRAFT
            moves = self._starts(number) if draft else (ResumeMaintenance(number),)
            return lambda: self.take(*moves)
        if code in {code_of("operator"), code_of("driver")}:
            return lambda: self.take(self._end(operation))
        if code is code_of("approval"):
            return lambda: self.take(stimuli.Acknowledge(self._events(operation, blocker.subject)))
        if code is code_of("unseen"):
            return lambda: self.take(stimuli.NoticeShown((operation,)))
        if code is code_of("gate"):
            work = self.state.operations.get(operation)
            attempt = work.execution.attempt if work else 0
            validated = stimuli.HostValidated(operation, attempt)
            return lambda: self.take(GatePassed(number), validated)
        if code is code_of("planning") and not maintenance.plan_wanted:
            return lambda: self._pass_time(blocker.clears_ms)
        if code is code_of("planning"):
            return lambda: self.take(self._plan(number))
        if code in {
            code_of("host-busy"),
            code_of("fault-domain"),
            code_of("host-failed"),
            code_of("arrivals"),
        }:
            return self._end_of(blocker.subject)
        if code in _POLICY_WITHOUT:
            return lambda: self._without(maintenance, _POLICY_WITHOUT[code])
        if code in {code_of("capacity"), code_of("own-moves")}:
            return self._giver_of_room(blocker, maintenance)
        if code in UNDECIDED or blocker.clears_ms <= self.now_ms:
            return None
        return lambda: self._pass_wait(blocker.clears_ms, number)

    def _starts(self, number: int) -> tuple[PlaneStimulus, ...]:
        """Return what starts a draft, also where the policy requires a declaration."""
        policy = maintenance_policy(self.state.policies.get("fleet"), self._policy)
        starts = StartMaintenance(number)
        if not policy.require_declaration:
            return (starts,)
        return ApplyPolicy(replace(policy, require_declaration=False)), starts

    @staticmethod
    def _end(number: int) -> PlaneStimulus:
        """Return what ends running work; with a reason, its host needs no validation. T-7."""
        return stimuli.Complete(number, reason="seen to")

    def _roomy(self) -> stimuli.ChangeTopology:
        """Return a change that gives every host room for any VM, and every VM a known size."""
        topology = self.state.topology
        return stimuli.ChangeTopology(
            hosts=tuple(replace(each, memory_mib=1 << 26) for each in topology.hosts.values()),
            vms=tuple(replace(each, memory_mib=1) for each in topology.vms.values()),
        )

    def _giver_of_room(
        self, blocker: Blocker, maintenance: Maintenance
    ) -> Callable[[], None] | None:
        """Return what gives VMs room to leave, and for own moves ends budgets or other work."""
        if "no other host" in blocker.subject:
            return None
        roomy = self._roomy()
        if blocker.code is code_of("capacity"):
            return lambda: self._replanned(roomy)

        def give_room() -> None:
            self.take(roomy)
            self._without(maintenance, _POLICY_WITHOUT[code_of("budget")])

        return self._end_of(blocker.subject) or give_room

    def _events(self, operation: int, group: str) -> tuple[str, ...]:
        known = self.state.operations[operation].events
        return tuple(each for each in known if self.state.events[each].group == group)

    def _pass_time(self, at_ms: int) -> None:
        self.now_ms = max(self.now_ms, at_ms)
        self.take(stimuli.Tick())

    def _pass_wait(self, at_ms: int, number: int) -> None:
        """Pass time, and what a plan that was made again meanwhile adds to it for its planning."""
        self._pass_time(at_ms)
        maintenance = self.state.maintenances.get(number)
        phase = maintenance.phase if maintenance else None
        if isinstance(phase, Due) and self.now_ms < phase.at_ms <= at_ms + PLANNING_MS:
            self._pass_time(phase.at_ms)

    def _end_of(self, subject: str) -> Callable[[], None] | None:
        """End the work, or repair the host, that a blocker names."""
        host = subject.removeprefix("the failure of host ")
        if host in self.state.topology.hosts:
            busy = [
                self._end(each.number)
                for each in self.state.operations.values()
                if each.host == host and not each.of_vm and each.state is S.RUNNING
            ]
            return lambda: self._replanned(*busy, stimuli.Repair(host))
        name = subject.removeprefix("op-")
        operation = self.state.operations.get(int(name)) if name.isdigit() else None
        if operation is None:
            return None
        if operation.state is S.RUNNING:
            return lambda: self._replanned(self._end(operation.number))
        return lambda: self._replanned(stimuli.Cancel(operation.number))

    def _without(
        self, maintenance: Maintenance, without: Callable[[MaintenancePolicy], MaintenancePolicy]
    ) -> None:
        """Take a rule out of the policy, and what the maintenance adds to it."""
        number = maintenance.number
        asked = replace(maintenance, budgets=(), deadline_ms=None, rests_until_ms=None)
        self.state.maintenances[number] = asked
        self._replanned(without=without)

    def _replanned(
        self,
        *asked: PlaneStimulus,
        without: Callable[[MaintenancePolicy], MaintenancePolicy] = lambda policy: policy,
    ) -> None:
        """Do something and have a plan made: another policy does that at once."""
        self.take(*asked)
        policy = without(maintenance_policy(self.state.policies.get("fleet"), self._policy))
        self.take(ApplyPolicy(replace(policy, max_failures=policy.max_failures + 1)))


_POLICY_WITHOUT: dict[Code, Callable[[MaintenancePolicy], MaintenancePolicy]] = {
    code_of("window"): lambda policy: replace(policy, windows=(), freezes=()),
    code_of("window-too-short"): lambda policy: replace(policy, windows=(), freezes=()),
    code_of("budget"): lambda policy: replace(policy, budgets=()),
    code_of("pause"): lambda policy: replace(policy, pause_s=0),
    code_of("owner-rest"): lambda policy: replace(policy, owner_rest_s=0),
    code_of("deadline"): lambda policy: policy,
}
