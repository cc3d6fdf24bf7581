"""Visits every state of a small world, breadth first, and tells what led to a broken promise."""

import time
from dataclasses import dataclass, field

from tests.simulator.exploration.moves import Moves
from tests.simulator.exploration.points import Point
from tests.simulator.exploration.worlds import SmallWorld
from tests.simulator.world.crash_points import Violation


@dataclass(slots=True)
class Found:
    """What an exploration has come to."""

    world: str
    states: int = 0
    moves: int = 0
    situations: int = 0
    steps: int = 0
    refused: int = 0
    depth: int = 0
    #: Whether every state was reached, not only as many as were asked for.
    exhausted: bool = False
    #: Processor time.
    took_s: float = 0.0
    violation: Violation | None = None
    #: What led there, move by move.
    path: list[str] = field(default_factory=list)


class Explorer:
    """Explores one small world."""

    def __init__(self, world: SmallWorld) -> None:
        """Begin at its start."""
        self._world = world
        self._moves = Moves(world)

    def explore(self, limit: int) -> Found:
        """Visit states breadth first, as many as that; stop at the first broken promise."""
        found = Found(self._world.name)
        began_s = time.process_time()
        parents: dict[int, int] = {}
        level: list[Point] = []
        start = point = None
        try:
            start = point = self._moves.start()
            parents[hash(start)] = 0
            level.append(start)
            while level and len(parents) < limit:
                after: list[Point] = []
                for point in level:
                    here = hash(point)
                    for _, reached in self._moves.moves(point):
                        found.moves += 1
                        key = hash(reached)
                        if key not in parents:
                            parents[key] = here
                            after.append(reached)
                    if len(parents) >= limit:
                        break
                level = after
                found.depth += 1
        except Violation as violation:
            found.violation = violation
            before = self._path(start, hash(point), parents) if start is not None else []
            found.path = [*before, "and one thing more"]
        found.exhausted = not level and found.violation is None
        found.states = len(parents)
        found.situations, found.steps = len(self._moves.cores.all), self._moves.cores.steps
        found.refused = self._moves.cores.refused
        found.took_s = time.process_time() - began_s
        return found

    def _path(self, start: Point, last: int, parents: dict[int, int]) -> list[str]:
        """What leads from the start to a state."""
        chain = [last]
        while parents[chain[-1]]:
            chain.append(parents[chain[-1]])
        labels = []
        point = start
        for key in chain[-2::-1]:
            label, point = next(
                (label, reached)
                for label, reached in self._moves.moves(point)
                if hash(reached) == key
            )
            labels.append(label)
        return labels
