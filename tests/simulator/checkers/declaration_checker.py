"""T-1 to T-8 a second time: declared work, the choices and deferrals of its owners, its windows.

Times are the service's: a hand-back deadline is a time of day. No rule of the core or the planner
is called in here. Nothing is changed.
"""

from collections import Counter
from collections.abc import Iterator

from forewarn_base.values import value
from forewarn_core.fleet.deferrals import Deferral, DeferralState
from forewarn_core.fleet.lifecycle import Operation, OperationState
from forewarn_core.fleet.maintenance import Due, Maintenance, MaintenanceState, Planning
from forewarn_core.fleet.owner_choices import Decision, OwnerChoice
from forewarn_core.fleet.state import Changes, State
from forewarn_core.fleet.ticket import Ticket, TicketType
from forewarn_core.fleet.topology import Topology
from forewarn_core.planning.plan import HandBack
from forewarn_core.planning.policy import MaintenancePolicy
from tests.simulator.checkers.contract import OWED_S
from tests.simulator.checkers.host_order_checker import tests_of, untested
from tests.simulator.world.crash_points import Violation

S = OperationState
#: An overrun has its incident within this time of a service that runs, in ms. Source: T-5.
MINUTE_MS = 60_000


@value
class Waiting:
    """An owner whose VMs on a host may not be disturbed at any time. Times are ms."""

    owner: str
    #: The chosen start; None: nothing is chosen.
    start_ms: int | None
    deadline_ms: int


def agreed_ms(waiting: list[Waiting]) -> int:
    """Return the one start that owners have chosen, and that no other owner objects to; 0: none."""
    starts = {each.start_ms for each in waiting if each.start_ms is not None}
    silent_ms = max((each.deadline_ms for each in waiting if each.start_ms is None), default=0)
    start_ms = starts.pop() if len(starts) == 1 else None
    return start_ms if start_ms is not None and start_ms > silent_ms else 0


