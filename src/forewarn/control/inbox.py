"""What waits for the run loop: what is asked of it, and what was published since."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from forewarn.core.lifecycle import Operation
from forewarn.core.stimulus import Stimulus

if TYPE_CHECKING:
    from forewarn.control.plane import Committed, ControlPlane

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Submission:
    """Something to be decided and committed."""

    stimulus: Stimulus
    #: Who asks, for history.
    actor: str
    #: None where nobody waits for the answer.
    answer: Future[Committed] | None
    #: Whether the answer waits until metadata nodes show what was committed.
    shown: bool = False


@dataclass(frozen=True, slots=True)
class StateQuery(Generic[T]):
    """A question about the state, asked on the loop's own thread."""

    query: Callable[[ControlPlane], T]
    answer: Future[T]


@dataclass(frozen=True, slots=True)
class Published:
    """Every node shows what was committed, and the rest may be done: note, begin, abort."""

    announced: tuple[int, ...]
    begin: tuple[Operation, ...]
    abort: tuple[Operation, ...]
