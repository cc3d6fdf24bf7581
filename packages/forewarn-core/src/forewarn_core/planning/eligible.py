"""Separates the hosts that can be done, by calendar, from the hosts with a blocker."""

from __future__ import annotations

from collections.abc import Iterable

from forewarn_base.values import value
from forewarn_core.planning.durations import learned
from forewarn_core.planning.fleet import FleetHost, Index
from forewarn_core.planning.limits import BudgetLimits
from forewarn_core.planning.occupied import Occupied
from forewarn_core.planning.plan import FleetState, PlanRequest
from forewarn_core.planning.policy import MaintenancePolicy, subject_text
from forewarn_core.rules.blockers import Blocker
from forewarn_core.rules.budget import BUDGET
from forewarn_core.rules.exempt import policy_for
from forewarn_core.rules.local_time import SPANS_DAYS_MAX, Span, group_word
from forewarn_core.rules.other_waits import DEADLINE, HOST_FAILED, UNKNOWN_HOST
from forewarn_core.rules.window import FREEZE, WINDOW, WINDOW_TOO_SHORT

#: How far ahead to search for openings, unless a deadline comes first.
HORIZON_MS = SPANS_DAYS_MAX * 86_400_000


@value
class Calendar:
    """When certain hosts may be worked on; hosts with different calendars never share a wave."""

    #: Names of the windows for these hosts.
    windows: tuple[str, ...] = ()
    not_before_ms: int = 0
    #: The principal who requested the postponement.
    postponed_by: str = ""
    #: Hand-back deadline of declared work or the time that its owners chose, and what that is.
    hand_back_ms: int = 0
    hand_back: str = ""
    spans: tuple[Span, ...] = ()
    #: The failure domain of the hosts, where the maintenance works on one at a time. Source: T-12.
    failure_domain: str = ""
    #: Numbers of the orders in which the hosts come first, and of those in which they come after.
    first: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    @property
    def subject(self) -> str:
        """Names of the windows, for a sentence."""
        return f"window {', '.join(self.windows)}" if self.windows else FREEZE


class Calendars:
    """The calendar of each host, cached by zone, rack and labels."""

    def __init__(
        self, policy: MaintenancePolicy, request: PlanRequest, *, now_ms: int, index: Index
    ) -> None:
        """Store the inputs of calendars."""
        self._policy = policy
        self._index = index
        named = {group for window in policy.windows for group in window.groups or ()}
        groups = enumerate(index.fleet.groups)
        #: Group that a window names -> its pair for window matching.
        self._group_words = {n: group_word(each.name) for n, each in groups if each.name in named}
        self._span = (now_ms, min(request.deadline_ms or now_ms + HORIZON_MS, now_ms + HORIZON_MS))
        self._postponed = {
            host: (at_ms, by) for host, at_ms, by in request.postponed if at_ms > now_ms
        }
        self._hand_backs = {
            each.host: (each.at_ms, each.subject)
            for each in request.hand_backs
            if each.at_ms > now_ms
        }
        self._domain = f"{request.failure_domain}=" if request.failure_domain else ""
        #: Host -> numbers of the orders in which it comes first, and of those in which after.
        self._first: dict[str, tuple[int, ...]] = {}
        self._after: dict[str, tuple[int, ...]] = {}
        for number, order in enumerate(request.orders):
            for places, hosts in ((self._first, order.first), (self._after, order.after)):
                for host in hosts:
                    places[host] = (*places.get(host, ()), number)
        self._known: dict[object, Calendar] = {}

    @property
    def by_group(self) -> bool:
        """Whether windows name groups of the fleet, so that moves change the calendars of hosts."""
        return bool(self._group_words)

    def of(self, number: int, groups_on: Iterable[int]) -> Calendar:
        """Return the calendar of a host with VMs of these groups."""
        host = self._index.fleet.hosts[number]
        groups: frozenset[str] = frozenset()
        if self._group_words:
            on_host = self._group_words.keys() & set(groups_on)
            groups = frozenset(self._group_words[each] for each in on_host)
        place = (host.zone, host.rack, host.labels, groups)
        apart = (
            failure_domain_of(host, self._domain),
            self._first.get(host.name, ()),
            self._after.get(host.name, ()),
        )
        times = (
            *self._postponed.get(host.name, (0, "")),
            *self._hand_backs.get(host.name, (0, "")),
        )
        calendar = self._known.get((place, times, apart))
        if calendar is None:
            calendar = self._made(host.words | groups, times, apart)
            self._known[place, times, apart] = calendar
        return calendar

    def _made(
        self,
        words: frozenset[str],
        times: tuple[int, str, int, str],
        apart: tuple[str, tuple[int, ...], tuple[int, ...]],
    ) -> Calendar:
        windows = self._policy.windows_of(words)
        names = tuple(window.label for window in windows)
        key = (windows, times, apart)
        if key not in self._known:
            spans = self._policy.open_spans_of(words, self._span)
            self._known[key] = Calendar(names, *times, spans, *apart)
        return self._known[key]


