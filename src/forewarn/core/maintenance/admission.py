"""Whether one host of a wave may be announced, or start, now: every hard constraint once more.

Source: F-3. The plan kept them for what was known when it was made; failures and work by hand
have come since.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from forewarn.core.admission import obstacle
from forewarn.core.impact import SECOND_MS, Source
from forewarn.core.labels import words_of
from forewarn.core.lifecycle import Operation
from forewarn.core.maintenance.headroom import announce_shortage
from forewarn.core.owner_rest import owners_of
from forewarn.core.topology import Health
from forewarn.planning.blockers import Blocker, Code
from forewarn.planning.policy import subject_text
from forewarn.planning.windows import open_now

if TYPE_CHECKING:
    from forewarn.core.draft import Draft
    from forewarn.core.maintenance.records import Maintenance
    from forewarn.planning.plan import Wave
    from forewarn.planning.windows import Span

#: What stands in the way of an operation -> the code of a blocker.
_CODES = {"host-busy": Code.HOST_BUSY, "fault-domain": Code.FAULT_DOMAIN}


class Admission:
    """One look at one maintenance."""

    def __init__(self, draft: Draft, maintenance: Maintenance) -> None:
        """Look at a maintenance as it is in a draft."""
        self._draft, self._maintenance = draft, maintenance

    def blocker(self, host: str, wave: Wave) -> Blocker | None:
        """Return what keeps a host from being announced now, None if nothing does.

        Costs the work on the host and in its groups, and its VMs where budgets hold.
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
        resting = self._resting(host, wave)
        if resting is not None:
            return resting
        found = obstacle(draft, _probe(maintenance, host))
        if found is not None:
            code = _CODES[found.waiting.reason]
            return Blocker(code, f"op-{found.number}", now_ms)
        over = announce_shortage(draft, maintenance, host)
        return Blocker(Code.BUDGET, subject_text(over), now_ms) if over else None

    def _resting(self, host: str, wave: Wave) -> Blocker | None:
        """Return that an owner was disturbed recently, None if all of a host's have rested.

        Hosts of one wave disturb an owner once, so that only the first of them must wait.
        """
        draft = self._draft
        start_ms = max(wave.earliest_start_ms, draft.now_ms)
        for owner, until_ms in self._rests(host):
            if start_ms < until_ms:
                return Blocker(Code.OWNER_REST, owner, draft.now_ms, until_ms)
        return None

    def _rests(self, host: str) -> list[tuple[str, int]]:
        """Return for how long owners rest, or rested last, before this host may be disturbed."""
        draft = self._draft
        rest_ms = draft.maintenance_policy.owner_rest_s * SECOND_MS
        if not rest_ms or self._wave_begun:
            return []
        owners = sorted(owners_of(draft.topology, draft.topology.vms_on(host)))
        ends = [(owner, draft.rested_ms(owner)) for owner in owners]
        return [(owner, ended_ms + rest_ms) for owner, ended_ms in ends if ended_ms]

    def hold_ms(self, host: str, wave: Wave) -> int:
        """Return before when work must not start, ms since the epoch UTC; 0: it may at any time.

        What people asked for, the pause and owners' rests are kept though they have passed: the
        clock may be put back. F-3, F-8, N-4.
        """
        maintenance = self._maintenance
        if wave.earliest_start_ms > self._draft.now_ms:
            return wave.earliest_start_ms
        wished_ms = [each.until_ms for each in maintenance.postponed if each.host == host]
        rests_ms = [until_ms for _, until_ms in self._rests(host)]
        return max([maintenance.earliest_ms, maintenance.rests_until_ms, *wished_ms, *rests_ms])

    @cached_property
    def _wave_begun(self) -> bool:
        """Whether hosts of the wave were announced before this look; costs the hosts touched."""
        maintenance = self._maintenance
        targets = self._draft.maintenances.targets(maintenance.number).values()
        return any(each.wave == maintenance.wave for each in targets)

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
        """Say why announced work must be withdrawn since its time is closed; empty if it stays.

        By a policy applied since, or where the clock was put back, or is being put ahead, into
        closed time, or beyond the deadline. It may start between its hold and its notice's end, so
        that the whole time must be open.
        """
        draft = self._draft
        put_back = draft.now_ms < operation.created_ms
        put_ahead = draft.now_ms < operation.announced_ms
        if draft.policy_applied_ms < operation.created_ms and not put_back and not put_ahead:
            return ""
        end_ms = operation.not_before_ms + self._maintenance.duration_s * SECOND_MS
        if put_ahead and 0 < self._maintenance.deadline_ms < end_ms:
            return "it would end after the deadline"
        start_ms = max(operation.hold_ms, draft.now_ms)
        if put_ahead and not put_back:
            start_ms = max(start_ms, operation.announced_ms)
        if start_ms < end_ms and not self._is_open(operation.host, (start_ms, end_ms)):
            stepped = put_back or put_ahead
            return "the clock was stepped" if stepped else "the new policy closes its time"
        return ""

    def _is_open(self, host: str, span: Span) -> bool:
        """Whether windows and freezes leave a whole time open for a host."""
        known = self._draft.topology.hosts.get(host)
        policy = self._draft.maintenance_policy
        labels = words_of(known) if known else frozenset[str]()
        windows = [each for each in policy.windows if labels.issuperset(each.hosts)]
        return not (windows or policy.freezes) or open_now(windows, policy.freezes, span)


def _probe(maintenance: Maintenance, host: str) -> Operation:
    """Return the work on a host as it would be asked for, to see what it would wait for."""
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
    )
