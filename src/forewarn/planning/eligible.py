"""Which hosts can be done, in which calendar; the others with their blocker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.planning.blockers import FREEZE, Blocker, Code
from forewarn.planning.policy import subject_text
from forewarn.planning.windows import SPANS_DAYS_MAX, Span, group_word
from forewarn.values import value

if TYPE_CHECKING:
    from forewarn.planning.fleet import Index
    from forewarn.planning.occupied import Occupied
    from forewarn.planning.plan import Asked, FleetState
    from forewarn.planning.policy import BudgetLimits, MaintenancePolicy

#: How far ahead openings are looked for, where no deadline comes first.
HORIZON_MS = SPANS_DAYS_MAX * 86_400_000


@value
class Calendar:
    """When some hosts may be worked on; hosts with different calendars never share a wave."""

    #: Windows, by name, that are for them.
    windows: tuple[str, ...] = ()
    not_before_ms: int = 0
    #: Who asked for that.
    postponed_by: str = ""
    spans: tuple[Span, ...] = ()

    @property
    def subject(self) -> str:
        """The windows as a sentence names them."""
        return f"window {', '.join(self.windows)}" if self.windows else FREEZE


class Calendars:
    """The calendar of each host; those of one zone, rack and labels are worked out once."""

    def __init__(
        self, policy: MaintenancePolicy, asked: Asked, *, now_ms: int, index: Index
    ) -> None:
        """Note what calendars depend on."""
        self._policy = policy
        self._index = index
        named = {group for window in policy.windows for group in window.groups or ()}
        groups = enumerate(index.fleet.groups)
        #: Group that a window names -> the word for it.
        self._group_words = {n: group_word(each.name) for n, each in groups if each.name in named}
        self._span = (now_ms, min(asked.deadline_ms or now_ms + HORIZON_MS, now_ms + HORIZON_MS))
        self._postponed = {
            host: (at_ms, by) for host, at_ms, by in asked.postponed if at_ms > now_ms
        }
        self._known: dict[object, Calendar] = {}

    def of(self, number: int) -> Calendar:
        """Return the calendar of a host."""
        host = self._index.fleet.hosts[number]
        groups: frozenset[str] = frozenset()
        if self._group_words:
            on_host = self._group_words.keys() & set(self._index.groups_on[number])
            groups = frozenset(self._group_words[each] for each in on_host)
        place = (host.zone, host.rack, host.labels, groups)
        postponed = self._postponed.get(host.name, (0, ""))
        calendar = self._known.get((place, postponed))
        if calendar is None:
            calendar = self._known.setdefault(
                (place, postponed), self._made(host.words | groups, *postponed)
            )
        return calendar

    def _made(self, words: frozenset[str], not_before_ms: int, by: str) -> Calendar:
        windows = self._policy.windows_of(words)
        names = tuple(window.name for window in windows)
        key = (windows, not_before_ms, by)
        if key not in self._known:
            spans = self._policy.open_spans_of(words, self._span)
            self._known[key] = Calendar(names, not_before_ms, by, spans)
        return self._known[key]


def split_eligible(
    index: Index, occupied: Occupied, limits: BudgetLimits, *, terms: PlanningTerms
) -> tuple[list[tuple[Calendar, list[int]]], list[tuple[str, Blocker]]]:
    """Return the hosts that can be done, by calendar, and the others with their blockers."""
    calendars = Calendars(terms.policy, terms.asked, now_ms=terms.now_ms, index=index)
    settled = {*terms.state.announced, *terms.state.done}
    blocked: list[tuple[str, Blocker]] = []
    # One object for each calendar, so that a host costs no comparison of spans.
    by_identity: dict[int, tuple[Calendar, list[int]]] = {}
    for name in sorted(set(terms.asked.hosts) - settled):
        host = index.number.get(name)
        if host is None:
            blocked.append((name, Blocker(Code.UNKNOWN_HOST, name, terms.now_ms)))
            continue
        calendar = calendars.of(host)
        blocker = _blocker(index, occupied, limits, host=host, now_ms=terms.now_ms)
        blocker = blocker or _closed(calendar, terms.asked.host_s, terms.now_ms)
        if blocker:
            blocked.append((name, blocker))
        else:
            by_identity.setdefault(id(calendar), (calendar, []))[1].append(host)
    return list(by_identity.values()), blocked


def _blocker(
    index: Index, occupied: Occupied, limits: BudgetLimits, *, host: int, now_ms: int
) -> Blocker | None:
    """Return the blocker of a host that holds for an unknown time."""
    groups = index.groups_on[host]
    for code, ends_ms, operation in occupied.obstacles(host, groups):
        if not ends_ms:
            failed = operation == f"the failure of host {index.fleet.hosts[host].name}"
            return Blocker(Code.HOST_FAILED if failed else code, operation, now_ms)
    for subject, amount in limits.amounts(host, groups):
        if amount > limits.limit[subject] - occupied.taken.get(subject, 0):
            return Blocker(Code.BUDGET, subject_text(subject), now_ms)
    return None


def _closed(calendar: Calendar, duration_s: int, now_ms: int) -> Blocker | None:
    """Return why no opening is long enough for a host, None if one is. See F-7."""
    if any(end - start >= duration_s * 1000 for start, end in calendar.spans):
        return None
    code = Code.WINDOW_TOO_SHORT if calendar.spans else Code.WINDOW
    return Blocker(code, calendar.subject, now_ms)


class PlanningTerms:
    """The terms of a plan: the live state, policy, request and time."""

    def __init__(
        self, state: FleetState, policy: MaintenancePolicy, *, asked: Asked, now_ms: int
    ) -> None:
        """Keep them together."""
        assert asked.duration_s > 0
        self.state, self.policy, self.asked, self.now_ms = state, policy, asked, now_ms
