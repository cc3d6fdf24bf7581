"""Invariants 15 and 19, F-5 and F-6: what maintenances announce and start, as it becomes durable.

The rules of what is announced are in `maintenance_rules.py`; plans are given to the product's
own checker, as they are kept, beside what is durable. Nothing is changed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Literal, TypeAlias

from forewarn_base.values import replace
from forewarn_core.fleet.impact import Cause, Source
from forewarn_core.fleet.lifecycle import Event, Operation
from forewarn_core.fleet.maintenance import (
    Maintenance,
    MaintenancePlan,
    MaintenanceState,
    Postponement,
    Target,
    TargetState,
)
from forewarn_core.fleet.policy import NoticePolicy, maintenance_policy
from forewarn_core.fleet.state import Changes, State
from forewarn_core.fleet.topology import Topology
from forewarn_core.planning import checker
from forewarn_core.planning.plan import FleetState as Beside
from forewarn_core.planning.plan import Live, PlanEntry, VmMove
from forewarn_core.planning.policy import MaintenancePolicy, Scope
from tests.simulator.checkers.contract import OWED_S, is_fault, is_routine, obstacle, waived
from tests.simulator.checkers.declaration_checker import DeclarationChecker
from tests.simulator.checkers.host_order_checker import orders_at, untested
from tests.simulator.checkers.maintenance_rules import (
    binding,
    closed,
    disturbed,
    over_budget,
    own_budgets,
    words,
)
from tests.simulator.checkers.plan_inputs import fleet_of_state, host_s, plan_of_record
from tests.simulator.world.crash_points import Violation

M = MaintenanceState
#: Rules that a plan keeps in the fleet that it was made for.
OF_FLEET = frozenset(
    {
        "fault-domain",
        "budget",
        "owner-rest",
        "groups",
        "moves",
        "arrivals",
        "capacity",
        "test-first",
    }
)
#: Rules that a plan keeps beside the other work that there was when it was made.
BESIDE_WORK = frozenset({"apart", "durations"})
ANNOUNCED, RUNNING = "announced", "running"
#: A plan that seems to have been made longer than this was made before a step of the clock.
PLANNING_MS = 60_000
#: Time that must be open for work to be announced at once: its notice, and planning again.
LEAD_MS = 3_600_000
#: How long after its service a host that fails counts as a failure of the maintenance.
FAILS_AFTER_MS = 3_600_000
#: Times of the service are compared while its clock is off true time by no more than before.
CLOCK_OFF_MS = 1000

#: Service's time of something, and how far that was ahead of true time.
Clocked: TypeAlias = tuple[int, int]


class MaintenanceChecker:
    """Follows every durable change of maintenances and of the work that carries them out."""

    def __init__(
        self,
        state: State,
        policy: NoticePolicy,
        premises: Counter[str],
        *,
        events: Mapping[str, Event],
        declarations: DeclarationChecker,
    ) -> None:
        """Look at a state that the caller keeps up to date, and count premises where it does.

        `events` are all that ever were, as they were last; `declarations` says when hosts are
        handed back.
        """
        self._declarations = declarations
        self.state, self.premises, self._events = state, premises, events
        self._policy = policy
        #: Operation -> its state when it was seen last.
        self._seen: dict[int, str] = {}
        self._maintenances: dict[int, Maintenance] = {}
        self._targets: dict[str, Target] = {}
        #: (maintenance, host) -> when it was done last, in true time.
        self.ended_ms: dict[tuple[int, str], int] = {}
        #: Maintenance -> when the last of its hosts was done.
        self._wave_over: dict[int, Clocked] = {}
        #: (maintenance, owner) -> in which wave work of it disturbed the owner last, and its end.
        self._disturbed: dict[tuple[int, str], tuple[int, Clocked]] = {}
        #: Owner -> when work of any kind has last ended on a host with VMs of theirs.
        self._rested_ms: dict[str, int] = {}
        #: Operation -> the policy under which it was announced.
        self._announced_by: dict[int, MaintenancePolicy] = {}
        #: Maintenance -> wave whose hosts were done and whose gate has not let it go on since.
        self._ungated: dict[int, int] = {}
        #: Maintenances whose gate has found that the work does harm.
        self._gate_failed: set[int] = set()
        #: Maintenance -> failures that an operator has seen and let pass, as they were then.
        self._forgiven: dict[int, int] = {}
        #: Maintenance -> since when it announces and starts nothing, in true time.
        self.halted_ms: dict[int, int] = {}
        #: Maintenance -> when somebody had it go on, by the service's time.
        self._resumed_ms: dict[int, int] = {}
        #: Maintenance, 0 for work of none -> when work of it has ended last, by the service's time.
        self._work_ended_ms: dict[int, int] = {}
        #: Operation -> the owners that it has disturbed while it ran.
        self._hit: dict[int, set[str]] = {}
        #: Operations that an operator has asked to cancel.
        self.cancels: set[int] = set()
        #: Operation -> how far the service's clock was ahead when it was announced.
        #: How long the work of each operation takes, as announced, in seconds.
        self._announced_s: dict[int, int] = {}
        self._announced_ahead_ms: dict[int, int] = {}
        #: (maintenance, host) -> when its announced work is to start, if it was not postponed.
        self._told_ms: dict[tuple[int, str], int] = {}
        #: Hosts whose VMs have begun to leave, by key: the work follows on the empty host.
        self._left: set[str] = set()
        #: How far the service's clock was ahead of true time when a policy was applied last.
        self._policy_ahead_ms = 0
        #: Service's time at which the fleet, or who is disturbed, changed last.
        self._fleet_ms = 0
        #: Service's time at which work was announced, started or ended last.
        self._work_ms = 0

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
            self._gate_failed.discard(number)
        else:
            self._gate_failed.add(number)

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
        before = {number: self._maintenances.get(number) for number in changes.maintenances}
        for maintenance in changes.maintenances.values():
            self._check_move(maintenance, now_ms, ahead_ms)
        self._check_failures(changes)
        works = any(each.maintenance for each in changes.operations.values())
        begun = {(e.maintenance, e.wave) for e in self._targets.values()} if works else set()
        for key, target in changes.targets.items():
            self._note_target(key, target, ahead_ms)
        for number, was in before.items():
            self._check_halt(was, self._maintenances[number])
        for plan in changes.plans.values():
            if plan is not None:
                stepped_ms = ahead_ms - self._policy_ahead_ms
                self._check_plan(plan, changes, now_ms, stepped_ms=stepped_ms)
        if changes.operations:
            self._work_ms = now_ms
        self._note_ends(changes, ahead_ms)
        self._check_work(changes, before, begun, ahead_ms)

    def _check_work(
        self,
        changes: Changes,
        before: Mapping[int, Maintenance | None],
        begun: set[tuple[int, int]],
        ahead_ms: int,
    ) -> None:
        free = {each.number for each in changes.operations.values() if self._asks_nobody(each)}
        announced = {o.number for o in changes.operations.values() if o.state.value == ANNOUNCED}
        for operation in changes.operations.values():
            was, now = self._seen.get(operation.number, ""), operation.state.value
            self._seen[operation.number] = now
            if not operation.maintenance or now == was:
                continue
            if operation.is_return:
                self._check_return(operation)
                continue
            if now == ANNOUNCED:
                self._announced_ahead_ms[operation.number] = ahead_ms
                work = self._maintenances[operation.maintenance]
                self._announced_s[operation.number] = self._span_s(work, operation)
                self._check_hold(operation, ahead_ms)
                later = {number for number in announced if number > operation.number}
                self._check_announced(operation, free, later)
                self._check_rested(operation, begun, {*changes.operations})
            elif now == RUNNING:
                self._check_started(operation, ahead_ms)
                self._check_beside_running(operation, changes)
            elif was == ANNOUNCED:
                self._check_withdrawn(operation, before, ahead_ms)
            if not operation.live:
                self._told_ms.pop((operation.maintenance, operation.host), None)

    def may_announce(self, maintenance: Maintenance, now_ms: int) -> str:
        """Name hosts of a maintenance that nothing keeps from being announced; empty: none.

        Nobody asks the product what it waits for. Where VMs move first is the planner's choice.
        Source: F-4.
        """
        number, policy = maintenance.number, binding(self.policy, maintenance)
        working = any(each.maintenance == number for each in self.state.operations.values())
        waits = maintenance.state is not M.RUNNING or working or number in self._ungated
        if waits or maintenance.move_s:
            return ""
        touched = {each.host for each in self._targets.values() if each.maintenance == number}
        canaries = set(maintenance.canary_hosts) - touched
        ended_ms, _ = self._wave_over.get(number, (0, 0))
        rests_until_ms = max(ended_ms, self._resumed_ms.get(number, 0)) + policy.pause_s * 1000
        if now_ms < max(rests_until_ms, maintenance.earliest_ms or 0):
            return ""
        if policy.canary_count and not touched:
            return ""  # which host is tried first is the planner's choice
        left = canaries or set(maintenance.hosts) - touched
        plan = self.state.plans.get(maintenance.plan)
        waves = [left.intersection(each.hosts) for each in plan.waves] if plan else []
        together = [waves[0]] if waves else []  # which hosts share a wave is the planner's choice
        alone = [{host} for host in sorted(left.difference(*waves))]
        for hosts in (*together, *alone):
            free = all(self._is_free(host, maintenance, now_ms) for host in hosts)
            if hosts and free and not self._exceeds_budgets(maintenance, hosts):
                return ", ".join(sorted(hosts))
        return ""

    def _is_free(self, host: str, maintenance: Maintenance, now_ms: int) -> bool:
        """Whether no rule keeps the work on one host from being announced now, and soon after."""
        state, policy = self.state, binding(self.policy, maintenance)
        known, waives = state.topology.hosts.get(host), _waived(maintenance)
        if known is None or known.health.value == "failed":
            return False
        plan = state.plans.get(maintenance.plan)
        learned_s = [each.duration_s for each in plan.body.learned] if plan else []
        end_ms = now_ms + LEAD_MS + max(maintenance.duration_s, *learned_s, 0) * 1000
        late = end_ms > (maintenance.deadline_ms or end_ms)
        if late or closed(policy, known, start_ms=now_ms, end_ms=end_ms):
            return False
        if policy.owner_rest_s and self._rest(self._owners(host), now_ms):
            return False
        unobserved = untested(self._targets, maintenance, host, state.topology, now_ms)
        if unobserved or self._declarations.hand_back_ms(maintenance, host) > now_ms:
            return False
        if any(each.host == host and each.until_ms > now_ms for each in maintenance.postponed):
            return False
        work = _work(maintenance, host)
        for other in state.operations.values():
            under_way = other.state.value == RUNNING or is_routine(other)
            if under_way and obstacle(work, other, state.topology, waives=waives):
                return False
        for away in () if "fault-domain" in waives else state.topology.hosts.values():
            apart = (away.zone, away.fault_domain) != (known.zone, known.fault_domain)
            if away.health.value == "failed" and apart and self._share_a_group(host, away.name):
                return False
        return True

    def _exceeds_budgets(self, maintenance: Maintenance, hosts: set[str]) -> bool:
        """Whether these hosts together would be beyond a budget, beside what is disturbed now."""
        budgets = (*binding(self.policy, maintenance).budgets, *own_budgets(maintenance))
        beside = disturbed(self.state, set(), *hosts)
        works = (_work(maintenance, host) for host in hosts)
        return any(
            over_budget(self.state, budgets, operation=each, beside=beside, limits="least")
            for each in works
        )

    def _share_a_group(self, host: str, other: str) -> bool:
        topology = self.state.topology
        one, two = ({topology.vms[vm].group for vm in topology.vms_on(h)} for h in (host, other))
        return not one.isdisjoint(two)

    def _rest(self, owners: set[str], now_ms: int) -> bool:
        """Whether one of some owners is disturbed, or was so recently that it must rest."""
        rest_ms = self.policy.owner_rest_s * 1000
        if rest_ms and owners & self._disturbed_owners(set()):
            return True
        return any(now_ms < self._rested_ms.get(each, 0) + rest_ms for each in owners)

    def _disturbed_owners(self, ignored: set[int]) -> set[str]:
        """Owners that others' work, announced or running, or a failed host disturbs now."""
        topology, vms = self.state.topology, self._vms_on_failed()
        for operation in self.state.operations.values():
            announced = operation.state.value == ANNOUNCED and operation.routine
            under_way = announced or operation.state.value == RUNNING
            if operation.number in ignored or operation.source is Source.USER or not under_way:
                continue
            vms += operation.vms
            vms += () if operation.of_vm else topology.vms_on(operation.host)
        return self._owners_of(vms)

    def _vms_on_failed(self) -> list[str]:
        topology = self.state.topology
        failed = [each.name for each in topology.hosts.values() if each.health.value == "failed"]
        return [vm for name in failed for vm in topology.vms_on(name)]

    def rests(self, operation: Operation, now_ms: int) -> bool:
        """F-3: whether an owner that work of a maintenance would disturb has still to rest."""
        maintenance = self.state.maintenances.get(operation.maintenance)
        if not operation.maintenance or operation.is_return:
            return False
        policy = binding(self.policy, maintenance) if maintenance else self.policy
        rest_ms = policy.owner_rest_s * 1000
        if not rest_ms:
            return False
        owners = self._owners(operation.host)
        if owners & self._owners_of(self._vms_on_failed()):
            return True
        for number, hit in self._hit.items():
            other = self.state.operations.get(number)
            if other and other.maintenance != operation.maintenance and owners & hit:
                return True
        return any(now_ms < self._rested_ms.get(each, 0) + rest_ms for each in owners)

    def lacks_room(self, operation: Operation) -> str:
        """Name a budget that announced work of a maintenance would break if it started now."""
        maintenance = self.state.maintenances.get(operation.maintenance)
        if maintenance is None or operation.is_return:
            return ""
        waiting = {o.number for o in self.state.operations.values() if o.state.value == ANNOUNCED}
        budgets = (*binding(self.policy, maintenance).budgets, *own_budgets(maintenance))
        others = waiting - {operation.number}
        beside = disturbed(self.state, others, operation.host)
        return over_budget(self.state, budgets, operation=operation, beside=beside, limits="least")

    def _broken_rule(
        self, plan: MaintenancePlan, changes: Changes, now_ms: int, *, same_fleet: bool
    ) -> str:
        """Return the first rule that a plan breaks, other work aside: it may have begun since."""
        state, maintenance = self.state, self.state.maintenances[plan.maintenance]
        topology, owed_s = state.topology, OWED_S[maintenance.shown_impact.value]
        owed_s = 0 if "notice" in _waived(maintenance) else max(owed_s, self.policy.notice_s)
        hand_backs = self._declarations.hand_backs(maintenance, plan.made_ms)
        orders = orders_at(state, maintenance, plan.made_ms)
        kept = plan_of_record(plan, maintenance, hand_backs, orders)
        planned = _entries(
            plan, lambda host: host_s(maintenance, topology.hosts.get(host), plan.body) * 1000
        )
        entries = tuple(_filled(plan, planned, topology, returning=bool(maintenance.return_s)))
        touched = {t.host for t in state.targets.values() if t.maintenance == maintenance.number}
        of_it = f"{maintenance.number}/"  # the plan may withdraw work that it knew as announced
        withdrawn = (key for key, target in changes.targets.items() if target is None)
        touched.update(key.removeprefix(of_it) for key in withdrawn if key.startswith(of_it))
        beside = Beside(
            live=tuple(self._busy(changes)),
            done=tuple(touched - {each.host for each in entries}),  # a wave may begin with its plan
            in_force=replace(kept, id=kept.parent, entries=()) if kept.parent else None,
            paused_until_ms=maintenance.rests_until_ms or 0,
            samples=state.samples_of(maintenance.cause) if maintenance.declaration is None else (),
        )
        self.premises["F-9: a plan uses a learned duration"] += bool(plan.body.learned)
        found = checker.check(
            replace(kept, entries=entries),
            fleet_of_state(state, maintenance, self._policy),
            state=beside,
            policy=replace(self.policy, notice_s=owed_s),
        )
        other = frozenset[str]() if same_fleet else OF_FLEET | BESIDE_WORK
        other |= frozenset() if self._work_ms < plan.made_ms <= now_ms else BESIDE_WORK
        self.premises["19: moves keep groups apart"] += bool(plan.body.moves) and not other
        ours = (each for each in found if each.rule not in other)
        return next((each.sentence for each in ours), "")

    def _busy(self, changes: Changes) -> Iterator[Live]:
        """Yield failed hosts, and hosts with work before a change, as work that is over.

        No VM moves to them.
        """
        topology = self.state.topology
        for host in topology.hosts.values():
            if host.health.value == "failed":
                yield Live("a failure", host.name, ends_ms=1)
        for each in self.state.operations.values():
            under_way = each.state.value == RUNNING or (
                each.routine and each.state.value == ANNOUNCED
            )
            if under_way and each.number not in changes.operations:
                vm = topology.vms.get(each.target) if each.of_vm else None
                at = vm.host if vm else each.host
                yield Live(each.id, at, ends_ms=1, destinations=each.destinations)

    def _check_room(self, operation: Operation) -> None:
        """F-3: the VMs on a destination and all those on their way to it fit there together."""
        self.premises["15: VMs move to a host with room"] += bool(_moves_of(operation))
        lack = self._lack_of_room(operation)
        if lack:
            raise Violation("15", f"{operation.id} takes VMs to {lack}")

    def _lack_of_room(self, operation: Operation) -> str:
        """Return a destination that has failed or has no room for its VMs; empty: all have."""
        topology, arriving = self.state.topology, Counter[str]()
        moves = {*_moves_of(operation)}
        for each in self.state.operations.values():
            if each.state.value != "planned" or each.is_return:
                moves.update((vm, each.destination_of(vm)) for vm in each.vms)
        to_hosts = {to for _, to in _moves_of(operation)}
        for vm, to in moves:
            if to in to_hosts and vm in topology.vms and topology.vms[vm].host != to:
                arriving[to] += topology.vms[vm].memory_mib
        for name in to_hosts:
            host = topology.hosts.get(name)
            if host is None or host.health.value == "failed":
                return f"{name}, which has failed"
            there = [topology.vms[vm].memory_mib for vm in topology.vms_on(name)]
            ours = [
                topology.vms[vm].memory_mib for vm, _ in _moves_of(operation) if vm in topology.vms
            ]
            if not all((*there, *ours)) or sum(there) + arriving[name] > host.memory_mib:
                return f"{name}: {sum(there)} and {arriving[name]} of {host.memory_mib} MiB"
        return ""

    def _check_return(self, operation: Operation) -> None:
        """F-1: a VM returns to a host that its maintenance is done with, and that has room."""
        if operation.state.value in {ANNOUNCED, RUNNING}:
            self.premises["F-1: a VM returns"] += 1
            self._check_room(operation)
            if self.holds(operation):
                raise Violation("F-1", f"{operation.id} goes back to a host that is not done")

    def holds(self, operation: Operation) -> bool:
        """Whether a VM's return waits for its maintenance, or for a host."""
        topology = self.state.topology
        vm = topology.vms.get(operation.target)
        if vm is None or topology.hosts[vm.host].health.value == "failed":
            return True
        if operation.state.value != RUNNING and self._lack_of_room(operation):
            return True
        if operation.maintenance not in self.state.maintenances:
            return False
        target = self.state.targets.get(f"{operation.maintenance}/{operation.destination}")
        if target is None or target.state is TargetState.FAILED:
            return True
        work = self.state.operations.get(target.operation)
        return work is not None and not work.is_return

    def _check_plan(
        self, plan: MaintenancePlan, changes: Changes, now_ms: int, *, stepped_ms: int
    ) -> None:
        """Check a plan, where the clock was stepped so far since the policy was applied."""
        self.premises["19: a plan takes force"] += 1
        stands = self._fleet_ms < plan.made_ms
        found = self._broken_rule(plan, changes, now_ms, same_fleet=stands)
        lasts_ms = self.state.maintenances[plan.maintenance].duration_s * 1000
        self.premises["15: a short freeze lies before long work"] += any(
            plan.made_ms < from_ms < plan.made_ms + LEAD_MS and to_ms - from_ms < lasts_ms
            for from_ms, to_ms in self.policy.freezes
        )
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

    def _check_move(self, maintenance: Maintenance, now_ms: int, ahead_ms: int) -> None:
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
        if now is M.RUNNING:
            self.halted_ms.pop(number, None)
            self._resumed_ms[number] = now_ms
        elif not maintenance.keeps_announced:
            self.halted_ms.setdefault(number, now_ms - ahead_ms)

    def _check_halt(self, before: Maintenance | None, maintenance: Maintenance) -> None:
        """F-5: only a gate, or more failures than may be, stops it; both ways by own history."""
        number, was = maintenance.number, before.state if before else None
        failed = self._failed(number)
        if maintenance.state is M.RUNNING and was is M.STOPPED:
            self._forgiven[number] = len(failed)
        beyond = len(failed) > maintenance.max_failures + self._forgiven.get(number, 0)
        if maintenance.state is M.RUNNING and beyond:
            raise Violation("F-5", f"{maintenance.id} goes on, though {failed} have failed")
        if maintenance.state is M.STOPPED and was is M.RUNNING:
            self.premises["F-5: failures stop a maintenance"] += beyond
            if not beyond and number not in self._gate_failed:
                raise Violation("F-5", f"{maintenance.id} is stopped, and {failed} have failed")
            self._gate_failed.discard(number)

    def _failed(self, number: int) -> list[str]:
        """Return the hosts of a maintenance that have failed, or whose drivers have."""
        return [
            each.host
            for each in self._targets.values()
            if each.maintenance == number and (each.state is TargetState.FAILED or each.reason)
        ]

    def _check_failures(self, changes: Changes) -> None:
        """F-5: a host that fails under its service, or within an hour after it, counts."""
        for operation in changes.operations.values():
            strikes = is_fault(operation) and operation.number not in self._seen
            for target in self._targets.values() if strikes else ():
                if target.host == operation.host:
                    self._check_failure(target, changes, operation.created_ms)

    def _check_failure(self, target: Target, changes: Changes, failed_ms: int) -> None:
        if target.maintenance not in self.state.maintenances:
            return
        after = self.state.targets.get(target.key, target)
        failed = after.state is TargetState.FAILED
        if target.state is TargetState.WORKING:
            work = changes.operations.get(target.operation)
            work = work or self.state.operations[target.operation]
            under_way = work.is_return or self._seen.get(work.number) == RUNNING
            if under_way and not (failed or after.reason):
                raise Violation("F-5", f"{target.key} failed with {work.id} under way")
        elif target.state is TargetState.DONE:
            self.premises["F-5: a host fails after its service"] += 1
            after_ms = failed_ms - (target.ended_ms or 0)
            soon = after_ms <= FAILS_AFTER_MS
            if (failed and not soon) or (soon and not (failed or after.reason)):
                text = f"{target.key} failed {after_ms} ms after"
                raise Violation("F-5", f"{text} its service: {after.state.value}")

    def _check_withdrawn(
        self, operation: Operation, before: Mapping[int, Maintenance | None], ahead_ms: int
    ) -> None:
        """F-6, F-8: announced work is withdrawn only where it must be, or its VMs lack room."""
        maintenance = self._maintenances[operation.maintenance]
        known = before.get(maintenance.number)
        self._premise_of_halt(operation, maintenance)
        if maintenance.state is not M.RUNNING or operation.number in self.cancels:
            return
        postponed = set(maintenance.postponed) - set(known.postponed if known else ())
        host = self.state.topology.hosts.get(operation.host)
        if host is None or host.health.value == "failed" or operation.replaced_by:
            return
        if operation.host in {each.host for each in postponed} or self._lack_of_room(operation):
            return
        if set(self.state.topology.vms_on(operation.host)) != set(operation.vms):
            return  # VMs have arrived or gone
        if abs(ahead_ms - self._announced_ahead_ms[operation.number]) > CLOCK_OFF_MS:
            return
        duration_ms = self._announced_s[operation.number] * 1000
        ended_ms = operation.ended_ms or 0
        end_ms = max(ended_ms, operation.not_before_ms) + duration_ms
        if maintenance.deadline_ms and end_ms > maintenance.deadline_ms:
            return
        self.premises["F-6: work is withdrawn for its window"] += 1
        if not closed(binding(self.policy, maintenance), host, start_ms=ended_ms, end_ms=end_ms):
            raise Violation("F-6", f"{operation.id} of {maintenance.id} is withdrawn for nothing")

    def _span_s(self, maintenance: Maintenance, operation: Operation) -> int:
        """Return how long a host is under work from the start of announced work. Source: F-9."""
        if operation.is_return:
            return maintenance.move_s
        whole_s = self._host_s(maintenance, operation.host)
        if operation.cause is Cause.LIVE_MIGRATION:
            return whole_s
        return whole_s - maintenance.move_s - maintenance.return_s

    def _host_s(self, maintenance: Maintenance, host: str) -> int:
        """Return how long a host is under work: as announced, else as planned."""
        key = f"{maintenance.number}/{host}"
        target = self.state.targets.get(key) or self._targets.get(key)
        if target:
            work_s = target.duration_s or maintenance.duration_s
            return maintenance.move_s + work_s + maintenance.return_s
        plan = self.state.plans.get(maintenance.plan)
        known = self.state.topology.hosts.get(host)
        return host_s(maintenance, known, plan.body if plan else None)

    def _premise_of_halt(self, operation: Operation, maintenance: Maintenance) -> None:
        """Count what a halt has to withdraw: announced work, approved, and kept back besides."""
        if maintenance.state is M.RUNNING:
            return
        self.premises["F-6: announced work is withdrawn"] += 1
        approved = any(self._events[each].approved_by for each in operation.events)
        held = approved and (operation.earliest_start_ms or 0) > (operation.ended_ms or 0)
        self.premises["F-5: approved work is stopped"] += (
            approved and maintenance.state is M.STOPPED
        )
        self.premises["F-6: approved work that is kept back is withdrawn"] += held

    def _check_hold(self, operation: Operation, ahead_ms: int) -> None:
        """F-3: work is not kept back for longer than people, pause, rest and windows ask for.

        Nothing is said where other work, or a host that has failed, may have kept it back, or the
        fleet is not the one that was planned for.
        """
        maintenance, state = self._maintenances[operation.maintenance], self.state
        number, hold_ms = maintenance.number, operation.earliest_start_ms or 0
        plan = state.plans[maintenance.plan]
        others = any(each.maintenance != number for each in state.operations.values()) or any(
            ended_ms >= plan.made_ms
            for other, ended_ms in self._work_ended_ms.items()
            if other != number
        )
        failed = any(each.health.value == "failed" for each in state.topology.hosts.values())
        changed = self._fleet_ms >= plan.made_ms
        if hold_ms <= operation.announced_ms or others or failed or changed:
            return
        ended_ms, was_ahead_ms = self._wave_over.get(number, (0, ahead_ms))
        if abs(was_ahead_ms - ahead_ms) > CLOCK_OFF_MS:
            return
        wave = next(each for each in plan.waves if operation.host in each.hosts)
        asked_ms = [each.until_ms for each in maintenance.postponed if each.host in wave.hosts]
        rests_ms = [
            self._rested_ms.get(owner, 0) + self.policy.owner_rest_s * 1000
            for host in wave.hosts
            for owner in self._owners(host)
        ]
        pause_ms = max(ended_ms, self._resumed_ms.get(number, 0)) + self.policy.pause_s * 1000
        asked_ms += [self._declarations.hand_back_ms(maintenance, each) for each in wave.hosts]
        asked_ms += [hold_ms] if self._declarations.agreed_ms(maintenance, operation.host) else []
        asked_ms += [
            hold_ms
            for each in wave.hosts
            if untested(self._targets, maintenance, each, state.topology, hold_ms - 1)
        ]
        owed_ms = max(maintenance.earliest_ms or 0, pause_ms, *asked_ms, *rests_ms)
        host = state.topology.hosts[operation.host]
        opens = closed(self.policy, host, start_ms=hold_ms - 1, end_ms=hold_ms)
        self.premises["15: work is kept back no longer than it must be"] += 1
        if hold_ms > owed_ms + CLOCK_OFF_MS and not opens:
            text = f"{operation.id} of {maintenance.id} is kept back until {hold_ms}"
            raise Violation("15", f"{text}, {owed_ms} is enough")

    def _check_postponed(self, maintenance: Maintenance, granted: Postponement) -> None:
        """F-8: within what the policy allows after the time first shown, and the deadline."""
        self.premises["F-8: a host is postponed"] += 1
        number, host = maintenance.number, granted.host
        first_ms = self._told_ms.get((number, host), granted.from_ms)
        name = f"{host} of {maintenance.id} is postponed"
        if granted.until_ms > first_ms + self.policy.postpone_max_s * 1000:
            raise Violation("F-8", f"{name} for longer than the policy allows")
        end_ms = granted.until_ms + self._host_s(maintenance, host) * 1000
        if maintenance.deadline_ms and end_ms > maintenance.deadline_ms:
            raise Violation("F-8", f"{name} beyond the deadline")

    def _check_late_enough(self, operation: Operation, start_ms: int) -> None:
        """F-3, F-8: not before the time that was asked for, nor that an owner was granted.

        The work on a host begins once its VMs leave. What follows on the empty host may start
        before these times, if the clock was put back meanwhile.
        """
        maintenance = self._maintenances[operation.maintenance]
        moves = operation.cause is Cause.LIVE_MIGRATION
        if not moves and f"{maintenance.number}/{operation.host}" in self._left:
            return
        self.premises["F-3: work waits for its earliest time"] += bool(maintenance.earliest_ms)
        if start_ms < (maintenance.earliest_ms or 0):
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
        if target is None or target.state is not TargetState.WORKING:
            self._left.discard(key)
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
        ended_ms = target.ended_ms or 0
        self.ended_ms[number, target.host] = ended_ms - ahead_ms
        self._wave_over[number] = (ended_ms, ahead_ms)  # not the latest: the clock may be put back
        if self._maintenances[number].gate:
            self._ungated[number] = target.wave

    def _owners(self, host: str) -> set[str]:
        return self._owners_of(self.state.topology.vms_on(host))

    def _owners_of(self, names: Iterable[str]) -> set[str]:
        topology = self.state.topology
        known = [topology.vms[name] for name in names if name in topology.vms]
        return {topology.groups[vm.group].owner for vm in known} - {""}

    def _check_announced(self, operation: Operation, free: set[int], later: set[int]) -> None:
        """F-3: it may be announced, beside all that is disturbed now, to start when it may.

        A budget of its maintenance does not bind other work, such as what the same commit
        announces later. What follows on an empty host has had its place since the move there was
        announced; budgets that others have used up since bind it when it starts.
        """
        maintenance = self._maintenances[operation.maintenance]
        policy = binding(self.policy, maintenance)
        name = f"{operation.id} of {maintenance.id}"
        self._announced_by[operation.number] = policy
        follows = _follows(operation, maintenance)
        if maintenance.state is not M.RUNNING and not (follows and maintenance.keeps_announced):
            raise Violation("F-6", f"{name} is announced, which is {maintenance.state.value}")
        self._check_room(operation)
        self._check_gate(operation, maintenance)
        self.premises["15: work is announced under a budget"] += bool(policy.budgets)
        stands = self._fleet_ms < self.state.plans[maintenance.plan].made_ms
        limits: Literal["now", "most"] = "now" if stands else "most"
        bounds = ((policy.budgets, free), (own_budgets(maintenance), free | later))
        for budgets, ignored in () if follows else bounds:
            beside = disturbed(self.state, ignored, operation.host)
            over = over_budget(
                self.state, budgets, operation=operation, beside=beside, limits=limits
            )
            if over:
                raise Violation("15", f"{name} is announced beyond the budget of {over}")
        labels = [each for each in policy.budgets if each.scope is Scope.LABEL]
        here = words(self.state.topology.hosts[operation.host])
        self.premises["15: a budget of a label is used up"] += any(b.name in here for b in labels)
        start_ms = max(operation.earliest_start_ms or 0, operation.announced_ms)
        if not follows:  # it starts at once, whatever notice nobody gets
            self._check_time(operation, start_ms, operation.not_before_ms)
        self._check_late_enough(operation, operation.not_before_ms)
        wave = self._targets[f"{maintenance.number}/{operation.host}"].wave
        for target in self._targets.values():
            same = target.maintenance == maintenance.number and target.wave != wave
            if same and target.state is TargetState.WORKING:
                raise Violation("15", f"{name} is in wave {wave}, {target.host} is worked on yet")

    def _check_beside_running(self, operation: Operation, changes: Changes) -> None:
        """F-3: it starts within every budget, beside all that runs and has failed.

        Nothing is said where a plan by a new policy could not be made. No budget binds work of no
        maintenance, nor a maintenance's own budget the work of others, that starts meanwhile.
        """
        maintenance = self._maintenances[operation.maintenance]
        if maintenance.planning is not None and maintenance.planning.reason:
            return
        waiting = {o.number for o in self.state.operations.values() if o.state.value == ANNOUNCED}
        starts = {o.number: o.maintenance for o in changes.operations.values()}
        free = waiting | {number for number, of in starts.items() if not of}
        others = {number for number, of in starts.items() if of != maintenance.number}
        bounds = (
            (binding(self.policy, maintenance).budgets, free),
            (own_budgets(maintenance), free | others),
        )
        for budgets, ignored in bounds:
            self.premises["15: work starts under a budget"] += bool(budgets)
            beside = disturbed(self.state, ignored, operation.host)
            over = over_budget(
                self.state, budgets, operation=operation, beside=beside, limits="most"
            )
            if over:
                text = f"{operation.id} of {maintenance.id} starts beyond the budget of {over}"
                raise Violation("15", text)

    def _check_rested(
        self, operation: Operation, begun: set[tuple[int, int]], ignored: set[int]
    ) -> None:
        """F-3: a wave's first hosts leave owners alone that any work disturbs or has recently."""
        number = operation.maintenance
        rest_ms = binding(self.policy, self._maintenances[number]).owner_rest_s * 1000
        if (number, self._targets[f"{number}/{operation.host}"].wave) in begun:
            return
        start_ms = max(operation.earliest_start_ms or 0, operation.announced_ms)
        disturbed = self._disturbed_owners(ignored) if rest_ms else set()
        for owner in self._owners(operation.host) if rest_ms else ():
            if owner in disturbed:
                raise Violation("15", f"{operation.id} may disturb {owner}, who is disturbed now")
            last_ms = self._rested_ms.get(owner, 0)
            self.premises["15: an owner has rested from any work"] += bool(last_ms)
            if last_ms <= operation.announced_ms and start_ms < last_ms + rest_ms:
                text = f"{operation.id} may disturb {owner} again after {start_ms - last_ms} ms"
                raise Violation("15", text)

    def _note_ends(self, changes: Changes, ahead_ms: int) -> None:
        """Note whom work that ends has disturbed."""
        topology = self.state.topology
        for operation in changes.operations.values():
            number, there = operation.number, topology.vms_on(operation.host)
            if operation.state.value == RUNNING and operation.source is not Source.USER:
                hit = (*operation.vms, *(() if operation.of_vm else there))
                self._hit.setdefault(number, set()).update(self._owners_of(hit))
            if not operation.live:
                ended_ms = operation.ended_ms or 0
                self._work_ended_ms[operation.maintenance] = ended_ms
                host = operation.destination if operation.is_return else operation.host
                target = self._targets.get(f"{operation.maintenance}/{host}")
                for owner in self._hit.pop(number, ()):  # the clock may have been put back since
                    last_ms = self._rested_ms.get(owner, 0)
                    self._rested_ms[owner] = max(last_ms, ended_ms)
                    if target:
                        end = (target.wave, (ended_ms, ahead_ms))
                        self._disturbed[operation.maintenance, owner] = end

    def _check_gate(self, operation: Operation, maintenance: Maintenance) -> None:
        """F-5: what was done is checked first, and has not failed too often."""
        number = maintenance.number
        wave = self._targets[f"{number}/{operation.host}"].wave
        if self._ungated.get(number, wave) != wave:
            text = f"{operation.id} is announced, wave {self._ungated[number]} was not checked"
            raise Violation("F-5", text)

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
        if maintenance.move_s and operation.cause is Cause.LIVE_MIGRATION:
            self._left.add(f"{maintenance.number}/{operation.host}")
        if at_ms < (operation.earliest_start_ms or 0):
            raise Violation("15", f"{name} starts before its wave may")
        if _follows(operation, maintenance):
            return  # its wave began with the move
        policy = binding(self.policy, maintenance)
        before = self._announced_by.get(operation.number, policy)
        pause_ms = min(before.pause_s, policy.pause_s) * 1000
        rest_ms = min(before.owner_rest_s, policy.owner_rest_s) * 1000
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
            last_wave, last = self._disturbed.get((number, owner), (wave, (0, 0)))
            self.premises["15: an owner has rested"] += last_wave != wave
            waited_ms = _since(last, at_ms, ahead_ms) if last_wave != wave else rest_ms
            if waited_ms < rest_ms:
                raise Violation("15", f"{name} disturbs {owner} again after {waited_ms} ms")

    def _check_time(self, operation: Operation, first_ms: int, last_ms: int) -> None:
        """Windows, freezes and the deadline, from the earliest start to the latest end."""
        maintenance = self._maintenances[operation.maintenance]
        policy = binding(self.policy, maintenance)
        name, end_ms = (
            f"{operation.id} of {maintenance.id}",
            last_ms + self._span_s(maintenance, operation) * 1000,
        )
        self.premises["15: work meets a window"] += bool(policy.windows or policy.freezes)
        if closed(
            policy, self.state.topology.hosts[operation.host], start_ms=first_ms, end_ms=end_ms
        ):
            raise Violation("15", f"{name} is {operation.state.value} for closed time")
        if maintenance.deadline_ms and end_ms > maintenance.deadline_ms:
            raise Violation("15", f"{name} ends after the deadline")


