"""The times at which an owner can have declared work start on a host. Source: T-2.

A chosen start is a wave of its own, or joins the hosts that chose the same start: two waves never
overlap, from the notice of a wave to its end. Work that waits for the deadline is planned around
the chosen starts and takes no time away.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterator

from forewarn.core.draft import Draft
from forewarn.core.durations import host_s, span_s
from forewarn.core.host_orders import orders_of
from forewarn.core.impact import SECOND_MS
from forewarn.core.maintenance import Maintenance
from forewarn.core.owner_choices import Decision
from forewarn.core.policy import NoticePolicy
from forewarn.core.usage import subjects_of_host
from forewarn.planning.policy import MaintenancePolicy
from forewarn.rules.blockers import Blocker, Code
from forewarn.rules.budget import BUDGET
from forewarn.rules.fault_domain import FAULT_DOMAIN
from forewarn.rules.hand_back import HAND_BACK
from forewarn.rules.notice import NOTICE
from forewarn.rules.other_waits import EARLIEST_START
from forewarn.rules.previous_wave import PREVIOUS_WAVE
from forewarn.rules.test_first import TEST_FIRST
from forewarn.rules.window import WINDOW
from forewarn.values import value

#: Time between the plan's announcement of a wave and the effective notice, in seconds: for the
#: clock, the store and portions of a large wave. A host that takes longer is done in a later wave.
ANNOUNCING_S = 60
#: The same time as a number of notice margins, if longer: the emulator's clock runs fast.
MARGINS = 5
#: Time to plan after a choice, in seconds.
PLANNING_S = 60
#: Maximum number of openings of a host.
OPENINGS_MAX = 200
#: Number of openings that a refusal names.
NEAREST = 3


@value
class Opening:
    """A span in which work on a host can start. Times are ms since the epoch UTC."""

    start_ms: int
    #: The latest start in this opening.
    latest_ms: int
    #: Number of hosts that may still choose this start; None: no budget limits it.
    room: int | None = None


def planning_notice_s(base: MaintenancePolicy, policy: NoticePolicy, work: Maintenance) -> int:
    """Return the required notice of a wave, with the time to announce it, in seconds."""
    margin_s = -(-policy.notice_margin_ms // SECOND_MS)
    return notice_owed_s(base, policy, work) + margin_s + max(ANNOUNCING_S, MARGINS * margin_s)


def notice_owed_s(base: MaintenancePolicy, policy: NoticePolicy, work: Maintenance) -> int:
    """Return the notice that the impact of a maintenance requires, in seconds. See N-1, T-6."""
    if work.exemption.waives(NOTICE):
        return 0
    return max(base.notice_s, policy.notice_s[work.shown_impact])


class Openings:
    """The openings of one declared maintenance; costs its choices once."""

    def __init__(self, draft: Draft, maintenance: Maintenance) -> None:
        """Read the chosen starts and the work at hand."""
        assert maintenance.declaration is not None, maintenance
        self._draft, self._maintenance = draft, maintenance
        self._deadline_ms = maintenance.declaration.deadline_ms
        policy = draft.policy_of(maintenance)
        notice_ms = planning_notice_s(policy, draft.policy, maintenance) * SECOND_MS
        lasts_s = [host_s(draft.state, maintenance, host) for host in maintenance.hosts]
        self._lasts_ms = max(lasts_s) * SECOND_MS
        #: Time from the end of a wave to the start of the next.
        self._gap_ms = max(notice_ms, policy.pause_s * SECOND_MS)
        self._hosts_at: dict[int, list[str]] = {}
        #: The chosen starts, by time.
        self._starts: list[int] = []
        self._start_of: dict[str, int] = {}
        for each in draft.state.choices.values():
            at = each.decision is Decision.AT and each.maintenance == maintenance.number
            if at and draft.target(maintenance.number, each.host) is None:
                self.take(each.host, each.start_ms)
        self._orders = orders_of(draft.state, maintenance)
        soonest_ms = draft.now_ms + notice_ms + PLANNING_S * SECOND_MS
        self.soonest_ms = max(soonest_ms, self._free_ms(), maintenance.rests_until_ms or 0)

    @property
    def now_ms(self) -> int:
        """The time for which the openings are computed, ms since the epoch UTC."""
        return self._draft.now_ms

    def _free_ms(self) -> int:
        """Return when a wave may start after the work at hand, ms since the epoch UTC."""
        maintenance, draft = self._maintenance, self._draft
        ends_ms = [0]
        for target in draft.progress(maintenance.number).worked_on:
            operation = draft.operation(target.operation)
            if operation is not None:
                from_ms = operation.execution.started_ms or operation.not_before_ms
                ends_ms.append(from_ms + span_s(draft.state, maintenance, operation) * SECOND_MS)
        return max(ends_ms) + self._gap_ms

    def take(self, host: str, start_ms: int) -> None:
        """Count a host at its chosen start, and no longer at an earlier choice."""
        before_ms = self._start_of.get(host)
        if before_ms is not None:
            self._hosts_at[before_ms].remove(host)
            if not self._hosts_at[before_ms]:
                del self._hosts_at[before_ms]
                self._starts.remove(before_ms)
        self._start_of[host] = start_ms
        if start_ms not in self._hosts_at:
            insort(self._starts, start_ms)
        self._hosts_at.setdefault(start_ms, []).append(host)

    def blocker(self, host: str, start_ms: int, *, until_ms: int = 0) -> Blocker | None:
        """Return why work on a host cannot start at a time; None if it can.

        `until_ms`: the hand-back deadline of the owner who chooses, ms since the epoch UTC; 0: that
        of the declaration.
        """
        draft, maintenance = self._draft, self._maintenance
        if start_ms > (until_ms or self._deadline_ms):
            return self._says(HAND_BACK, "it is after the hand-back deadline")
        if start_ms < draft.now_ms:
            return self._says(NOTICE, "this time is past")
        if start_ms < self.soonest_ms:
            return self._says(NOTICE, "its notice, or work at hand, would not be over")
        if start_ms < (maintenance.earliest_ms or 0):
            return self._says(EARLIEST_START, "the maintenance begins later")
        tested_ms = self._tested_ms(host)
        if tested_ms is None:
            return self._says(TEST_FIRST, "choose a time for the hosts of the test group first")
        if start_ms < tested_ms:
            return self._says(TEST_FIRST, "the test before it would not be observed")
        words = draft.topology.words_on(host)
        if not draft.policy_of(maintenance).is_open(words, (start_ms, start_ms + self._lasts_ms)):
            return self._says(WINDOW, "no window is open, or a freeze is in force")
        clear_ms = self._gap_ms + self._lasts_ms
        first = bisect_right(self._starts, start_ms - clear_ms)
        for other_ms in self._starts[first : bisect_left(self._starts, start_ms + clear_ms)]:
            if other_ms != start_ms and self._hosts_at[other_ms] != [host]:
                return self._says(PREVIOUS_WAVE, "other work is planned around that time")
        return self._beside(host, start_ms)

    def _tested_ms(self, host: str) -> int | None:
        """Return when the tests before a host are over by the chosen times; None: unknown. T-8."""
        tested_ms = 0
        for order in self._orders:
            if host in order.after:
                starts_ms = [self._start_of.get(each) for each in order.first]
                if None in starts_ms:
                    return None
                ends_ms = [at_ms + self._lasts_ms for at_ms in starts_ms if at_ms is not None]
                observed_ms = max([order.ended_ms, *ends_ms]) + order.observation_s * SECOND_MS
                tested_ms = max(tested_ms, observed_ms)
        return tested_ms

    def _beside(self, host: str, start_ms: int) -> Blocker | None:
        """Return why a host cannot join the hosts that chose a start. See G-1, F-3."""
        others = [each for each in self._hosts_at.get(start_ms, ()) if each != host]
        if not others:
            return None
        topology, label = self._draft.topology, self._maintenance.failure_domain
        domain = topology.failure_domain(host, label)
        if any(topology.failure_domain(other, label) != domain for other in others):
            return self._says(
                PREVIOUS_WAVE,
                "another failure domain is worked on then; choose another time for this host",
            )
        groups, zone = set(self._groups(host)), topology.hosts[host].fault_zone
        for other in others:
            known = topology.hosts.get(other)
            if known and known.fault_zone != zone and not groups.isdisjoint(self._groups(other)):
                return self._says(
                    FAULT_DOMAIN,
                    "another fault domain is disturbed then; choose another time for this host",
                )
        room = self._room(host, others)
        return self._says(BUDGET, "its budget is full then") if room == 0 else None

    def _groups(self, host: str) -> Iterator[str]:
        topology = self._draft.topology
        return (topology.vms[name].group for name in topology.vms_on(host))

    def _room(self, host: str, others: list[str]) -> int | None:
        """Return how many hosts like this one fit beside others; None: no budget limits them."""
        topology, limits = self._draft.topology, self._draft.plan_of(self._maintenance).limits
        if not limits:
            return None
        used = Counter(each for other in others for each in subjects_of_host(topology, other))
        wanted = Counter(subjects_of_host(topology, host))
        rooms = [
            max(limits[each] - used[each], 0) // amount
            for each, amount in wanted.items()
            if each in limits
        ]
        return min(rooms, default=None)

    def _says(self, code: Code, text: str) -> Blocker:
        return Blocker(code, "", self._draft.now_ms, text=text)

    def of(self, host: str, *, until_ms: int = 0) -> list[Opening]:
        """Return the openings of a host until a deadline, by time; O(chosen and open spans)."""
        draft, lasts_ms = self._draft, self._lasts_ms
        tested_ms = self._tested_ms(host)
        if tested_ms is None:
            return []
        first_ms = max(self.soonest_ms, self._maintenance.earliest_ms or 0, tested_ms)
        first_ms = -(-first_ms // SECOND_MS) * SECOND_MS
        last_ms = until_ms = until_ms or self._deadline_ms
        if first_ms > last_ms or host not in draft.topology.hosts:
            return []
        words, span = draft.topology.words_on(host), (first_ms, last_ms + lasts_ms)
        spans = draft.policy_of(self._maintenance).open_spans_of(words, span)
        others = [each for each in self._starts if self._hosts_at[each] != [host]]
        openings = [
            Opening(each, each, self._room(host, self._hosts_at[each]))
            for each in others
            if first_ms <= each <= last_ms and self.blocker(host, each, until_ms=until_ms) is None
        ]
        alone = self._room(host, [])
        if alone != 0:
            for from_ms, to_ms in spans:
                ends_ms = min(to_ms - lasts_ms, last_ms)
                for start_ms, latest_ms in self._between(from_ms, ends_ms, others):
                    openings.append(Opening(start_ms, latest_ms, alone))
        return sorted(openings, key=lambda each: each.start_ms)[:OPENINGS_MAX]

    def _between(self, from_ms: int, to_ms: int, others: list[int]) -> Iterator[tuple[int, int]]:
        """Yield the spans of starts that stay clear of other chosen starts."""
        clear_ms = self._gap_ms + self._lasts_ms
        for other_ms in others:
            if other_ms + clear_ms <= from_ms:
                continue
            if other_ms - clear_ms >= from_ms:
                yield from_ms, min(other_ms - clear_ms, to_ms)
            from_ms = max(from_ms, other_ms + clear_ms)
            if from_ms > to_ms:
                return
        if from_ms <= to_ms:
            yield from_ms, to_ms

    def nearest(self, host: str, start_ms: int, *, until_ms: int = 0) -> list[Opening]:
        """Return the openings of a host that are nearest to a time, by time."""
        openings = self.of(host, until_ms=until_ms)
        openings.sort(key=lambda each: abs(self.start_in(each, start_ms) - start_ms))
        return sorted(openings[:NEAREST], key=lambda each: each.start_ms)

    def start_in(self, opening: Opening, start_ms: int) -> int:
        """Return the start within an opening that is nearest to a time."""
        return min(max(start_ms, opening.start_ms), opening.latest_ms)
