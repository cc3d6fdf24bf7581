"""One state of a small world: a situation of the core, and everything around it.

Values only; what may happen in one is said in `moves.py`.
"""

from typing import NamedTuple

from tests.simulator.exploration.situations import Shown


class Duty(NamedTuple):
    """What a process still has to do after a commit: show, then begin, abort and confirm."""

    publish: tuple[tuple[str, Shown | None], ...]
    begin: tuple[tuple[int, int, tuple[str, ...]], ...]
    abort: tuple[int, ...]
    announced: tuple[int, ...]
    #: Whether everything is shown again, by a process that has just started.
    whole: bool


class Point(NamedTuple):
    """One state of the world."""

    core: int
    #: Whether a process runs.
    up: bool
    duties: tuple[Duty, ...]
    #: What a process that was replaced has sent to the node, and that has not arrived yet.
    late: tuple[tuple[tuple[str, Shown | None], ...], ...]
    #: What the node shows, by view, sorted.
    node: tuple[tuple[str, Shown], ...]
    #: What each VM read last, sorted by its name: the view, and what that showed.
    read: tuple[tuple[str, str, Shown], ...]
    #: (operation, attempt, whether it was this process) of which a driver was told.
    told: tuple[tuple[int, int, bool], ...]
    #: Scheduled event -> for how many grains of time the node has shown it.
    ages: tuple[tuple[str, int], ...]
    crashes: int
    failovers: int
