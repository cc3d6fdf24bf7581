"""An owner's choice of when declared work disturbs its VMs on a host. Source: T-2."""

from __future__ import annotations

from forewarn_base.values import Word, value


class Decision(Word):
    """What an owner decided about its VMs on a host."""

    #: The work starts at a time.
    AT = "at"
    #: The work starts as soon as possible.
    NOW = "now"
    #: The owner has handed its VMs back: the work may start at any time.
    RELEASE = "release"


@value
class OwnerChoice:
    """One owner's choice for its VMs on a host. Times are ms since the epoch UTC or None."""

    #: `12/h7/shop`: the maintenance's number, the host and the owner.
    key: str
    maintenance: int
    host: str
    owner: str
    made_ms: int
    #: The principal who chose.
    chosen_by: str
    decision: Decision
    #: The chosen start; without one, when the choice was made.
    start_ms: int
    #: Whether the choice approves the event. Source: T-2.
    approves: bool = False
    #: When a plan could not keep the chosen start.
    displaced_ms: int | None = None


def choice_key(maintenance: int, host: str, owner: str) -> str:
    """Return the key of an owner's choice."""
    return f"{maintenance}/{host}/{owner}"
