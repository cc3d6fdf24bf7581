"""Makes a plan from fleet, live state, policy, time and a request; pure and deterministic.

Source: F-2, F-3. `plan.py` defines the parts of a plan; `checker.py` checks plans.
"""

from __future__ import annotations

from forewarn_base.values import replace
from forewarn_core.planning.bound import bound_of, together
from forewarn_core.planning.eligible import Calendar, Calendars, PlanningTerms, split_eligible
from forewarn_core.planning.fleet import Fleet, Index
from forewarn_core.planning.limits import BudgetLimits
from forewarn_core.planning.moving import MovingPlan, Part
from forewarn_core.planning.occupied import Occupied, live_work
from forewarn_core.planning.packing import Problem, classes_of, first_fit, packed
from forewarn_core.planning.plan import FleetState, Plan, PlanRequest, WaveBound, content_id
from forewarn_core.planning.policy import MaintenancePolicy
from forewarn_core.planning.prng import Prng
from forewarn_core.planning.sites import Batch
from forewarn_core.planning.timing import Timetable
from forewarn_core.rules.blockers import Blocker
from forewarn_core.rules.budget import BUDGET
from forewarn_core.rules.previous_wave import PREVIOUS_WAVE

#: Plans made again at most to see which chosen starts can be kept; the last one keeps none.
_CHOICE_TRIES = 4
#: Hosts examined per canary host to find hosts that may share a wave.
_CANARY_CANDIDATES = 50


def plan(
    fleet: Fleet, state: FleetState, policy: MaintenancePolicy, *, now_ms: int, request: PlanRequest
) -> Plan:
    """Return the plan of a maintenance: all its hosts, each with its wave or its blocker.

    Hosts of the plan in force stay together in their waves if possible.

    A host whose chosen start cannot be kept waits for its hand-back deadline. Source: T-2, T-3.

    Cost: grows with VMs and hosts; then `request.steps` bounds the work that saves waves.
    """
    kept, planned = request, _planned(fleet, state, policy, now_ms=now_ms, request=request)
    for tries_left in reversed(range(_CHOICE_TRIES)):
        displaced = _displaced(planned)
        if not displaced:
            break
        hand_backs = (
            each.without_choice()
            if each.otherwise_ms and (each.host in displaced or not tries_left)
            else each
            for each in kept.hand_backs
        )
        kept = replace(kept, hand_backs=tuple(hand_backs))
        planned = _planned(fleet, state, policy, now_ms=now_ms, request=kept)
    return replace(planned, request=request)


def _displaced(planned: Plan) -> set[str]:
    """Return the hosts that a plan has neither at their chosen start nor after their deadline.

    Work whose VMs approve early begins at the earliest start of its entry.
    """
    chosen = {each.host: each for each in planned.request.hand_backs if each.otherwise_ms}
    return {
        entry.host
        for entry in (planned.entries if chosen else ())
        if entry.host in chosen
        and not chosen[entry.host].allows(entry.earliest_start_ms, entry.latest_start_ms)
    }


def _planned(
    fleet: Fleet, state: FleetState, policy: MaintenancePolicy, *, now_ms: int, request: PlanRequest
) -> Plan:
    terms = PlanningTerms(state, policy, request=request, now_ms=now_ms)
    return _Planning(Index(fleet, request.exemption), terms).plan()


