"""Whether one host of a wave may be announced, or start, now: every hard constraint once more.

Source: F-3. The plan kept them for what was known when it was made; failures and work by hand
have come since.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from forewarn.core.admission import obstacle
from forewarn.core.impact import SECOND_MS, Source
from forewarn.core.labels import words_of
from forewarn.core.lifecycle import Operation, OperationState
from forewarn.core.naming import RACK
from forewarn.core.topology import Health
from forewarn.planning.blockers import Blocker, Code
from forewarn.planning.plan_text import read_limits
from forewarn.planning.policy import Scope, Subject, subject_text
from forewarn.planning.windows import open_now

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forewarn.core.draft import Draft
    from forewarn.core.maintenance.records import Maintenance
    from forewarn.planning.plan import Wave
    from forewarn.planning.windows import Span

#: What stands in the way of an operation -> the code of a blocker.
_CODES = {"host-busy": Code.HOST_BUSY, "fault-domain": Code.FAULT_DOMAIN}


_FLEET: Subject = (Scope.FLEET, "")
#: What VMs count for.
_OF_VMS = frozenset({Scope.GROUP, Scope.OWNER})


class Admission:
    """One look at one maintenance; what is disturbed is counted once, when first needed."""

    def __init__(self, draft: Draft, maintenance: Maintenance) -> None:
        """Look at a maintenance as it is in a draft."""
        self._draft, self._maintenance = draft, maintenance
        plan = draft.maintenances.plan(maintenance.plan)
        #: Limit of each subject that could bind when the plan was made.
        self._limits = read_limits(plan.body) if plan else {}
        #: Whether VMs need to be counted at all.
        self._of_people = any(scope in _OF_VMS for scope, _ in self._limits)
        self._used: Counter[Subject] | None = None

    def blocker(self, host: str, wave: Wave) -> Blocker | None:
        """Return what keeps a host from being announced now, None if nothing does.

        Costs the work on the host and in its groups; with budgets, once, all that is disturbed.
        """
        draft, maintenance = self._draft, self._maintenance
        now_ms = draft.now_ms
        known = draft.topology.hosts.get(host)
        if known is None:
            return Blocker(Code.UNKNOWN_HOST, host, now_ms)
        if known.health is Health.FAILED:
            return Blocker(Code.HOST_FAILED, host, now_ms)
        if draft.live_count() >= draft.policy.max_operations:
            return Blocker(Code.BUDGET, "operations of the service", now_ms)
        notice_s = draft.policy.notice_s[maintenance.impact]
        if now_ms + notice_s * SECOND_MS + draft.policy.notice_margin_ms > wave.latest_start_ms:
            return Blocker(Code.NOTICE, f"wave {wave.number}", now_ms)
        for each in maintenance.postponed:
            if each.host == host and each.until_ms > wave.earliest_start_ms:
                return Blocker(Code.POSTPONED, each.by, now_ms, each.until_ms)
        found = obstacle(draft, _probe(maintenance, host))
        if found is not None:
            code = _CODES[found.waiting.reason]
            return Blocker(code, f"op-{found.number}", now_ms)
        over = self._over(self._taken(host))
        return Blocker(Code.BUDGET, over, now_ms) if over else None

    def count(self, host: str) -> None:
        """Count a host that was announced since."""
        if self._used is not None:
            self._used.update(self._taken(host))

    def too_late(self, operation: Operation) -> str:
        """Say why work that is due must not start any more; empty if it may.

        It was announced to start at a time for which the plan holds; where it starts later, its
        window may have closed, or its deadline may be missed.
        """
        draft, maintenance = self._draft, self._maintenance
        end_ms = draft.now_ms + maintenance.duration_s * SECOND_MS
        if draft.now_ms <= operation.asked_ms:
            return ""
        if maintenance.deadline_ms and end_ms > maintenance.deadline_ms:
            return "it would end after the deadline"
        if not self._is_open(operation.host, (draft.now_ms, end_ms)):
            return "its window closes before it would end"
        return ""

    def closed_since(self, operation: Operation) -> str:
        """Say why announced work must be withdrawn by a policy applied since; empty if it stays.

        It may start between its hold and its notice's end, so that the whole time must be open.
        """
        draft = self._draft
        if draft.policy_applied_ms < operation.created_ms:
            return ""
        end_ms = operation.not_before_ms + self._maintenance.duration_s * SECOND_MS
        start_ms = max(operation.hold_ms, draft.now_ms)
        if start_ms < end_ms and not self._is_open(operation.host, (start_ms, end_ms)):
            return "the new policy closes its time"
        return ""

    def _is_open(self, host: str, span: Span) -> bool:
        """Whether windows and freezes leave a whole time open for a host."""
        known = self._draft.topology.hosts.get(host)
        policy = self._draft.maintenance_policy
        labels = words_of(known) if known else frozenset[str]()
        windows = [each for each in policy.windows if labels.issuperset(each.hosts)]
        return not (windows or policy.freezes) or open_now(windows, policy.freezes, span)

    def _over(self, taken: Counter[Subject]) -> str:
        """Name the first budget that has no room for what a host takes; empty if all have."""
        bound = [subject for subject in taken if subject in self._limits]
        if not bound:
            return ""
        if self._used is None:
            self._used = self._disturbed()
        for subject in bound:
            if self._used[subject] + taken[subject] > self._limits[subject]:
                return subject_text(subject)
        return ""

    def _disturbed(self) -> Counter[Subject]:
        """Count what is announced, runs or has failed; costs all of it."""
        used: Counter[Subject] = Counter()
        draft = self._draft
        hosts: set[str] = set()
        for state in (OperationState.ANNOUNCED, OperationState.RUNNING):
            for number in draft.numbers(("state", state.value)):
                operation = draft.operation(number)
                if operation is None or operation.state is not state or not is_counted(operation):
                    continue
                if operation.of_vm:
                    self._add_vms(used, operation.vms)
                elif operation.host not in hosts:
                    hosts.add(operation.host)
                    self._add(used, operation.host)
        return used

    def _taken(self, host: str) -> Counter[Subject]:
        """Return what work on a host takes of each budget."""
        taken: Counter[Subject] = Counter()
        self._add(taken, host)
        return taken

    def _add(self, counts: Counter[Subject], host: str) -> None:
        topology = self._draft.topology
        known = topology.hosts.get(host)
        if known is not None:
            rack = dict(known.labels).get(RACK, "")
            words = ((Scope.LABEL, word) for word in words_of(known))
            for subject in (_FLEET, (Scope.ZONE, known.zone), (Scope.RACK, rack), *words):
                if subject in self._limits:
                    counts[subject] += 1
        if self._of_people:
            self._add_vms(counts, topology.vms_on(host))

    def _add_vms(self, counts: Counter[Subject], names: Iterable[str]) -> None:
        topology = self._draft.topology
        for name in names:
            vm = topology.vms.get(name)
            if vm is not None:
                counts[Scope.GROUP, vm.group] += 1
                counts[Scope.OWNER, topology.groups[vm.group].owner] += 1


def is_counted(operation: Operation) -> bool:
    """Whether live work counts against budgets: all that is disturbed, and routine work announced.

    A user's work on a VM is the user's own business until it runs.
    """
    if operation.state is OperationState.RUNNING:
        return True
    return operation.routine and operation.state is OperationState.ANNOUNCED


def _probe(maintenance: Maintenance, host: str) -> Operation:
    """Return the work on a host as it would be asked for, to see what it would wait for."""
    return Operation(
        0,
        0,
        maintenance.cause,
        maintenance.impact,
        Source.PLATFORM,
        routine=True,
        host=host,
        vms=(),
        of_vm=False,
        description="",
    )
