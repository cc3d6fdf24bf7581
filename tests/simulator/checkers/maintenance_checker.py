"""Invariants 15 and 19, F-5 and F-6: what maintenances announce and start, as it becomes durable.

The rules of what is announced are in `maintenance_rules.py`; plans are given to the product's
own checker, as they are kept, beside what is durable. Nothing is changed.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Literal, TypeAlias

from forewarn.control.planning import asked_of, fleet_of, plan_of, snapshot, task_of
from forewarn.core.impact import Cause, Source
from forewarn.core.maintenance import MaintenanceState, TargetState
from forewarn.core.policy import maintenance_policy
from forewarn.planning import checker
from forewarn.planning.plan import FleetState as Beside
from forewarn.planning.plan import VmMove
from forewarn.values import replace
from tests.simulator.checkers.contract import OWED_S, is_fault
from tests.simulator.checkers.maintenance_rules import closed, over_budget
from tests.simulator.world.crash_points import Violation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from forewarn.control.planning import FleetColumns
    from forewarn.core.lifecycle import Operation
    from forewarn.core.maintenance import (
        Maintenance,
        MaintenancePlan,
        Postponement,
        Target,
    )
    from forewarn.core.policy import NoticePolicy
    from forewarn.core.state import Changes, State
    from forewarn.core.topology import Topology
    from forewarn.planning.plan import PlanEntry
    from forewarn.planning.policy import MaintenancePolicy

M = MaintenanceState
OF_FLEET = frozenset(
    {"fault-domain", "budget", "owner-rest", "groups", "moves", "arrivals", "capacity"}
)
"""Rules that a plan keeps in the fleet that it was made for."""
ANNOUNCED, RUNNING = "announced", "running"
PLANNING_MS = 60_000
"""A plan that seems to have been made longer than this was made before a step of the clock."""
CLOCK_OFF_MS = 1000
"""Times of the service are compared while its clock is off true time by no more than before."""

Clocked: TypeAlias = "tuple[int, int]"
"""Service's time of something, and how far that was ahead of true time."""


