"""Colouring of small graphs: DSATUR, a tabu search for one colour less, and a greedy clique.

A graph is a list of bit sets: bit w of set v means that v and w need different colours.
"""

from __future__ import annotations

from forewarn_core.planning.prng import Prng

#: Maximum vertices for these algorithms; beyond, bit sets grow long and DSATUR is quadratic.
VERTICES_MAX = 2000
#: A vertex may not get a lost colour back for this many moves, plus a random number up to this,
#: plus 0.6 for each uncoloured vertex. From Blöchliger and Zufferey's PartialCol.
_TENURE = 10
#: Pairs of vertex and colour compared per step; larger choices cost more steps.
_CHEAP_CHOICES = 500
#: Start vertices of the clique search.
_CLIQUE_STARTS = 40


def dsatur(adjacent: list[int]) -> list[int]:
    """Return a colour for each vertex; vertices with most coloured neighbours come first."""
    count = len(adjacent)
    assert count <= VERTICES_MAX, count
    colours, seen = [-1] * count, [0] * count
    degree = [bits.bit_count() for bits in adjacent]
    left = set(range(count))
    while left:
        vertex = max(left, key=lambda each: (seen[each].bit_count(), degree[each], -each))
        left.remove(vertex)
        colour = lowest_zero(seen[vertex])
        colours[vertex] = colour
        for other in members(adjacent[vertex]):
            seen[other] |= 1 << colour
    return colours


def improved(
    adjacent: list[int], colours: list[int], *, target: int, steps: int, prng: Prng
) -> tuple[list[int], int]:
    """Return a colouring with fewer colours if one exists within the steps, and the steps left.

    Args:
        adjacent: the graph.
        colours: a valid colouring.
        target: stop at this number of colours.
        steps: moves of the search, over all numbers of colours tried.
        prng: source of randomness, for ties.
    """
    while steps > 0 and (used := max(colours, default=-1) + 1) > target:
        search = _PartialColouring(adjacent, colours, used - 1)
        steps = search.run(steps, prng)
        if search.outside:
            break
        colours = search.colours()
    return colours, steps


class _PartialColouring:
    """A partial colouring; colouring a vertex removes this colour from its neighbours."""

    def __init__(self, adjacent: list[int], colours: list[int], count: int) -> None:
        self._adjacent = adjacent
        self._classes = [0] * count
        self._tabu = [[0] * count for _ in adjacent]
        #: Uncoloured vertex -> for each colour, the number of neighbours with this colour.
        self.outside: dict[int, list[int]] = {}
        for vertex, colour in enumerate(colours):
            if colour < count:
                self._classes[colour] |= 1 << vertex
        for vertex, colour in enumerate(colours):
            if colour >= count:
                self._put_outside(vertex)

    def run(self, steps: int, prng: Prng) -> int:
        """Move until every vertex has a colour or no step is left; return the steps left."""
        now = 0
        while self.outside and now < steps:
            now += 1 + len(self.outside) * len(self._classes) // _CHEAP_CHOICES
            self._move(*self._best(now, prng), now, prng)
        return max(0, steps - now)

    def colours(self) -> list[int]:
        """Return the colour of each vertex of a complete colouring."""
        assert not self.outside
        colour_of = [-1] * len(self._adjacent)
        for colour, vertices in enumerate(self._classes):
            for vertex in members(vertices):
                colour_of[vertex] = colour
        return colour_of

    def _best(self, now: int, prng: Prng) -> tuple[int, int]:
        """Return the best vertex and colour that are not tabu, ties at random."""
        least, candidates = len(self._adjacent) + 1, [(-1, -1)]
        for vertex, costs in self.outside.items():
            if min(costs) > least:
                continue
            tabu = self._tabu[vertex]
            for colour, cost in enumerate(costs):
                if cost <= least and tabu[colour] < now:
                    if cost < least:
                        least, candidates = cost, [(vertex, colour)]
                    else:
                        candidates.append((vertex, colour))
        if candidates[0][0] < 0:  # all moves are tabu
            vertices = list(self.outside)
            return vertices[prng.below(len(vertices))], prng.below(len(self._classes))
        return candidates[prng.below(len(candidates))]

    def _move(self, vertex: int, colour: int, now: int, prng: Prng) -> None:
        out = self._classes[colour] & self._adjacent[vertex]
        self._classes[colour] = (self._classes[colour] ^ out) | 1 << vertex
        del self.outside[vertex]
        until = now + len(self.outside) * 6 // 10 + prng.below(_TENURE)
        for other in members(out):
            self._tabu[other][colour] = until
            self._put_outside(other)
        members_now = self._classes[colour]
        for other, costs in self.outside.items():
            costs[colour] = (members_now & self._adjacent[other]).bit_count()

    def _put_outside(self, vertex: int) -> None:
        near = self._adjacent[vertex]
        self.outside[vertex] = [(each & near).bit_count() for each in self._classes]


def clique(adjacent: list[int]) -> list[int]:
    """Return a clique: vertices that are all adjacent, as many as a greedy search reaches."""
    degree = [bits.bit_count() for bits in adjacent]
    starts = sorted(range(len(adjacent)), key=lambda each: (-degree[each], each))[:_CLIQUE_STARTS]
    best: list[int] = []
    for start in starts:
        members_so_far, left = [start], adjacent[start]
        while left:
            chosen = max(
                members(left), key=lambda each: ((adjacent[each] & left).bit_count(), -each)
            )
            members_so_far.append(chosen)
            left &= adjacent[chosen]
        if len(members_so_far) > len(best):
            best = members_so_far
    return sorted(best)


def lowest_zero(bits: int) -> int:
    """Return the position of the lowest bit that is not set."""
    return (~bits & (bits + 1)).bit_length() - 1


def members(bits: int) -> list[int]:
    """Return the positions of the set bits, ascending."""
    numbers = []
    while bits:
        low = bits & -bits
        numbers.append(low.bit_length() - 1)
        bits ^= low
    return numbers
