"""What a maintenance does now: one phase that carries its data, and the table of moves. F-1.

A maintenance is planned (`Planning`), its next wave comes due (`Due`), is announced in portions
(`Announcing`) and worked on (`Working`); then a gate is checked, where there is one (`Checking`),
and the remaining hosts are planned again. It can be `Halted` in any phase, and goes on from there
with its wave, the check that was due, or a new plan.
"""

from __future__ import annotations

from typing import TypeAlias

from forewarn.values import value


@value
class Planning:
    """A plan is being made, without which no wave is announced."""

    #: When it is to be made, ms since the epoch UTC; None: now.
    at_ms: int | None = None
    #: Why none could be made before; empty: nothing went wrong.
    reason: str = ""


@value
class Due:
    """The next wave has its time."""

    wave: int
    #: When it is announced, ms since the epoch UTC.
    at_ms: int


@value
class Announcing:
    """The hosts of a wave are being announced, in portions."""

    wave: int
    #: When it came due, ms since the epoch UTC.
    at_ms: int


@value
class Working:
    """Every host of a wave that may be is announced; they are waited for."""

    wave: int
    #: The plan being made meanwhile, for new budgets of announced hosts; None: not needed.
    plan: Planning | None = None


@value
class Checking:
    """The wave is over; the maintenance waits for the result of its gate. Source: F-5."""

    gate: str


@value
class Halted:
    """The maintenance is paused or stopped, or has ended. Source: F-5, F-6."""

    #: Why, for people; empty: no reason was given.
    reason: str = ""
    #: The wave that it stood in.
    wave: int | None = None
    #: The gate that was to be checked.
    gate: str | None = None
    #: The plan being made all the same, for the budgets of hosts that stay announced.
    plan: Planning | None = None
    #: Whether announced hosts stay announced. Source: F-6.
    keeps_announced: bool = False


Phase: TypeAlias = Planning | Due | Announcing | Working | Checking | Halted

PHASES: tuple[type[Phase], ...] = (Planning, Due, Announcing, Working, Checking, Halted)

#: Each legal move with what it is called. Every phase can be halted; there it stays once ended.
PHASE_MOVES: dict[tuple[type[Phase], type[Phase]], str] = {
    (Planning, Planning): "no wave, or no plan",
    (Planning, Due): "planned",
    (Due, Planning): "planned again",
    (Due, Announcing): "due",
    (Announcing, Planning): "blocked, or planned again",
    (Announcing, Working): "announced",
    (Announcing, Checking): "over",
    (Working, Working): "its budgets planned again",
    (Working, Planning): "over",
    (Working, Checking): "over, with a gate",
    (Checking, Planning): "passed",
    (Halted, Planning): "resumed",
    (Halted, Working): "resumed in a wave",
    (Halted, Checking): "resumed before a check",
    **{(phase, Halted): "halted" for phase in PHASES},
}
