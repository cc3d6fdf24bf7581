"""Every interleaving in small worlds, as many as take seconds; `make explore` visits the rest."""

import pytest

from tests.simulator.exploration.explorer import Explorer
from tests.simulator.exploration.worlds import WORLDS, SmallWorld

STATES = 1500


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_small_world_keeps_every_promise(world: SmallWorld) -> None:
    """No order of requests, reads, approvals, crashes and time breaks a promise. Source: L-7."""
    found = Explorer(world).explore(STATES)
    assert found.violation is None, "\n".join([str(found.violation), *found.path])
    assert found.states >= STATES
    assert found.refused


def test_exploration_is_repeatable() -> None:
    """The same world gives the same states, moves and steps."""
    one, other = (Explorer(WORLDS[0]).explore(500) for _ in range(2))
    assert (one.states, one.moves, one.steps) == (other.states, other.moves, other.steps)