def failure_domain_of(host: FleetHost, prefix: str) -> str:
    """Return the failure domain of a host, such as `rack=r7` with the prefix `rack=`.

    Empty: the prefix is, or the host has no such label.
    """
    return next((each for each in host.words if each.startswith(prefix)), "") if prefix else ""


def split_eligible(
    index: Index,
    occupied: Occupied,
    limits: BudgetLimits,
    *,
    calendars: Calendars,
    terms: PlanningTerms,
) -> tuple[list[tuple[Calendar, list[int]]], list[tuple[str, Blocker]]]:
    """Return the hosts that can be done by calendar, and other hosts with their blockers."""
    blocked: list[tuple[str, Blocker]] = []
    # Calendars are shared objects, so that hosts are compared by identity rather than by spans.
    by_identity: dict[int, tuple[Calendar, list[int]]] = {}
    for name in sorted(set(terms.request.hosts).difference(terms.state.done)):
        host = index.number.get(name)
        if host is None:
            blocked.append((name, Blocker(UNKNOWN_HOST, name, terms.now_ms)))
            continue
        calendar = calendars.of(host, index.groups_on[host])
        blocker = _blocker(index, occupied, limits, host=host, now_ms=terms.now_ms)
        blocker = blocker or closed(calendar, terms, terms.host_ms(index.fleet.hosts[host]))
        if blocker:
            blocked.append((name, blocker))
        else:
            by_identity.setdefault(id(calendar), (calendar, []))[1].append(host)
    return list(by_identity.values()), blocked


def _blocker(
    index: Index, occupied: Occupied, limits: BudgetLimits, *, host: int, now_ms: int
) -> Blocker | None:
    """Return the blocker of a host without a known end."""
    groups = index.groups_on[host]
    for _, ends_ms, code, operation in occupied.until(host, groups):
        if not ends_ms:
            failed = operation == f"the failure of host {index.fleet.hosts[host].name}"
            return Blocker(HOST_FAILED if failed else code, operation, now_ms)
    for subject, amount in occupied.amounts(host, groups):
        if amount > limits.limit[subject] - occupied.taken.get(subject, 0):
            return Blocker(BUDGET, subject_text(subject), now_ms)
    return None


def closed(calendar: Calendar, terms: PlanningTerms, length_ms: int) -> Blocker | None:
    """Return the blocker of a host without a long enough opening, or None. See F-7."""
    deadline_ms = terms.request.deadline_ms
    if any(end - start >= length_ms for start, end in calendar.spans):
        return None
    if deadline_ms and deadline_ms - terms.now_ms < length_ms:
        return Blocker(DEADLINE, "the duration of its work", terms.now_ms)
    if deadline_ms and calendar.spans and calendar.spans[-1][1] >= deadline_ms:
        return Blocker(DEADLINE, calendar.subject, terms.now_ms)
    code = WINDOW_TOO_SHORT if calendar.spans else WINDOW
    return Blocker(code, calendar.subject, terms.now_ms)


class PlanningTerms:
    """The inputs of a plan: live state, policy, request and time."""

    def __init__(
        self, state: FleetState, policy: MaintenancePolicy, *, request: PlanRequest, now_ms: int
    ) -> None:
        """Store the inputs.

        `policy`: its notice has the time to announce the waves, which no emergency waives.
        """
        assert request.duration_s > 0
        self.state, self.applied, self.request, self.now_ms = state, policy, request, now_ms
        #: The policy as it binds the work.
        self.policy = policy_for(policy, request.exemption)
        self.learned = learned(state.samples, policy)
        self._learned_s = {each.label: each.duration_s for each in self.learned}

    def host_ms(self, host: FleetHost) -> int:
        """Return how long a host is under work, its VMs' moves included, in ms. Source: F-9."""
        request, work_s = self.request, self.request.duration_s
        if self._learned_s:
            labels = (each for each in ("", *host.words) if each in self._learned_s)
            work_s = next((self._learned_s[each] for each in labels), work_s)
        return (request.move_s + work_s + request.return_s) * 1000
