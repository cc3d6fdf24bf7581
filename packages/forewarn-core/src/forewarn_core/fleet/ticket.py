"""A ticket: one record of break-fix work with its dialogue, whatever its type, and its legal moves.

An incident says that something promised did not hold, a report that a tenant found a fault, a
retirement that hardware will leave, a repair that it works again, a review that an act must be
looked at. They share one form and one table of moves. `ticket_commands.py` decides when a move is
due. Source: T-5, T-9, T-10.
"""

from __future__ import annotations

from forewarn_base.values import Word, replace, value
from forewarn_core.fleet.lifecycle import IllegalMove

#: Maximum number of live tickets of an owner, and of texts of a ticket.
LIVE_MAX, TEXTS_MAX = 1000, 200
#: Longest description, evidence, action or text, in characters.
TICKET_TEXT_MAX = 2000


class TicketType(Word):
    """What a ticket is about."""

    #: Something promised did not hold.
    INCIDENT = "incident"
    #: A tenant says that something is broken, or returns it.
    REPORT = "report"
    #: Hardware will leave at a time.
    RETIREMENT = "retirement"
    #: Hardware was repaired or replaced.
    REPAIR = "repair"
    #: An act must be looked at by somebody.
    REVIEW = "review"


class TicketTarget(Word):
    """The kind of a ticket's target."""

    VM = "vm"
    HOST = "host"
    RACK = "rack"
    #: An act of the service itself, such as a lifted confirmation.
    SERVICE = "service"


class HardwareCategory(Word):
    """The part of a machine that a ticket is about."""

    GPU = "gpu"
    FAN = "fan"
    MEMORY = "memory"
    DISK = "disk"
    NETWORK = "network"
    INTERCONNECT = "interconnect"
    POWER = "power"
    FIRMWARE = "firmware"
    OTHER = "other"


class TicketState(Word):
    """The state of a ticket."""

    OPEN = "open"
    #: The operator asks its owner back.
    ASKED = "asked"
    #: It has become work.
    IN_WORK = "in-work"
    #: The work is done; the owner may agree.
    RESOLVED = "resolved"
    CLOSED = "closed"
    REFUSED = "refused"


class TicketMove(Word):
    """A cause of a state change of a ticket."""

    ASK = "ask"
    ANSWER = "answer"
    WORK = "work"
    RESOLVE = "resolve"
    REFUSE = "refuse"
    CLOSE = "close"
    REOPEN = "reopen"


TICKET_MOVES: dict[tuple[TicketState, TicketMove], TicketState] = {
    (TicketState.OPEN, TicketMove.ASK): TicketState.ASKED,
    (TicketState.OPEN, TicketMove.ANSWER): TicketState.OPEN,
    (TicketState.OPEN, TicketMove.WORK): TicketState.IN_WORK,
    (TicketState.OPEN, TicketMove.RESOLVE): TicketState.RESOLVED,
    (TicketState.OPEN, TicketMove.REFUSE): TicketState.REFUSED,
    (TicketState.OPEN, TicketMove.CLOSE): TicketState.CLOSED,
    (TicketState.ASKED, TicketMove.ASK): TicketState.ASKED,
    (TicketState.ASKED, TicketMove.ANSWER): TicketState.OPEN,
    (TicketState.ASKED, TicketMove.WORK): TicketState.IN_WORK,
    (TicketState.ASKED, TicketMove.REFUSE): TicketState.REFUSED,
    (TicketState.ASKED, TicketMove.CLOSE): TicketState.CLOSED,
    (TicketState.IN_WORK, TicketMove.ASK): TicketState.IN_WORK,
    (TicketState.IN_WORK, TicketMove.ANSWER): TicketState.IN_WORK,
    (TicketState.IN_WORK, TicketMove.RESOLVE): TicketState.RESOLVED,
    (TicketState.IN_WORK, TicketMove.CLOSE): TicketState.CLOSED,
    (TicketState.RESOLVED, TicketMove.ANSWER): TicketState.OPEN,
    (TicketState.RESOLVED, TicketMove.CLOSE): TicketState.CLOSED,
    (TicketState.CLOSED, TicketMove.REOPEN): TicketState.OPEN,
    (TicketState.REFUSED, TicketMove.REOPEN): TicketState.OPEN,
}
ENDED_TICKET = frozenset({TicketState.CLOSED, TicketState.REFUSED})


@value
class TicketText:
    """One text of a ticket's dialogue."""

    #: ms since the epoch UTC.
    at_ms: int
    #: The actor, as history has it.
    by: str
    text: str


@value
class Ticket:
    """A record of break-fix work. Times are ms since the epoch UTC; None: not yet."""

    #: Tickets, maintenances and operations share one sequence of numbers.
    number: int
    type: TicketType
    target_kind: TicketTarget
    #: Name of the VM, host or rack.
    target: str
    opened_ms: int
    updated_ms: int
    #: Owners whom it concerns, sorted; empty: operators alone.
    owners: tuple[str, ...] = ()
    #: Host of the target when the ticket was opened, and its serial number or name, for its
    #: hardware id; of a rack, empty and the rack's name. Source: T-10.
    host: str = ""
    serial: str = ""
    category: HardwareCategory = HardwareCategory.OTHER
    description: str = ""
    evidence: str = ""
    #: What was done.
    action: str = ""
    #: Account of the owner, as the reporter names it; of a review, whose act it is.
    account: str = ""
    #: Id in another system.
    external: str = ""
    #: Work that the ticket is about; 0: none.
    operation: int = 0
    maintenance: int = 0
    #: Who opened it, as history has it.
    actor: str = ""
    state: TicketState = TicketState.OPEN
    closed_ms: int | None = None
    #: When something happens with it: a retirement's target leaves, a resolved report closes, a
    #: lifted confirmation is in force again.
    due_ms: int | None = None
    texts: tuple[TicketText, ...] = ()

    @property
    def id(self) -> str:
        """The name shown to people and used in commands: `t-12`."""
        return f"t-{self.number}"

    @property
    def live(self) -> bool:
        """Whether the ticket has not ended."""
        return self.state not in ENDED_TICKET

    @property
    def deadline_ms(self) -> int | None:
        """When the ticket moves by time alone, ms since the epoch UTC; None: never.

        A resolved report closes, and a lifted confirmation is in force again.
        """
        moves = (self.type, self.state) in _TIMED
        return self.due_ms if moves else None


#: Types and states in which a ticket moves at its `due_ms`.
_TIMED = frozenset(
    {(TicketType.REPORT, TicketState.RESOLVED), (TicketType.REVIEW, TicketState.IN_WORK)}
)


def move_ticket(ticket: Ticket, move: TicketMove, now_ms: int) -> Ticket:
    """Return the ticket after a move; raises `IllegalMove` if the table has none."""
    after = TICKET_MOVES.get((ticket.state, move))
    if after is None:
        raise IllegalMove(subject=ticket.id, state=ticket.state.value, move=move.value)
    closed_ms = now_ms if after in ENDED_TICKET else None
    return replace(ticket, state=after, updated_ms=now_ms, closed_ms=closed_ms)