class MaintenanceChecker:
    """Follows every durable change of maintenances and of the work that carries them out."""

    def __init__(self, state: State, policy: NoticePolicy, premises: Counter[str]) -> None:
        """Look at a state that the caller keeps up to date, and count premises where it does."""
        self.state, self.premises = state, premises
        self._policy = policy
        #: Operation -> its state when it was seen last.
        self._seen: dict[int, str] = {}
        self._maintenances: dict[int, Maintenance] = {}
        self._targets: dict[str, Target] = {}
        #: (maintenance, host) -> when it was done last, in true time.
        self.ended_ms: dict[tuple[int, str], int] = {}
        #: Maintenance -> when the last of its hosts was done, and when each owner was disturbed.
        self._wave_over: dict[int, Clocked] = {}
        self._disturbed: dict[tuple[int, str], Clocked] = {}
        #: Owner -> when work of any kind has last ended on a host with VMs of theirs.
        self._rested_ms: dict[str, int] = {}
        #: Operation -> the policy under which it was announced.
        self._announced_by: dict[int, MaintenancePolicy] = {}
        #: Maintenance -> wave whose hosts were done and whose gate has not let it go on since.
        self._ungated: dict[int, int] = {}
        #: (maintenance, host) -> when its announced work is to start, if it was not postponed.
        self._told_ms: dict[tuple[int, str], int] = {}
        #: How far the service's clock was ahead of true time when a policy was applied last.
        self._policy_ahead_ms = 0
        #: Service's time at which the fleet, or who is disturbed, changed last.
        self._fleet_ms = 0

    @property
    def policy(self) -> MaintenancePolicy:
        """The maintenance policy in force."""
        return maintenance_policy(self.state.policies.get("fleet"), self._policy)

    def gate_answers(self, number: int, *, passes: bool) -> None:
        """A gate is about to say what it found."""
        self.premises["F-5: a gate lets a maintenance go on"] += passes
        self.premises["F-5: a gate stops a maintenance"] += not passes
        if passes:
            self._ungated.pop(number, None)

    def last_wave(self, number: int) -> tuple[Target, ...]:
        """Return the hosts of a maintenance's last wave that are done."""
        own = [each for each in self._targets.values() if each.maintenance == number]
        last = max((each.wave for each in own), default=0)
        return tuple(t for t in own if t.wave == last and t.state is TargetState.DONE)

    def durable(self, changes: Changes, now_ms: int, ahead_ms: int) -> None:
        """Check a change that the state has just taken in, at this time of the service.

        `ahead_ms` is how far that is ahead of true time.
        """
        if changes.of_fleet:
            self._fleet_ms = now_ms
        self._note_policy(changes, ahead_ms)
        for maintenance in changes.maintenances.values():
            self._check_move(maintenance)
        works = any(each.maintenance for each in changes.operations.values())
        begun = {(e.maintenance, e.wave) for e in self._targets.values()} if works else set()
        for key, target in changes.targets.items():
            self._note_target(key, target, ahead_ms)
        for plan in changes.plans.values():
            if plan is not None:
                self._check_plan(plan, now_ms, stepped_ms=ahead_ms - self._policy_ahead_ms)
        free = {each.number for each in changes.operations.values() if self._asks_nobody(each)}
        announced = {o.number for o in changes.operations.values() if o.state.value == ANNOUNCED}
        for operation in changes.operations.values():
            before, now = self._seen.get(operation.number, ""), operation.state.value
            self._seen[operation.number] = now
            if operation.maintenance and now == ANNOUNCED != before:
                later = {number for number in announced if number > operation.number}
                self._check_announced(operation, free, later)
                self._check_rested(operation, begun)
            if operation.maintenance and now == RUNNING != before:
                self._check_started(operation, ahead_ms)
            if operation.maintenance and not operation.live:
                self._told_ms.pop((operation.maintenance, operation.host), None)
        self._note_ends(changes)

    def lacks_room(self, operation: Operation) -> str:
        """Name a budget that announced work of a maintenance would break if it started now."""
        maintenance = self.state.maintenances.get(operation.maintenance)
        if maintenance is None:
            return ""
        waiting = {o.number for o in self.state.operations.values() if o.state.value == ANNOUNCED}
        budgets = (*self.policy.budgets, *maintenance.budgets)
        others = waiting - {operation.number}
        return over_budget(self.state, budgets, operation=operation, ignored=others, limits="least")

    def _broken_rule(self, plan: MaintenancePlan, *, same_fleet: bool) -> str:
        """Return the first rule that a plan breaks, other work aside: it may have begun since."""
        state, maintenance = self.state, self.state.maintenances[plan.maintenance]
        topology, owed_s = state.topology, OWED_S[maintenance.shown_impact.value]
        kept = plan_of(plan, asked_of(maintenance))
        entries = tuple(_filled(plan, kept.entries, topology))
        touched = {t.host for t in state.targets.values() if t.maintenance == maintenance.number}
        beside = Beside(
            done=tuple(touched - {each.host for each in entries}),  # a wave may begin with its plan
            in_force=replace(kept, id=kept.parent, entries=()) if kept.parent else None,
            paused_until_ms=maintenance.rests_until_ms,
        )
        found = checker.check(
            replace(kept, entries=entries),
            fleet_of(self._columns(maintenance)),
            state=beside,
            policy=replace(self.policy, notice_s=max(self.policy.notice_s, owed_s)),
        )
        ours = (each for each in found if same_fleet or each.rule not in OF_FLEET)
        return next((each.sentence for each in ours), "")

    def _columns(self, maintenance: Maintenance) -> FleetColumns:
        taken = snapshot(self.state, maintenance, policy=self._policy, now_ms=self._fleet_ms)
        return task_of(taken).fleet

    def _check_room(self, operation: Operation) -> None:
        """F-3: the VMs on a destination and all those on their way to it fit there together."""
        topology, arriving = self.state.topology, Counter[str]()
        to_hosts = {to for _, to in operation.execution.placements}
        for each in self.state.operations.values():
            for vm, to in each.execution.placements if each.state.value != "planned" else ():
                if to in to_hosts and vm in topology.vms and topology.vms[vm].host != to:
                    arriving[to] += topology.vms[vm].memory_mib
        for host in to_hosts:
            self.premises["15: VMs move to a host with room"] += 1
            used = sum(topology.vms[vm].memory_mib for vm in topology.vms_on(host))
            most = topology.hosts[host].memory_mib
            if used + arriving[host] > most:
                text = f"{operation.id} takes VMs to {host}: {used} and {arriving[host]} of {most}"
                raise Violation("15", f"{text} MiB")

    def _check_plan(self, plan: MaintenancePlan, now_ms: int, *, stepped_ms: int) -> None:
        """Check a plan, where the clock was stepped so far since the policy was applied."""
        self.premises["19: a plan takes force"] += 1
        stands = self._fleet_ms < plan.made_ms
        found = self._broken_rule(plan, same_fleet=stands)
        applied = self.state.policies.get("fleet")
        stepped = abs(stepped_ms) > CLOCK_OFF_MS or not 0 <= now_ms - plan.made_ms < PLANNING_MS
        put_back_ms = min(stepped_ms, 0)  # by another machine's clock, or a time server
        if applied and plan.made_ms < applied.applied_ms + put_back_ms and not stepped:
            found = "it was made before the policy in force"
        if found:
            raise Violation("19", f"plan {plan.id} of m-{plan.maintenance}: {found}")

    def _asks_nobody(self, operation: Operation) -> bool:
        """Whether work has just begun to disturb that no budget keeps back."""
        begins = operation.state.value == RUNNING != self._seen.get(operation.number, "")
        return begins and (is_fault(operation) or not operation.routine or operation.of_vm)

    def _check_move(self, maintenance: Maintenance) -> None:
        before = self._maintenances.get(maintenance.number)
        self._maintenances[maintenance.number] = maintenance
        was = before.state if before else None
        now, number = maintenance.state, maintenance.number
        for each in maintenance.postponed:
            if before is None or each not in before.postponed:
                self._check_postponed(maintenance, each)
        if was is now:
            return
        if was in {M.DONE, M.CANCELLED} or (was is None and now is not M.DRAFT):
            raise Violation("F-1", f"{maintenance.id} goes from {was} to {now.value}")
        if now is M.DONE:
            left = set(maintenance.hosts) - {
                each.host for each in self._targets.values() if each.maintenance == number
            }
            self.premises["F-1: a maintenance is done"] += 1
            if left:
                raise Violation("F-1", f"{maintenance.id} is done without {sorted(left)}")
        if was is M.STOPPED and now is M.RUNNING:  # an operator has seen what the gate found
            self._ungated.pop(number, None)
        self.premises["F-6: announced work is withdrawn"] += now in {M.PAUSED, M.CANCELLED} and any(
            each.maintenance == number and each.state.value == ANNOUNCED
            for each in self.state.operations.values()
        )

    def _check_postponed(self, maintenance: Maintenance, granted: Postponement) -> None:
        """F-8: within what the policy allows after the time first shown, and the deadline."""
        self.premises["F-8: a host is postponed"] += 1
        number, host = maintenance.number, granted.host
        first_ms = self._told_ms.get((number, host), granted.from_ms)
        name = f"{host} of {maintenance.id} is postponed"
        if granted.until_ms > first_ms + self.policy.postpone_max_s * 1000:
            raise Violation("F-8", f"{name} for longer than the policy allows")
        end_ms = granted.until_ms + (maintenance.move_s + maintenance.duration_s) * 1000
        if maintenance.deadline_ms and end_ms > maintenance.deadline_ms:
            raise Violation("F-8", f"{name} beyond the deadline")

    def _check_late_enough(self, operation: Operation, start_ms: int) -> None:
        """F-3, F-8: not before the time that was asked for, nor that an owner was granted."""
        maintenance = self._maintenances[operation.maintenance]
        self.premises["F-3: work waits for its earliest time"] += bool(maintenance.earliest_ms)
        if start_ms < maintenance.earliest_ms:
            text = f"{operation.id} is {operation.state.value} for {start_ms}"
            raise Violation("F-3", f"{text}, {maintenance.id} begins at {maintenance.earliest_ms}")
        for each in maintenance.postponed:
            if each.host == operation.host:
                self.premises["F-8: work comes after it was postponed"] += 1
                if start_ms < each.until_ms:
                    text = f"{operation.id} is {operation.state.value} for {start_ms}"
                    raise Violation("F-8", f"{text}, it was postponed until {each.until_ms}")
                return
        if operation.state.value == ANNOUNCED:
            self._told_ms[operation.maintenance, operation.host] = start_ms

    def _note_policy(self, changes: Changes, ahead_ms: int) -> None:
        if changes.policies:
            self._policy_ahead_ms = ahead_ms
            name = "F-3: a policy changes under maintenances"
            self.premises[name] += bool(self.state.maintenances)

    def _note_target(self, key: str, target: Target | None, ahead_ms: int) -> None:
        if target is None:
            self._targets.pop(key, None)
            return
        before = self._targets.get(key)
        if before and before.state is not TargetState.WORKING is target.state:
            raise Violation("F-1", f"host {key} is worked on again, and was {before.state.value}")
        self._targets[key] = target
        if target.state is TargetState.WORKING or (before and before.state is target.state):
            return
        if before and before.state is not TargetState.WORKING:
            return  # the host has failed after its service
        number = target.maintenance
        self.ended_ms[number, target.host] = target.ended_ms - ahead_ms
        done = (target.ended_ms, ahead_ms)
        self._wave_over[number] = done  # not the latest: the clock may be put back
        for owner in self._owners(target.host):
            self._disturbed[number, owner] = done
        if self._maintenances[number].gate:
            self._ungated[number] = target.wave

    def _owners(self, host: str) -> set[str]:
        topology = self.state.topology
        names = topology.vms_on(host)
        return {topology.groups[topology.vms[name].group].owner for name in names} - {""}

    def _check_announced(self, operation: Operation, free: set[int], later: set[int]) -> None:
        """F-3: it may be announced, beside all that is disturbed now, to start when it may.

        A budget of its maintenance does not bind other work, such as what the same commit
        announces later.
        """
        maintenance = self._maintenances[operation.maintenance]
        policy, name = self.policy, f"{operation.id} of {maintenance.id}"
        self._announced_by[operation.number] = policy
        follows = maintenance.move_s and not operation.requested_start_ms  # its VMs have left
        if maintenance.state is not M.RUNNING and not (follows and maintenance.keeps_announced):
            raise Violation("F-6", f"{name} is announced, which is {maintenance.state.value}")
        self._check_room(operation)
        self._check_gate(operation, maintenance)
        self.premises["15: work is announced under a budget"] += bool(policy.budgets)
        stands = self._fleet_ms < self.state.plans[maintenance.plan].made_ms
        limits: Literal["now", "most"] = "now" if stands else "most"
        for budgets, ignored in ((policy.budgets, free), (maintenance.budgets, free | later)):
            over = over_budget(
                self.state, budgets, operation=operation, ignored=ignored, limits=limits
            )
            if over:
                raise Violation("15", f"{name} is announced beyond the budget of {over}")
        start_ms = max(operation.earliest_start_ms, operation.announced_ms)
        if not follows:  # it starts at once, whatever notice nobody gets
            self._check_time(operation, start_ms, operation.not_before_ms)
        self._check_late_enough(operation, operation.not_before_ms)
        wave = self._targets[f"{maintenance.number}/{operation.host}"].wave
        for target in self._targets.values():
            same = target.maintenance == maintenance.number and target.wave != wave
            if same and target.state is TargetState.WORKING:
                raise Violation("15", f"{name} is in wave {wave}, {target.host} is worked on yet")

    def _check_rested(self, operation: Operation, begun: set[tuple[int, int]]) -> None:
        """F-3: a wave's first hosts leave owners alone that any work has disturbed recently."""
        number, rest_ms = operation.maintenance, self.policy.owner_rest_s * 1000
        if (number, self._targets[f"{number}/{operation.host}"].wave) in begun:
            return
        start_ms = max(operation.earliest_start_ms, operation.announced_ms)
        for owner in self._owners(operation.host) if rest_ms else ():
            last_ms = self._rested_ms.get(owner, 0)
            self.premises["15: an owner has rested from any work"] += bool(last_ms)
            if last_ms <= operation.announced_ms and start_ms < last_ms + rest_ms:
                text = f"{operation.id} may disturb {owner} again after {start_ms - last_ms} ms"
                raise Violation("15", text)

    def _note_ends(self, changes: Changes) -> None:
        """Note whom work that ends has disturbed, where owners rest."""
        if not self.policy.owner_rest_s:
            self._rested_ms.clear()
            return
        for operation in changes.operations.values():
            if (
                not operation.live
                and operation.execution.started_ms
                and operation.source is not Source.USER
            ):
                for owner in self._owners(operation.host) if not operation.of_vm else ():
                    self._rested_ms[owner] = operation.ended_ms

    def _check_gate(self, operation: Operation, maintenance: Maintenance) -> None:
        """F-5: what was done is checked first, and has not failed too often."""
        number = maintenance.number
        wave = self._targets[f"{number}/{operation.host}"].wave
        if self._ungated.get(number, wave) != wave:
            text = f"{operation.id} is announced, wave {self._ungated[number]} was not checked"
            raise Violation("F-5", text)
        failed = [
            each.host
            for each in self._targets.values()
            if each.maintenance == number and (each.state is TargetState.FAILED or each.reason)
        ]
        self.premises["F-5: a host has failed before"] += bool(failed)
        if len(failed) > maintenance.max_failures + maintenance.forgiven:
            raise Violation("F-5", f"{operation.id} is announced, though {failed} have failed")

    def _check_started(self, operation: Operation, ahead_ms: int) -> None:
        """F-3, F-6: it may start now."""
        maintenance = self._maintenances[operation.maintenance]
        name = f"{operation.id} of {maintenance.id}"
        keeps = maintenance.state is M.PAUSED and maintenance.keeps_announced
        self.premises["F-6: work kept through a pause starts"] += keeps
        if maintenance.state is not M.RUNNING and not keeps:
            raise Violation("F-6", f"{name} starts, which is {maintenance.state.value}")
        at_ms = operation.execution.started_ms or 0
        self._check_room(operation)
        if maintenance.move_s and operation.cause is not Cause.LIVE_MIGRATION and operation.vms:
            raise Violation("F-1", f"{name} starts with VMs on its host")
        self._check_time(operation, at_ms, at_ms)
        self._check_late_enough(operation, at_ms)
        if at_ms < operation.earliest_start_ms:
            raise Violation("15", f"{name} starts before its wave may")
        before = self._announced_by.get(operation.number, self.policy)
        pause_ms = min(before.pause_s, self.policy.pause_s) * 1000
        rest_ms = min(before.owner_rest_s, self.policy.owner_rest_s) * 1000
        number = maintenance.number
        wave = self._targets[f"{number}/{operation.host}"].wave
        alone = not any(
            each.maintenance == number and each.wave == wave and each.ended_ms
            for each in self._targets.values()
        )
        ended = self._wave_over.get(number)
        self.premises["15: a pause is over"] += bool(pause_ms and ended)
        waited_ms = _since(ended, at_ms, ahead_ms) if ended and alone else pause_ms
        if waited_ms < pause_ms:
            raise Violation("15", f"{name} starts {waited_ms} ms after a wave: no pause")
        for owner in self._owners(operation.host) if rest_ms and alone else ():
            last = self._disturbed.get((number, owner))
            self.premises["15: an owner has rested"] += bool(last)
            waited_ms = _since(last, at_ms, ahead_ms) if last else rest_ms
            if waited_ms < rest_ms:
                raise Violation("15", f"{name} disturbs {owner} again after {waited_ms} ms")

    def _check_time(self, operation: Operation, first_ms: int, last_ms: int) -> None:
        """Windows, freezes and the deadline, from the earliest start to the latest end."""
        maintenance, policy = self._maintenances[operation.maintenance], self.policy
        name, end_ms = (
            f"{operation.id} of {maintenance.id}",
            last_ms + maintenance.span_s(operation.cause) * 1000,
        )
        self.premises["15: work meets a window"] += bool(policy.windows or policy.freezes)
        if closed(
            policy, self.state.topology.hosts[operation.host], start_ms=first_ms, end_ms=end_ms
        ):
            raise Violation("15", f"{name} is {operation.state.value} for closed time")
        if maintenance.deadline_ms and end_ms > maintenance.deadline_ms:
            raise Violation("15", f"{name} ends after the deadline")


