"""Coordination: which VM approves an event that names several VMs, and when; pure.

One approval releases every VM of the event (A-4), so it must not happen while a VM still prepares.
"""

from __future__ import annotations

from forewarn.agent.core.identity import plain
from forewarn.agent.value import Value

TYPE_CHECKING = False  # `typing` is too heavy for the agent
if TYPE_CHECKING:
    from typing import Final

    from forewarn.agent.core.identity import Identity
    from forewarn.agent.core.records import EventRecord
    from forewarn.agent.core.values import PeersSeen

LEADER_ANSWER_S = 75  # the job that asks ends after a minute; then the leader counts as silent
LEADER_ASK_S = 30  # interval between questions to a leader that has not decided


class Turn(Value):
    """Whether this VM may approve now; otherwise the reason and the time."""

    __slots__ = ("ahead", "go", "missing", "reason", "until_ms")
    ahead: Final[tuple[str, ...]]
    go: Final[bool]
    reason: Final[str]
    until_ms: Final[int | None]
    missing: Final[tuple[str, ...]]

    def __init__(
        self,
        reason: str,
        *,
        go: bool = False,
        until_ms: int | None = None,
        missing: tuple[str, ...] = (),
        ahead: tuple[str, ...] = (),
    ) -> None:
        """Set all fields.

        Args:
            reason: The reason, as a sentence for people.
            go: Whether to approve now.
            until_ms: When this VM's turn comes without any further event, ms since the epoch; None:
                never.
            missing: The VMs that have not reported that they are prepared.
            ahead: The VMs before this one; it may approve in their place if all of them are silent.
        """
        self.ahead = ahead
        self.go = go
        self.reason = reason
        self.until_ms = until_ms
        self.missing = missing


def turn(record: EventRecord, identity: Identity, *, now_ms: int) -> Turn:
    """Decide whether this VM approves the event now.

    Args:
        record: The event, with its coordination, the time since which this VM (with `all`, every
            other VM, too) is prepared, and the VMs that report so; this VM need not be among them.
        identity: This VM.
        now_ms: Now, ms since the epoch UTC.

    Source: C-5; `self` is for groups with strict approval, A-7.
    """
    event = record.event
    if record.coordination == "self":
        return Turn("every VM approves its own share", go=True)
    if record.coordination == "all":
        known = {plain(name) for name in record.peers}
        others = identity.others_in(event.resources)
        missing = tuple(name for name in others if plain(name) not in known)
        if missing:
            return Turn(f"waiting for {', '.join(missing)} to be prepared", missing=missing)
    position = identity.position_in(event.resources)
    if position == 0:
        return Turn("this VM is the first in Resources", go=True)
    leader = event.resources[0]
    if not record.stand_in_s:
        return Turn(f"{leader} is the leader and approves")
    until_ms = record.ready_ms + int(position * record.stand_in_s * 1000)
    if now_ms >= until_ms:
        ahead = event.resources[:position]
        return Turn(f"standing in for {leader}", go=True, ahead=ahead)
    return Turn(f"{leader} is the leader and approves; this VM stands in later", until_ms=until_ms)


def is_silent(record: EventRecord, ahead: tuple[str, ...], *, now_ms: int) -> bool:
    """Return whether the VMs before this one do not answer; one that holds must be respected.

    If `asked_ms` equals `now_ms` afterwards, the caller must ask them now. With `all`, the agent
    asks again without an answer, because a VM may no longer be prepared.
    """
    decides = next((name for name in record.deciding or () if name in ahead), "")
    if decides:
        record.why = f"{decides} answers and has not approved: it decides"
        record.next_ms = now_ms + LEADER_ASK_S * 1000
        record.asked_ms, record.deciding = 0, None
        return False
    waited = record.asked_ms and record.coordination != "all"
    if record.deciding is not None or waited:  # no VM decides, or the time has passed
        record.asked_ms, record.deciding = 0, None
        return True
    record.asked_ms = now_ms
    record.why = f"{ahead[0]} has not approved and is asked whether it will"
    record.next_ms = now_ms + LEADER_ANSWER_S * 1000
    return False


def heard(record: EventRecord, seen: PeersSeen, *, now_ms: int) -> bool:
    """Record the answers of other VMs; return whether they change the set of prepared VMs.

    Before this VM takes over, the last answer of a silent VM still counts, because the VM may be
    gone. If a VM answers that it is not prepared, as after a restart, this VM waits for it again.
    """
    prepared = seen.prepared
    if record.asked_ms:
        record.deciding = seen.deciding
        record.next_ms = None
        lost = {plain(name) for name in seen.unprepared}
        prepared = tuple(name for name in record.peers if plain(name) not in lost)
    if record.peers == prepared:
        return False
    record.peers = prepared
    record.ready_ms = now_ms  # a stand-in's wait begins when all are prepared
    record.next_ms = None
    record.asked_ms, record.deciding = 0, None
    return True