class _Planning:
    """One plan in progress."""

    def __init__(self, index: Index, terms: PlanningTerms) -> None:
        self._index, self._terms = index, terms
        waived = terms.request.exemption.waives(BUDGET)
        asked_budgets = () if waived else terms.request.budgets
        self._limits = BudgetLimits(index, (*terms.policy.budgets, *asked_budgets))
        self._occupied = Occupied(index, self._limits, live_work(terms.state))
        self._calendars = Calendars(terms.policy, terms.request, now_ms=terms.now_ms, index=index)
        self._moves = MovingPlan(
            index, self._limits, occupied=self._occupied, calendars=self._calendars, terms=terms
        )
        self._prng = Prng(terms.request.seed)
        #: A plan from before the waivers kept apart what need not be kept apart.
        self._before = {} if terms.request.exemption.waived else _waves_before(terms.state)
        #: Hosts that share a calendar, and their bound.
        self._bounds: list[tuple[list[int], WaveBound]] = []

    def plan(self) -> Plan:
        """Put the hosts that can be done into waves, and schedule the waves."""
        terms = self._terms
        hosts, blocked = split_eligible(
            self._index, self._occupied, self._limits, calendars=self._calendars, terms=terms
        )
        batches, stuck = self._batches(hosts)
        table = Timetable(self._index, self._limits, occupied=self._occupied, terms=terms)
        table.add_all(batches, dependent=bool(terms.request.move_s))
        entries = tuple(sorted(table.entries, key=lambda each: (each.wave, each.host)))
        everything = _since(
            terms.state, sorted([*blocked, *stuck, *table.late], key=lambda b: b[0])
        )
        parent = terms.state.in_force.id if terms.state.in_force else ""
        assert len({entry.host for entry in entries}) == len(entries)
        return Plan(
            content_id(
                parent,
                terms.now_ms,
                entries=entries,
                blocked=everything,
                seed=terms.request.seed,
            ),
            parent,
            terms.now_ms,
            terms.request,
            entries,
            everything,
            tuple(table.waves),
            self._bound(table),
            tuple(self._limits.limit.items()),
            terms.learned,
        )

    def _batches(
        self, hosts: list[tuple[Calendar, list[int]]]
    ) -> tuple[list[Batch], list[tuple[str, Blocker]]]:
        """Return the waves, canaries first, and the hosts whose VMs fit nowhere."""
        canaries = self._canaries(hosts)
        if canaries is None:
            waits = Blocker(PREVIOUS_WAVE, "the canary wave", self._terms.now_ms)
            names = self._index.fleet.hosts
            return [], [(names[host].name, waits) for _, each in hosts for host in each]
        parts = [
            (calendar, [host for host in of_calendar if (host in canaries) is canary], canary)
            for canary in (True, False)
            for calendar, of_calendar in hosts
        ]
        parts = [part for part in parts if part[1]]
        if not self._terms.request.move_s:
            return [batch for part in parts for batch in self._still(*part)], []
        return self._moving(parts)

    def _still(self, calendar: Calendar, hosts: list[int], canary: bool) -> list[Batch]:  # noqa: FBT001
        return [
            Batch([hosts[place] for place in places], calendar, canary)
            for places in self._classes(hosts)
        ]

    def _classes(self, hosts: list[int]) -> list[list[int]]:
        """Return positions of hosts by wave, as if all VMs stayed; store the bound."""
        problem = Problem(self._index, self._limits, hosts, occupied=self._occupied)
        bound = bound_of(problem)
        self._bounds.append((hosts, bound))
        names = self._index.fleet.hosts
        before = [self._before.get(names[host].name, -1) for host in hosts]
        if max(before) >= 0:
            return classes_of(_stable_waves(problem, before))
        return classes_of(
            packed(problem, bound.waves, steps=self._terms.request.steps, prng=self._prng)
        )

    def _moving(self, parts: list[Part]) -> tuple[list[Batch], list[tuple[str, Blocker]]]:
        parts.sort(key=lambda part: (not part[2], _opens_ms(part[0])))
        guided = [(calendar, self._guided(hosts), canary) for calendar, hosts, canary in parts]
        batches, stuck = self._moves.batches(guided)
        names = self._index.fleet.hosts
        return batches, [(names[host].name, blocker) for host, blocker in stuck]

    def _guided(self, hosts: list[int]) -> list[int]:
        """Return hosts in order of their waves as if all VMs stayed.

        A first plan has hosts without VMs first: once they are done, VMs may stay on them.
        """
        guided = [hosts[place] for places in self._classes(hosts) for place in places]
        if self._terms.state.in_force is None and not self._terms.request.return_s:
            guided.sort(key=lambda host: bool(self._index.groups_on[host]))
        return guided

    def _bound(self, table: Timetable) -> WaveBound:
        """Return the bound for the hosts that have a wave."""
        if not table.waves:
            wanted = set(self._terms.request.hosts).difference(self._terms.state.done)
            return WaveBound(0, "no host can be done now") if wanted else together([])
        if self._terms.request.move_s:
            return WaveBound(1, "moves of VMs change which hosts conflict")
        late = {self._index.number[name] for name, _ in table.late}
        bounds = []
        for hosts, bound in self._bounds:
            if not late.isdisjoint(hosts):
                left = [host for host in hosts if host not in late]
                problem = Problem(self._index, self._limits, left, occupied=self._occupied)
                bound = bound_of(problem)
            bounds.append(bound)
        return together(bounds)

    def _canaries(self, hosts: list[tuple[Calendar, list[int]]]) -> set[int] | None:
        """Return the hosts of the canary wave; None if no named host can be done.

        A plan that has begun needs no canary wave.
        """
        state, request, number = self._terms.state, self._terms.request, self._index.number
        hosts = [each for each in hosts if not each[0].after]  # an owner's test comes first
        able = {host for _, of_calendar in hosts for host in of_calendar}
        if state.done or not able:
            return set()
        if request.canary_hosts:
            return {number[name] for name in request.canary_hosts if name in number} & able or None
        waves = state.in_force.waves if state.in_force else ()
        before = {number[host] for wave in waves if wave.canary for host in wave.hosts} & able
        return before or self._new_canaries(hosts)

    def _new_canaries(self, hosts: list[tuple[Calendar, list[int]]]) -> set[int]:
        """Return the first hosts that may share a wave, of the calendar that opens first."""
        count = self._terms.policy.canary_count
        for calendar, of_calendar in sorted(hosts, key=lambda each: _opens_ms(each[0])):
            if count and (wave := self._wave_of(of_calendar, calendar)):
                return set(wave[:count])
        return set()

    def _wave_of(self, hosts: list[int], calendar: Calendar) -> list[int]:
        """Return hosts that may share a wave, earlier ones preferred."""
        if self._terms.request.move_s:
            return self._moves.first_wave(hosts, calendar)
        first = hosts[: self._terms.policy.canary_count * _CANARY_CANDIDATES]
        problem = Problem(self._index, self._limits, first, occupied=self._occupied)
        return [first[place] for place in classes_of(first_fit(problem, range(len(first))))[0]]


