"""Builds waves of hosts whose VMs stay: first fit over bit sets, then repeated improvement.

Each wave is one bit. A host may not join waves that disturb one of its groups in another fault
domain (G-1), or waves in which a limit has no room for the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from forewarn_core.planning import colouring
from forewarn_core.planning.colouring import lowest_zero
from forewarn_core.planning.fleet import Index
from forewarn_core.planning.limits import BudgetLimits
from forewarn_core.planning.occupied import Occupied
from forewarn_core.planning.policy import Subject
from forewarn_core.planning.prng import Prng

#: The search ends after this many successive orders without a saved wave. Otherwise a few hosts
#: could be fitted tens of thousands of times.
FRUITLESS_MAX = 1000


class Problem:
    """A set of hosts, by position, with the rules that forbid two hosts in one wave.

    Cost: grows with the groups on the hosts; limits above the demand are left out.
    """

    def __init__(
        self, index: Index, limits: BudgetLimits, hosts: Sequence[int], *, occupied: Occupied
    ) -> None:
        """Number the rules that apply, beside other work."""
        self.index = index
        self.hosts = tuple(hosts)
        #: Position -> number of its fault domain.
        self.zones = [index.guarded_zone[host] for host in self.hosts]
        self._components: list[list[int]] | None = None
        self._number_slots()
        self._number_limits(limits, occupied)

    def _number_slots(self) -> None:
        """Number each pair of group and fault domain, for groups in more than one domain."""
        zones_of: dict[int, set[int]] = {}
        for host, zone in zip(self.hosts, self.zones, strict=True):
            for group in self.index.groups_on[host]:
                zones_of.setdefault(group, set()).add(zone)
        #: Local number of a group -> its number in the fleet.
        self.groups = [group for group, zones in zones_of.items() if len(zones) > 1]
        local = {group: number for number, group in enumerate(self.groups)}
        slot_of: dict[tuple[int, int], int] = {}
        #: Slot -> its group; a slot is one group in one fault domain.
        self.group_of_slot: list[int] = []
        #: Position of a host -> its slots.
        self.slots: list[list[int]] = []
        for host, zone in zip(self.hosts, self.zones, strict=True):
            slots = []
            for group in self.index.groups_on[host]:
                if group not in local:
                    continue
                slot = slot_of.setdefault((group, zone), len(slot_of))
                if slot == len(self.group_of_slot):
                    self.group_of_slot.append(local[group])
                slots.append(slot)
            self.slots.append(slots)

    def _number_limits(self, limits: BudgetLimits, occupied: Occupied) -> None:
        """Select the limits that do not have room for all hosts at once."""
        wanted: dict[Subject, int] = {}
        amounts = [occupied.amounts(host, self.index.groups_on[host]) for host in self.hosts]
        for of_host in amounts:
            for subject, amount in of_host:
                wanted[subject] = wanted.get(subject, 0) + amount
        room = {each: limits.limit[each] - occupied.taken.get(each, 0) for each in wanted}
        #: Number of the limit -> its subject.
        self.subjects = [each for each, total in wanted.items() if total > room[each]]
        #: Number of the limit -> the amount that may be disturbed at once.
        self.room = [room[each] for each in self.subjects]
        number = {each: n for n, each in enumerate(self.subjects)}
        #: Position -> shares in limits: (number of the limit, amount).
        self.amounts = [
            [(number[each], amount) for each, amount in of_host if each in number]
            for of_host in amounts
        ]

    def components(self) -> list[list[int]]:
        """Return sets of positions that no group connects, each ascending; cached."""
        if self._components is None:
            self._components = self._connected()
        return self._components

    def _connected(self) -> list[list[int]]:
        root = list(range(len(self.hosts)))

        def find(place: int) -> int:
            while root[place] != place:
                root[place] = root[root[place]]
                place = root[place]
            return place

        first: dict[int, int] = {}
        for place, slots in enumerate(self.slots):
            for slot in slots:
                other = first.setdefault(self.group_of_slot[slot], place)
                if root[other] != root[place]:
                    a, b = find(other), find(place)
                    root[max(a, b)] = min(a, b)
        neighbours: dict[int, list[int]] = {}
        for place in range(len(root)):
            neighbours.setdefault(find(place), []).append(place)
        return list(neighbours.values())

    def graph(self, places: Sequence[int]) -> list[int]:
        """Return for each position the bit set of conflicting positions."""
        of_slot: dict[int, int] = {}
        of_group: dict[int, int] = {}
        for bit, place in enumerate(places):
            for slot in self.slots[place]:
                group = self.group_of_slot[slot]
                of_slot[slot] = of_slot.get(slot, 0) | 1 << bit
                of_group[group] = of_group.get(group, 0) | 1 << bit
        edges = []
        for place in places:
            near = 0
            for slot in self.slots[place]:
                near |= of_group[self.group_of_slot[slot]] & ~of_slot[slot]
            edges.append(near)
        return edges


def first_fit(
    problem: Problem, order: Iterable[int], wanted: Sequence[int] | None = None
) -> list[int]:
    """Assign each position, in the given order, to the first wave with room; waves start at 0.

    Args:
        problem: the positions.
        order: every position once.
        wanted: the preferred wave of each position; -1 for the first with room.
    """
    waves = [-1] * len(problem.hosts)
    of_group = [0] * len(problem.groups)
    of_slot = [0] * len(problem.group_of_slot)
    full = [0] * len(problem.room)
    used: list[list[int]] = [[] for _ in problem.room]
    group_of_slot = problem.group_of_slot
    for place in order:
        slots, amounts = problem.slots[place], problem.amounts[place]
        closed = 0
        for slot in slots:
            closed |= of_group[group_of_slot[slot]] & ~of_slot[slot]
        for limit, amount in amounts:
            closed |= (
                full[limit] if amount == 1 else _full(used[limit], problem.room[limit], amount)
            )
        wave = wanted[place] if wanted else -1
        if wave < 0 or closed >> wave & 1:
            wave = lowest_zero(closed)
        waves[place] = wave
        for slot in slots:
            of_slot[slot] |= 1 << wave
            of_group[group_of_slot[slot]] |= 1 << wave
        for limit, amount in amounts:
            counts = used[limit]
            if len(counts) <= wave:
                counts += [0] * (wave + 1 - len(counts))
            counts[wave] += amount
            if counts[wave] >= problem.room[limit]:
                full[limit] |= 1 << wave
    return waves


def _full(counts: list[int], room: int, amount: int) -> int:
    """Return the waves in which a limit has no room for an amount above one."""
    assert amount <= room, (amount, room)
    closed = 0
    for wave, count in enumerate(counts):
        if count + amount > room:
            closed |= 1 << wave
    return closed


def packed(problem: Problem, target: int, *, steps: int, prng: Prng) -> list[int]:
    """Return a wave for each position, from 0; more steps find fewer waves.

    Args:
        problem: the places.
        target: the lower bound on waves, where the search stops.
        steps: positions assigned or exchanged after the first solutions.
        prng: source of randomness, for ties.
    """
    size = len(problem.hosts)
    places = range(size)
    orders = [
        # Within a fault domain, hosts with few conflicts come last, as they fit into existing
        # waves.
        sorted(places, key=lambda place: (problem.zones[place], -len(problem.slots[place]), place)),
        sorted(places, key=lambda place: (-len(problem.slots[place]), place)),
    ]
    colours, left = _coloured(problem, target, steps, prng)
    if colours:
        orders.insert(0, sorted(places, key=lambda place: (colours[place], place)))
    best = first_fit(problem, orders[0])
    for order in orders[1:]:
        if count_of(best) > target:
            best = min(best, first_fit(problem, order), key=count_of)
    return _repacked(problem, best, target=target, steps=left, prng=prng)


def _repacked(
    problem: Problem, waves: list[int], *, target: int, steps: int, prng: Prng
) -> list[int]:
    """Fit wave by wave in another order, which often needs fewer waves and never more.

    This is Culberson's iterated greedy. It requires that every part of a valid wave is valid, as
    with G-1 and limits.
    """
    turn = fruitless = 0
    while count_of(waves) > target and steps >= len(waves) and fruitless < FRUITLESS_MAX:
        steps -= len(waves)
        again = first_fit(problem, _reordered(waves, turn, prng))
        assert count_of(again) <= count_of(waves)
        fruitless = fruitless + 1 if count_of(again) == count_of(waves) else 0
        waves, turn = again, turn + 1
    return waves


def _reordered(waves: list[int], turn: int, prng: Prng) -> list[int]:
    """Return all positions wave by wave: last wave first, largest first, or at random."""
    classes = classes_of(waves)
    if turn % 3 == 0:
        classes.reverse()
    elif turn % 3 == 1:
        classes.sort(key=len, reverse=True)
    else:
        prng.shuffle(classes)
    return [place for each in classes for place in each]


def _coloured(problem: Problem, target: int, steps: int, prng: Prng) -> tuple[list[int], int]:
    """Return a colour for each position, ignoring limits, and the steps left; empty: too large."""
    colours = [0] * len(problem.hosts)
    parts = [part for part in problem.components() if len(part) > 1]
    if any(len(part) > colouring.VERTICES_MAX for part in parts):
        return [], steps
    classes = []
    for part in parts:
        graph = problem.graph(part)
        classes.append((part, graph, colouring.dsatur(graph)))
    # The part with most colours sets the number of waves; the other parts follow.
    classes.sort(key=lambda each: -max(each[2]))
    goal = target
    for part, graph, of_part in classes:
        if max(of_part) + 1 > goal:
            of_part, steps = colouring.improved(graph, of_part, target=goal, steps=steps, prng=prng)
            goal = max(goal, max(of_part) + 1)
        for place, colour in zip(part, of_part, strict=True):
            colours[place] = colour
    return colours, steps


def count_of(waves: list[int]) -> int:
    """Return the number of waves."""
    return max(waves, default=-1) + 1


def classes_of(waves: Sequence[int]) -> list[list[int]]:
    """Return the positions of each wave."""
    classes: list[list[int]] = [[] for _ in range(max(waves, default=-1) + 1)]
    for place, wave in enumerate(waves):
        classes[wave].append(place)
    return [each for each in classes if each]
