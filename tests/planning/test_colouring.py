"""Colouring, packing and bounds on graphs whose answers are known, and Ganeti's format."""

from itertools import combinations, permutations

import pytest

from bench.planner import ganeti
from bench.planner.ganeti import Cluster, GanetiTextInvalid, Instance
from forewarn_core.planning.colouring import clique, dsatur, improved, lowest_zero, members
from forewarn_core.planning.difference import difference
from forewarn_core.planning.plan import FleetState
from forewarn_core.planning.planner import plan
from forewarn_core.planning.policy import MaintenancePolicy
from forewarn_core.planning.prng import Prng
from tests.planning.worlds import NOW_MS, everyone, fleet_of

#: Two nodes with a VM each that has its copy on the third one.
CLUSTER = Cluster(
    (("n0", "g"), ("n1", "g"), ("n2", "g"), ("n3", "g")),
    (Instance("i0", 128, "n0", "n2"), Instance("i1", 128, "n1", "n2"), Instance("i2", 64, "n3")),
)


def graph(*edges: tuple[int, int]) -> list[int]:
    """Return the bit sets of a graph."""
    found = [0] * (1 + max(max(edge) for edge in edges))
    for a, b in edges:
        found[a] |= 1 << b
        found[b] |= 1 << a
    return found


def mycielski() -> list[int]:
    """Return the Grötzsch graph: no triangle, and four colours are needed."""
    ring = [(n, (n + 1) % 5) for n in range(5)]
    copies = [edge for a, b in ring for edge in ((a, b + 5), (b, a + 5))]
    return graph(*ring, *copies, *((n, 10) for n in range(5, 10)))


def is_coloured(drawn: list[int], found: list[int]) -> bool:
    """Whether every vertex has a colour that no neighbour has."""
    unlike = (found[v] != found[w] for v, near in enumerate(drawn) for w in members(near))
    return min(found) >= 0 and all(unlike)


@pytest.mark.parametrize(
    ("drawn", "colours", "largest"),
    [
        (graph((0, 1), (1, 2), (2, 3)), 2, 2),
        (graph(*((n, (n + 1) % 5) for n in range(5))), 3, 2),
        (graph((0, 1), (0, 2), (1, 2), (2, 3)), 3, 3),
        (mycielski(), 4, 2),
    ],
    ids=["path", "ring", "triangle", "no triangle"],
)
def test_known_graph_has_its_colours(drawn: list[int], colours: int, largest: int) -> None:
    """Neighbours differ, and no colour is wasted."""
    found, _ = improved(drawn, dsatur(drawn), target=colours, steps=1000, prng=Prng(1))
    assert max(found) + 1 == colours
    assert is_coloured(drawn, found)
    assert len(clique(drawn)) == largest


def test_search_removes_a_wasted_colour() -> None:
    """From one colour for each vertex it comes down to what is needed."""
    drawn = mycielski()
    found, left = improved(drawn, list(range(11)), target=4, steps=5000, prng=Prng(7))
    assert max(found) + 1 == 4
    assert is_coloured(drawn, found)
    assert 0 < left < 5000


@pytest.mark.parametrize("rows", [6, 7])
def test_search_finds_seven_colours_for_queens(rows: int) -> None:
    """Squares on which queens attack each other differ; DSATUR needs two to four colours more."""
    squares = [(row, column) for row in range(rows) for column in range(rows)]
    drawn = graph(
        *(
            (a, b)
            for (a, (row, column)), (b, (other, there)) in combinations(enumerate(squares), 2)
            if row == other or column == there or abs(row - other) == abs(column - there)
        )
    )
    first = dsatur(drawn)
    assert max(first) + 1 > 7
    for seed in range(1, 11):
        found, _ = improved(drawn, first, target=7, steps=2000, prng=Prng(seed))
        assert max(found) + 1 == 7
        assert is_coloured(drawn, found)


def test_bits() -> None:
    """Bit sets say their members and their first gap."""
    assert members(0b10110) == [1, 2, 4]
    assert [lowest_zero(bits) for bits in (0, 1, 0b1011)] == [0, 1, 2]


def test_prng_is_the_same_everywhere() -> None:
    """A seed gives these numbers, whatever the version of Python."""
    prng = Prng(1)
    drawn = [prng.below(1000) for _ in range(5)]
    again = Prng(1)
    assert drawn == [again.below(1000) for _ in range(5)]
    other = Prng(2)
    assert drawn != [other.below(1000) for _ in range(5)]


def test_shuffle_gives_every_order() -> None:
    """Each of three items comes to each place."""
    prng, orders = Prng(1), set[str]()
    for _ in range(100):
        items = list("abc")
        prng.shuffle(items)
        orders.add("".join(items))
    assert orders == set(map("".join, permutations("abc")))


def test_bound_says_its_argument() -> None:
    """A bound is told with what it comes from. Source: F-2."""
    fleet = fleet_of("a", "a", "a", "b")
    found = plan(fleet, FleetState(), MaintenancePolicy(), now_ms=NOW_MS, request=everyone(fleet))
    assert (found.bound.waves, found.bound.argument) == (3, "group a lies in 3 fault domains")


def test_difference_names_what_changed() -> None:
    """Of two plans it says which hosts came, went, moved or are stuck. Source: F-2."""
    fleet = fleet_of("a", "a", "b")
    first = plan(fleet, FleetState(), MaintenancePolicy(), now_ms=NOW_MS, request=everyone(fleet))
    assert difference(first, first).empty
    state = FleetState(failed=("h2",), in_force=first)
    second = plan(fleet, state, MaintenancePolicy(), now_ms=NOW_MS + 1000, request=everyone(fleet))
    found = difference(first, second)
    assert (found.removed, found.blocked, found.added) == (("h2",), ("h2",), ())
    assert [(each.host, each.to_ms - each.from_ms) for each in found.changed] == [
        ("h0", 1000),
        ("h1", 1000),
    ]


def test_cluster_is_read_as_it_was_written() -> None:
    """Ganeti's text gives the same cluster again."""
    assert ganeti.read(CLUSTER.text()) == CLUSTER


def test_cluster_keeps_copies_apart() -> None:
    """VMs that would come up on one node are never down together, nor with that node."""
    fleet = CLUSTER.fleet()
    found = plan(fleet, FleetState(), MaintenancePolicy(), now_ms=NOW_MS, request=everyone(fleet))
    assert sorted(len(wave.hosts) for wave in found.waves) == [1, 1, 2]
    text = ganeti.groups_text(tuple(wave.hosts for wave in found.waves))
    assert len(text.splitlines()) == 3


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("\n\n", "\n", 1),
        ("n0|1000000|", "n0|", 3),
        ("i0|128|", "i0|x|", 8),
        ("Y|n0|n2", "Y|n0|n9", 8),
        ("Y|n0|n2", "Y|n0|n0", 8),
    ],
)
def test_text_that_is_not_ganetis_is_refused(old: str, new: str, line: int) -> None:
    """A text in another format is refused with its line."""
    with pytest.raises(GanetiTextInvalid, match=f"line {line}:"):
        ganeti.read(CLUSTER.text().replace(old, new))