def _opens_ms(calendar: Calendar) -> int:
    """Return when a calendar first opens, with postponements and hand-back deadlines."""
    return max(calendar.spans[0][0], calendar.not_before_ms, calendar.hand_back_ms)


def _stable_waves(problem: Problem, before: list[int]) -> list[int]:
    """Return a wave for each position: the old wave if it still fits, else another with room."""
    order = sorted(range(len(before)), key=lambda place: (before[place] < 0, before[place], place))
    numbers = sorted({wave for wave in before if wave >= 0})
    rank = {wave: place for place, wave in enumerate(numbers)}
    return first_fit(problem, order, [rank.get(wave, -1) for wave in before])


def _waves_before(state: FleetState) -> dict[str, int]:
    """Return the wave of each host in the plan in force."""
    if state.in_force is None:
        return {}
    return {host: wave.number for wave in state.in_force.waves for host in wave.hosts}


def _since(
    state: FleetState, blocked: list[tuple[str, Blocker]]
) -> tuple[tuple[str, Blocker], ...]:
    """Return the blockers; a blocker of the previous plan retains the start of its wait."""
    before = dict(state.in_force.blocked) if state.in_force else {}
    blockers = []
    for host, blocker in blocked:
        old = before.get(host)
        if old and (old.code, old.subject) == (blocker.code, blocker.subject):
            blocker = Blocker(old.code, old.subject, old.since_ms, blocker.clears_ms)
        blockers.append((host, blocker))
    return tuple(blockers)
