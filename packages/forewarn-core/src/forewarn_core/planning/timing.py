"""Schedules waves: each wave gets its start and its blocker, or the reason for being too late.

Two waves never overlap, from the announcement of a wave to its end. So a rule that every wave obeys
is obeyed at every moment.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable
from operator import itemgetter

from forewarn_core.planning.eligible import PlanningTerms
from forewarn_core.planning.fleet import Index
from forewarn_core.planning.limits import BudgetLimits
from forewarn_core.planning.occupied import Occupied
from forewarn_core.planning.plan import PlanEntry, Wave
from forewarn_core.planning.policy import Subject, subject_text
from forewarn_core.planning.sites import Batch, WaveSite
from forewarn_core.rules import PLANNED, depends_on_waves
from forewarn_core.rules.blockers import Blocker, Code
from forewarn_core.rules.budget import BUDGET
from forewarn_core.rules.other_waits import DEADLINE
from forewarn_core.rules.site import OwnerDisturbance, Phase
from forewarn_core.rules.test_first import TEST, TEST_FIRST
from forewarn_core.rules.window import WINDOW


class Timetable:
    """Turns batches into waves one by one, and tracks the limits for the next batch."""

    def __init__(
        self, index: Index, limits: BudgetLimits, *, occupied: Occupied, terms: PlanningTerms
    ) -> None:
        self._index, self._limits, self._occupied, self._terms = index, limits, occupied, terms
        #: Owner -> last disturbance, past or planned.
        self._disturbed = {
            owner: OwnerDisturbance(owner, ends_ms)
            for owner, ends_ms in terms.state.owners_disturbed
        }
        self._is_spaced = depends_on_waves(terms.policy)
        #: Order -> hosts that have no wave yet and come first, and when their test is observed.
        self._untested = [set(order.first) for order in terms.request.orders]
        self._tested = [order.until_ms for order in terms.request.orders]
        self._last, self._ends_ms = _last_touched(terms), 0
        #: The resulting waves and blocked hosts.
        self.waves: list[Wave] = []
        self.entries: list[PlanEntry] = []
        self.late: list[tuple[str, Blocker]] = []

    def add_all(self, batches: list[Batch], *, dependent: bool) -> None:
        """Schedule every batch: canaries first, then batches in order of their earliest start.

        Args:
            batches: each with at least one host.
            dependent: whether each batch depends on the moves of earlier ones. Dependent batches
                keep their order, and no batch follows a dependent batch or a canary that is too
                late.

        Cost: with several calendars or resting owners, grows with the square of the batches.
        """
        left = batches = sorted(batches, key=lambda batch: not batch.canary)
        one_calendar = len({id(batch.calendar) for batch in left}) < 2
        ordered = dependent or (one_calendar and not (self._is_spaced or self._untested))
        while left:
            next_up = left[0]
            if not ordered and not next_up.canary:
                waiting = [batch for batch in left if not self._is_tested(batch)]
                ready = [batch for batch in left if self._is_tested(batch)]
                ready = [each for batch in ready if (each := self._in_time(batch)).hosts]
                if not ready:
                    self._add_untested(waiting)
                    break
                next_up = min(self._unlike(ready), key=self._start_key)
                left = [*ready, *waiting]
            left = [batch for batch in left if batch is not next_up]
            if self.late and (dependent or (batches[0].canary and not self.waves)):
                self._add_late(next_up, self.late[0][1])
            else:
                self._add(next_up)

    def _is_tested(self, batch: Batch) -> bool:
        """Whether all hosts that come before those of a batch have a wave."""
        return not any(self._untested[number] for number in batch.calendar.after)

    def _add_untested(self, batches: list[Batch]) -> None:
        """Block the hosts whose test cannot be planned now."""
        for batch in batches:
            self._add_late(batch, Blocker(TEST_FIRST, TEST, self._terms.now_ms))

    def _unlike(self, batches: list[Batch]) -> list[Batch]:
        """Return the first batch of each set of batches with equal conditions."""
        if self._is_spaced or self._occupied.live:
            return batches
        batches_by_kind: dict[int, Batch] = {}
        for batch in batches:
            batches_by_kind.setdefault(id(batch.calendar), batch)
        return list(batches_by_kind.values())

    def _start_key(self, batch: Batch) -> tuple[bool, int]:
        start_ms = self._timed(batch)[1]
        return start_ms == 0, start_ms

    def _add(self, batch: Batch) -> None:
        batch = self._in_time(batch)
        if not batch.hosts:
            return
        earliest_ms, start_ms, waits = self._timed(batch)
        if self._is_late(batch, start_ms):
            self._add_late(batch, self._too_late(waits))
            return
        names = [self._index.fleet.hosts[host].name for host in batch.hosts]
        end_ms = start_ms + self._length_ms(batch)
        self._last += 1
        shown_ms = start_ms - self._notice_ms
        wave = Wave(
            self._last,
            shown_ms,
            earliest_ms,
            start_ms,
            end_ms,
            tuple(sorted(names)),
            waits,
            batch.canary,
        )
        self.waves.append(wave)
        self.entries += [self._entry(batch, host, wave) for host in batch.hosts]
        self._ends_ms = end_ms
        for number in batch.calendar.first:
            self._untested[number].difference_update(names)
            observed_ms = end_ms + self._terms.request.orders[number].observation_s * 1000
            self._tested[number] = max(self._tested[number], observed_ms)
        if self._is_spaced:
            self._disturb(batch.owners_of(self._index), end_ms)

    def _length_ms(self, batch: Batch) -> int:
        return batch.length_ms(self._index, self._terms)

    def _is_late(self, batch: Batch, start_ms: int) -> bool:
        deadline_ms = self._terms.request.deadline_ms
        end_ms = start_ms + self._length_ms(batch)
        return not start_ms or bool(deadline_ms and end_ms > deadline_ms)

    def _in_time(self, batch: Batch) -> Batch:
        """Return the hosts of a batch that alone would be in time; the others are late.

        Live work on one host, or its owner's rest, must not keep the other hosts from their last
        opening. The whole batch where VMs move, because later batches depend on all moves.
        """
        alike = not (self._occupied.live or self._is_spaced)
        if batch.moves is not None or alike or not self._is_late(batch, self._timed(batch)[1]):
            return batch
        in_time = Batch([], batch.calendar, batch.canary)
        for host in batch.hosts:
            alone = Batch([host], batch.calendar)
            _, start_ms, waits = self._timed(alone)
            if self._is_late(alone, start_ms):
                self._add_late(alone, self._too_late(waits))
            else:
                in_time.hosts.append(host)
        return in_time

    def _too_late(self, waits: Blocker) -> Blocker:
        """Return the blocker of hosts that wait too long."""
        code = DEADLINE if self._terms.request.deadline_ms else WINDOW
        return Blocker(code, waits.subject or waits.code.value, waits.since_ms)

    def _add_late(self, batch: Batch, blocker: Blocker) -> None:
        hosts = self._index.fleet.hosts
        self.late += [(hosts[host].name, blocker) for host in batch.hosts]

    def _entry(self, batch: Batch, host: int, wave: Wave) -> PlanEntry:
        fleet = self._index.fleet
        name = fleet.hosts[host].name
        groups = sorted(fleet.groups[group].name for group in batch.groups_on(self._index, host))
        length_ms = self._terms.host_ms(fleet.hosts[host])
        return PlanEntry(
            name,
            wave.number,
            wave.shown_ms,
            wave.earliest_start_ms,
            wave.latest_start_ms,
            wave.earliest_start_ms + length_ms,
            wave.latest_start_ms + length_ms,
            tuple(groups),
            (batch.moves or {}).get(host, ()),
        )

    def _disturb(self, owners: Iterable[str], ends_ms: int) -> None:
        for owner in owners:
            before = self._disturbed.get(owner)
            if before is None or before.ended_ms < ends_ms:
                self._disturbed[owner] = OwnerDisturbance(owner, ends_ms)

    @property
    def _notice_ms(self) -> int:
        return self._terms.applied.notice_s * 1000

    def _timed(self, batch: Batch) -> tuple[int, int, Blocker]:
        """Return the earliest and the latest start of a batch (0: no start), and the blocker."""
        if batch.timed is None or batch.timed[0] != self._last:
            batch.timed = (self._last, self._time(batch))
        return batch.timed[1]

    def _time(self, batch: Batch) -> tuple[int, int, Blocker]:
        site = WaveSite(
            batch,
            self._index,
            self._terms,
            disturbed=self._disturbed,
            tested=self._tested,
            last_wave=self._last,
            ends_ms=self._ends_ms,
        )
        notice_ms = self._notice_ms
        announced, started = [], []
        for earliest in PLANNED:
            for phase, at_ms, code, subject in earliest(self._terms.policy, site):
                if phase is Phase.ANNOUNCE:
                    announced.append((at_ms + notice_ms, code, subject))
                else:
                    started.append((at_ms, code, subject))
        if self._occupied.live:
            live_after = self._live_after_of(batch)
            announced += [(at_ms + notice_ms, code, subject) for at_ms, code, subject in live_after]
        reasons = announced + started
        first_ms, code, subject = max(reasons, key=itemgetter(0))
        opening = self._opening(batch, first_ms)
        if opening is not None:
            opens_ms, start_ms = opening
            # Without live work that may end early, the wave might fit into an earlier opening.
            firm_ms = max(each[0] for each in reasons if not each[1].meaning.clears_early)
            if start_ms > first_ms and self._opening(batch, firm_ms) == opening:
                code, subject = WINDOW, batch.calendar.subject
            earliest_ms = max(start_ms - notice_ms, opens_ms, *(each[0] for each in started))
            return earliest_ms, start_ms, Blocker(code, subject, self._terms.now_ms, start_ms)
        if not batch.calendar.windows and not self._terms.policy.freezes:
            return 0, 0, Blocker(code, subject or "its notice", self._terms.now_ms)
        return 0, 0, Blocker(WINDOW, batch.calendar.subject, self._terms.now_ms)

    def _opening(self, batch: Batch, first_ms: int) -> tuple[int, int] | None:
        """Return when the first long enough opening begins, and the start in it; None: no opening.

        The start is not before `first_ms`.
        """
        spans, length_ms = batch.calendar.spans, self._length_ms(batch)
        for place in range(max(0, bisect(spans, (first_ms,)) - 1), len(spans)):
            opens_ms, closes_ms = spans[place]
            start_ms = max(first_ms, opens_ms)
            if start_ms + length_ms <= closes_ms:
                return opens_ms, start_ms
        return None

    def _live_after_of(self, batch: Batch) -> list[tuple[int, Code, str]]:
        """Return when live work leaves the hosts, groups and limits of a batch; cached."""
        if batch.live_after is None:
            batch.live_after = self._room_after(batch)
            for host in batch.hosts:
                groups = batch.groups_on(self._index, host)
                for _, ends_ms, code, subject in self._occupied.until(host, groups):
                    batch.live_after.append((ends_ms, code, subject))
        return batch.live_after

    def _room_after(self, batch: Batch) -> list[tuple[int, Code, str]]:
        """Return when live work leaves enough room in every limit for a batch."""
        reasons: list[tuple[int, Code, str]] = []
        for ends_ms in (self._terms.now_ms, *self._occupied.ends()):
            usage = self._occupied.taken_after(ends_ms)
            used: dict[Subject, int] = {}
            for host in batch.hosts:
                groups = batch.groups_on(self._index, host)
                vms = [move.vm for move in batch.moves[host]] if batch.moves is not None else None
                for subject, amount in self._occupied.amounts(host, groups, ends_ms, vms=vms):
                    used[subject] = used.get(subject, 0) + amount
            over = [
                each for each in used if used[each] + usage.get(each, 0) > self._limits.limit[each]
            ]
            if not over:
                break
            later = next((each for each in self._occupied.ends() if each > ends_ms), ends_ms)
            subject = min(over, key=lambda each: (each[0].value, each[1]))
            reasons.append((later, BUDGET, subject_text(subject)))
        return reasons


def _last_touched(terms: PlanningTerms) -> int:
    """Return the number of the last wave of which a host is announced or done."""
    plan = terms.state.in_force
    if plan is None:
        return terms.state.last_wave
    done = set(terms.state.done)
    waves = [each.number for each in plan.waves if not done.isdisjoint(each.hosts)]
    return max(waves, default=terms.state.last_wave)
