"""What a machine needs of those who coordinate approvals: to speak, to ask, and to be checked.

The interfaces, and whether an agent waits for others; words travel in `peers.py` and are checked in
`coordination_checker.py`.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from forewarn.agent.core.agent_core import AgentCore
from forewarn.agent.core.coordination import turn
from forewarn.agent.core.identity import Identity
from forewarn.agent.core.records import DONE, FAILED, READY
from forewarn.agent.core.values import PeersSeen
from forewarn_base.protocol.documents import ScheduledEvent

#: A machine.
M_contra = TypeVar("M_contra", contravariant=True)


class Checks(Protocol[M_contra]):
    """Who checks that what VMs say of their preparation is true."""

    def prepared(self, name: str, *, done: bool) -> None:
        """A VM's preparation is done, or is being undone."""

    def says(self, machine: M_contra, event: ScheduledEvent) -> None:
        """A VM says that it is prepared."""

    def approves(self, machine: M_contra, event: ScheduledEvent) -> None:
        """A VM approves for all."""


class Coordination(Protocol[M_contra]):
    """How a VM announces to the others of an event that it is prepared, and asks who else is."""

    @property
    def checks(self) -> Checks[M_contra]:
        """Who checks what is said."""

    def announce(self, machine: M_contra, event: ScheduledEvent, *, prepared: bool) -> None:
        """Say that a VM is prepared, or no longer."""

    def ask(
        self,
        machine: M_contra,
        event: ScheduledEvent,
        others: tuple[str, ...],
        *,
        answered: Callable[[PeersSeen | None], None],
    ) -> None:
        """Find out what other VMs say; None where no answer comes in time."""

    def returned(self, name: str) -> None:
        """A VM is back, with what its journal says."""


def only_asks(core: AgentCore, identity: Identity, now_ms: int) -> bool:
    """Whether all that an agent waits for is another answer of its peers."""
    if any(held.status not in {DONE, FAILED} for held in core.steps):
        return False
    return all(
        record.stage == READY and bool(turn(record, identity, now_ms=now_ms).missing)
        for record in core.events
        if record.next_ms is not None
    )