def _waived(maintenance: Maintenance) -> frozenset[str]:
    return waived(_work(maintenance, ""), {maintenance.number: maintenance})


def _work(maintenance: Maintenance, host: str) -> Operation:
    """Return the work on a host as it would be announced."""
    return Operation(
        number=0,
        request=0,
        cause=maintenance.cause,
        impact=maintenance.impact,
        source=Source.PLATFORM,
        routine=True,
        host=host,
        vms=(),
        of_vm=False,
        description="",
        maintenance=maintenance.number,
    )


def _follows(operation: Operation, maintenance: Maintenance) -> bool:
    """Whether it is the work on a host whose VMs have left by another operation."""
    return bool(maintenance.move_s) and not operation.requested_start_ms


def _moves_of(operation: Operation) -> tuple[tuple[str, str], ...]:
    """Return where an operation's VMs go, as far as that is known."""
    if operation.is_return:
        return ((operation.target, operation.destination),)
    return operation.execution.placements


def _entries(plan: MaintenancePlan, duration_ms: Callable[[str], int]) -> tuple[PlanEntry, ...]:
    """Each host of a stored plan with the times of its wave."""
    return tuple(
        PlanEntry(
            *(host, wave.number, wave.shown_ms, wave.earliest_start_ms, wave.latest_start_ms),
            wave.earliest_start_ms + duration_ms(host),
            wave.latest_start_ms + duration_ms(host),
        )
        for wave in plan.waves
        for host in wave.hosts
    )


def _filled(
    plan: MaintenancePlan, entries: Iterable[PlanEntry], topology: Topology, *, returning: bool
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
            if to in on and not returning:
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