def _filled(
    plan: MaintenancePlan, entries: Iterable[PlanEntry], topology: Topology
) -> Iterator[PlanEntry]:
    """Yield entries with what a kept plan leaves out: VMs that move, and groups on hosts then."""
    number = {name: place for place, name in enumerate(topology.vms)}
    at = {name: vm.host for name, vm in topology.vms.items()}
    on = {host: set(topology.vms_on(host)) for host in topology.hosts}
    for _, group in groupby(entries, key=lambda each: each.wave):
        wave = list(group)
        moves = {each.host: plan.body.moves.get(each.host, ()) for each in wave}
        for entry in wave:
            yield replace(
                entry,
                groups=tuple({topology.vms[vm].group for vm in on[entry.host]}),
                moves=tuple(VmMove(number[vm], to) for vm, to in moves[entry.host] if vm in number),
            )
        for vm, to in (move for each in moves.values() for move in each if move[0] in at):
            if to in on:
                on[at[vm]].discard(vm)
                on[to].add(vm)
                at[vm] = to


def _since(then: Clocked, now_ms: int, ahead_ms: int) -> int:
    """Return how much time has passed by the service's clock; true time, where that was put back.

    A pause is a length of time: by a clock that was put back meanwhile, it comes to its end later,
    or begins again when somebody has the maintenance go on. N-4.
    """
    ended_ms, was_ahead_ms = then
    put_back_ms = was_ahead_ms - ahead_ms
    return now_ms - ended_ms + (put_back_ms if put_back_ms > CLOCK_OFF_MS else 0)