class DeclarationChecker:
    """Checks what becomes durable of declared maintenances."""

    def __init__(self, state: State, policy: MaintenancePolicy, premises: Counter[str]) -> None:
        """Look at a state that the caller keeps up to date; a policy until one is applied."""
        self._state, self._policy, self._premises = state, policy, premises

    @property
    def policy(self) -> MaintenancePolicy:
        """The maintenance policy in force."""
        applied = self._state.policies.get("fleet")
        return applied.policy if applied else self._policy

    def durable(self, changes: Changes, now_ms: int) -> None:
        """Check a change that the state has not taken in yet, at this time of the service."""
        for maintenance in changes.maintenances.values():
            self._check_declared(maintenance, changes, now_ms)
        for key, choice in changes.choices.items():
            self._check_choice(self._state.choices.get(key), choice, changes, now_ms)
        for deferral in changes.deferrals.values():
            if deferral is not None:
                self._check_deferral(deferral, changes, now_ms)

    def adopted(self, changes: Changes) -> None:
        """Check the state after a change."""
        planned = any(each.action == "maintenance.planned" for each in changes.entries)
        for number in changes.maintenances if planned else ():
            maintenance = self._state.maintenances.get(number)
            if maintenance is not None:
                self._check_kept(maintenance)
        for operation in changes.operations.values():
            self._check_window_left(operation)

    # ---- declarations, choices and deferrals ---------------------------------------------------

    def _check_declared(self, maintenance: Maintenance, changes: Changes, now_ms: int) -> None:
        """T-1, T-6: the window is as long as it must be, and stays what it was."""
        before = self._state.maintenances.get(maintenance.number)
        was, declaration = before.declaration if before else None, maintenance.declaration
        if was is not None:
            fixed = (was.declared_ms, was.deadline_ms, was.severity, was.waived)
            after = declaration and (
                *(declaration.declared_ms, declaration.deadline_ms),
                *(declaration.severity, declaration.waived),
            )
            if after != fixed:
                raise Violation("T-1", f"{maintenance.id} was declared, and has another deadline")
            return
        if declaration is None:
            starts = before is not None and before.state is MaintenanceState.DRAFT
            if starts and maintenance.running and self.policy.require_declaration:
                raise Violation("T-1", f"{maintenance.id} starts and is not declared")
            return
        self._premises["T-1: a maintenance is declared"] += 1
        length_ms = declaration.deadline_ms - declaration.declared_ms
        policy, severity = self.policy, declaration.severity.value
        least_s = {"routine": policy.hand_back_s, "urgent": policy.urgent_hand_back_s}.get(severity)
        if least_s is None:
            notice_s = max(OWED_S[maintenance.shown_impact.value], policy.notice_s)
            least_s = 0 if "notice" in declaration.waived else notice_s
            self._premises["T-6: an emergency is declared"] += 1
            reviews = [
                each
                for each in changes.tickets.values()
                if each.type is TicketType.REVIEW and each.maintenance == maintenance.number
            ]
            if not maintenance.reason or not any(each.live for each in reviews):
                raise Violation("T-6", f"{maintenance.id} is an emergency without a review")
        elif length_ms > policy.hand_back_max_s * 1000:
            raise Violation("T-1", f"{maintenance.id} has a longer window than the policy allows")
        if length_ms < least_s * 1000 or declaration.declared_ms != now_ms:
            raise Violation("T-1", f"{maintenance.id} has {length_ms} ms of {least_s} s")

    def _check_choice(
        self, before: OwnerChoice | None, choice: OwnerChoice | None, changes: Changes, now_ms: int
    ) -> None:
        """T-2: what may be chosen; and a choice stands until a deferral is granted."""
        if choice is None:
            assert before is not None
            live = {**self._state.maintenances, **changes.maintenances}.get(before.maintenance)
            granted = changes.deferrals.get(before.key)
            fell = granted is not None and granted.state is DeferralState.GRANTED
            if live is not None and live.live and not fell:
                raise Violation("T-2", f"the choice of {before.key} is gone")
            return
        if before is not None and before.made_ms == choice.made_ms:
            return  # it is displaced, or kept again
        maintenance = self._state.maintenances[choice.maintenance]
        deadline_ms = self._deadline_ms(maintenance, choice.host, choice.owner, {})
        name = f"{choice.chosen_by}'s choice for {choice.key}"
        at = choice.decision is Decision.AT
        self._premises["T-2: an owner chooses"] += 1
        if f"{maintenance.number}/{choice.host}" in self._state.targets:
            raise Violation("T-2", f"{name} comes after the announcement")
        if now_ms >= deadline_ms or (at and choice.start_ms > deadline_ms):
            raise Violation("T-2", f"{name} is for a time after the deadline {deadline_ms}")
        if at and choice.start_ms - now_ms < OWED_S[maintenance.shown_impact.value] * 1000:
            raise Violation("T-2", f"{name} leaves no notice")
        if at and is_emergency(maintenance):
            raise Violation("T-6", f"{name} is a time in an emergency")

    def _check_deferral(self, deferral: Deferral, changes: Changes, now_ms: int) -> None:
        """T-4: the policy answers at once, an operator in time; a grant moves one deadline."""
        before = self._state.deferrals.get(deferral.key)
        known = {**self._state.maintenances, **changes.maintenances}
        maintenance = known.get(deferral.maintenance)
        assert maintenance is not None
        assert maintenance.declaration is not None
        if is_emergency(maintenance):
            raise Violation("T-6", f"{deferral.key} is a deferral in an emergency")
        name, granted_ms = f"the deferral of {deferral.key}", before.granted_ms if before else None
        present_ms = max(maintenance.declaration.deadline_ms, granted_ms or 0)
        if now_ms >= present_ms and deferral.state is DeferralState.GRANTED:
            raise Violation("T-4", f"{name} is granted after the deadline")
        asked = before is not None and before.state is DeferralState.ASKED
        if before is not None and asked and before.asked_ms == deferral.asked_ms:
            self._check_decided(before, deferral, now_ms)
            expected = deferral.state
        else:
            expected = self._by_policy(deferral, maintenance, present_ms, now_ms)
        granted = deferral.state is DeferralState.GRANTED
        owed_ms = deferral.until_ms if granted else granted_ms
        if deferral.state is not expected or deferral.granted_ms != owed_ms:
            raise Violation("T-4", f"{name} is {deferral.state.value}, not {expected.value}")
        choices = {**self._state.choices, **changes.choices}
        if granted and choices.get(deferral.key) is not None:
            raise Violation("T-4", f"{name} is granted, and a choice stands")

    def _check_decided(self, before: Deferral, deferral: Deferral, now_ms: int) -> None:
        """T-4: who decides, and that time refuses what nobody has decided."""
        self._premises["T-4: an operator or the time decides"] += 1
        early = now_ms < (before.decide_by_ms or 0) and deferral.answered_by == "policy"
        if deferral.state is DeferralState.ASKED or early:
            text = f"the deferral of {deferral.key} is {deferral.state.value} by nobody"
            raise Violation("T-4", text)

    def _by_policy(
        self, deferral: Deferral, maintenance: Maintenance, present_ms: int, now_ms: int
    ) -> DeferralState:
        """T-4: how the policy answers a request whose deadline was `present_ms` until now."""
        assert maintenance.declaration is not None
        self._premises["T-4: an owner asks for a deferral"] += 1
        declaration, policy = maintenance.declaration, self.policy
        name = f"the deferral of {deferral.key}"
        longest_ms = declaration.declared_ms + policy.hand_back_max_s * 1000
        if not present_ms < deferral.until_ms <= longest_ms:
            raise Violation("T-4", f"{name} until {deferral.until_ms} is possible")
        if deferral.until_ms <= declaration.deadline_ms + policy.deferral_limit_s * 1000:
            return DeferralState.GRANTED
        if not policy.deferral_decision_s:
            return DeferralState.REFUSED
        by_ms = min(now_ms + policy.deferral_decision_s * 1000, present_ms)
        if deferral.decide_by_ms != by_ms:
            raise Violation("T-4", f"{name} waits until {deferral.decide_by_ms}")
        return DeferralState.ASKED

    # ---- work on declared hosts ----------------------------------------------------------------

    def check_operation(
        self,
        operation: Operation,
        before: Operation | None,
        topology: Topology,
        *,
        changes: Changes,
        now_ms: int,
    ) -> None:
        """T-3: declared work is announced for a time that its owners agreed to, and keeps it."""
        known = {**self._state.maintenances, **changes.maintenances}
        maintenance = known.get(operation.maintenance)
        declaration = maintenance.declaration if maintenance else None
        if maintenance is None or declaration is None or not operation.vms or operation.is_return:
            return
        self._premises["T-3: declared work"] += 1
        started_ms = operation.execution.started_ms
        if started_ms is not None and started_ms < (operation.earliest_start_ms or 0):
            raise Violation("T-3", f"{operation.id} started before its owners agreed")
        if operation.state is not S.ANNOUNCED or (before and before.state is not S.PLANNED):
            return
        waiting = [*self._waiting(maintenance, operation.host, topology, changes)]
        latest_ms = max((each.deadline_ms for each in waiting), default=0)
        earliest_ms = max(now_ms, operation.earliest_start_ms or 0)
        self._check_tested(maintenance, operation.host, topology, changes, start_ms=earliest_ms)
        if earliest_ms >= latest_ms:
            return
        start_ms = agreed_ms(waiting)
        self._premises["T-2: work starts at a chosen time"] += bool(start_ms)
        if not start_ms or start_ms != operation.earliest_start_ms:
            text = f"{operation.id} may start from {earliest_ms} on, {latest_ms} is the deadline"
            raise Violation("T-3", f"{text}, and its owners agreed to {start_ms}")
        if operation.not_before_ms != start_ms:
            text = f"{operation.id} is announced for {operation.not_before_ms}"
            raise Violation("T-2", f"{text}, and its owners chose {start_ms}")

    def _check_tested(
        self,
        maintenance: Maintenance,
        host: str,
        topology: Topology,
        changes: Changes,
        *,
        start_ms: int,
    ) -> None:
        """T-8: an owner's other hosts are announced once its test is over and observed."""
        if is_emergency(maintenance) or maintenance.move_s:
            return
        tests = tests_of(maintenance, topology)
        self._premises["T-8: declared work with a test of an owner"] += bool(tests)
        targets = {**self._state.targets, **changes.targets}
        owner = untested(targets, maintenance, host, topology, start_ms)
        if owner:
            raise Violation(
                "T-8", f"{host} of {maintenance.id} may start at {start_ms} before {owner}"
            )

    def _waiting(
        self,
        maintenance: Maintenance,
        host: str,
        topology: Topology,
        changes: Changes | None = None,
    ) -> Iterator[Waiting]:
        """Yield the owners with VMs on a host who have neither released them nor chosen now."""
        choices = {**self._state.choices, **(changes.choices if changes else {})}
        deferrals = changes.deferrals if changes else {}
        for owner in {
            topology.groups[topology.vms[vm].group].owner for vm in topology.vms_on(host)
        }:
            choice = choices.get(f"{maintenance.number}/{host}/{owner}")
            if _holds(maintenance, host, owner, topology):
                choice = None
            if choice is None or choice.decision is Decision.AT:
                deadline_ms = self._deadline_ms(maintenance, host, owner, deferrals)
                yield Waiting(owner, choice.start_ms if choice else None, deadline_ms)

    def agreed_ms(self, maintenance: Maintenance, host: str) -> int:
        """Return the start that all owners on a host agree to; 0: none."""
        if maintenance.declaration is None or is_emergency(maintenance):
            return 0
        return agreed_ms([*self._waiting(maintenance, host, self._state.topology)])

    def hand_back_ms(self, maintenance: Maintenance, host: str) -> int:
        """Return when nobody on a host need agree to declared work any more; 0: at once."""
        if maintenance.declaration is None:
            return 0
        waiting = self._waiting(maintenance, host, self._state.topology)
        return max((each.deadline_ms for each in waiting), default=0)

    def hand_backs(self, maintenance: Maintenance, now_ms: int) -> tuple[HandBack, ...]:
        """Return what a plan of this time must keep, as the checker of plans reads it."""
        hosts = []
        for host in maintenance.hosts if maintenance.declaration else ():
            latest_ms, start_ms = (
                self.hand_back_ms(maintenance, host),
                self.agreed_ms(maintenance, host),
            )
            if start_ms >= now_ms:
                hosts.append(HandBack(host, start_ms, "", latest_ms))
            elif latest_ms:
                hosts.append(HandBack(host, latest_ms))
        return tuple(hosts)

    def _deadline_ms(
        self,
        maintenance: Maintenance,
        host: str,
        owner: str,
        changed: dict[str, Deferral | None],
    ) -> int:
        """Return the deadline of one owner's VMs on a host: nobody else's deferral moves it."""
        assert maintenance.declaration is not None
        key = f"{maintenance.number}/{host}/{owner}"
        own = changed.get(key) or self._state.deferrals.get(key)
        return max(maintenance.declaration.deadline_ms, (own.granted_ms or 0) if own else 0)

    def _check_kept(self, maintenance: Maintenance) -> None:
        """T-2: a new plan keeps an agreed start, or marks it as displaced."""
        plan = self._state.plans.get(maintenance.plan)
        if plan is None or not maintenance.running or maintenance.declaration is None:
            return
        if not isinstance(maintenance.phase, Due | Planning):
            return
        starts_ms = {host: wave.latest_start_ms for wave in plan.waves for host in wave.hosts}
        for choice, start_ms in self._open_choices(maintenance):
            planned_ms = starts_ms.get(choice.host, 0)
            kept = planned_ms == start_ms
            self._premises["T-2: a plan keeps a chosen start"] += kept
            self._premises["T-2: a plan displaces a chosen start"] += not kept
            if kept is bool(choice.displaced_ms):
                text = f"{choice.key} is planned for {planned_ms}, {start_ms} was chosen"
                raise Violation("T-2", f"{text}, displaced: {choice.displaced_ms}")

    def _open_choices(self, maintenance: Maintenance) -> Iterator[tuple[OwnerChoice, int]]:
        """Yield the choices that all owners of a host agree to, not announced, and their start."""
        for choice in self._state.choices.values():
            own = choice.maintenance == maintenance.number and choice.decision is Decision.AT
            if not own or f"{maintenance.number}/{choice.host}" in self._state.targets:
                continue
            waiting = [*self._waiting(maintenance, choice.host, self._state.topology)]
            start_ms = agreed_ms(waiting)
            if start_ms and start_ms == choice.start_ms:
                yield choice, start_ms

    # ---- windows and incidents -----------------------------------------------------------------

    def _check_window_left(self, operation: Operation) -> None:
        """T-5: an incident is closed when the last work in its window has ended."""
        number = operation.window.incident
        if operation.live or not number:
            return
        self._premises["T-5: a window overruns"] += 1
        left = [e for e in self._state.operations.values() if e.window.incident == number]
        if not left and number in self._state.tickets:
            raise Violation("T-5", f"{operation.id} has ended, and incident t-{number} is open")

    def check_progress(self, now_ms: int, *, sound_ms: int) -> None:
        """Check what should have happened, at a time of the service that is well since long.

        `sound_ms`: time for which nothing has kept the service from acting.
        """
        for operation in self._state.operations.values():
            self._check_overrun(operation, now_ms, sound_ms)
        for deferral in self._state.deferrals.values():
            by_ms = deferral.decide_by_ms
            if by_ms and by_ms + MINUTE_MS < now_ms and sound_ms > MINUTE_MS:
                raise Violation("T-4", f"nobody has decided {deferral.key}, and it is not refused")

    def _check_overrun(self, operation: Operation, now_ms: int, sound_ms: int) -> None:
        window = operation.window
        close_ms, running = window.planned_close_ms, operation.state is S.RUNNING
        if running and window.opened_ms and close_ms is not None and sound_ms > MINUTE_MS:
            late = close_ms + MINUTE_MS < now_ms
            if late and not window.incident:
                raise Violation("T-5", f"{operation.id} overruns its window without an incident")
        failed = running and operation.reason.startswith("validation failed")
        if failed and not any(self._incidents(operation)):
            raise Violation("T-7", f"{operation.id} has failed its validation without an incident")

    def _incidents(self, operation: Operation) -> Iterator[Ticket]:
        for ticket in self._state.tickets.values():
            if ticket.type is TicketType.INCIDENT and ticket.operation == operation.number:
                yield ticket


def is_emergency(maintenance: Maintenance) -> bool:
    """Whether a maintenance is an emergency."""
    declaration = maintenance.declaration
    return declaration is not None and declaration.severity.value == "emergency"


def _holds(maintenance: Maintenance, host: str, owner: str, topology: Topology) -> bool:
    """T-8: whether an owner holds a host that has no VM of its test group."""
    groups = {topology.vms[name].group for name in topology.vms_on(host)}
    asked = maintenance.declaration.first_groups if maintenance.declaration else ()
    return any(each.owner == owner and each.held and each.group not in groups for each in asked)
