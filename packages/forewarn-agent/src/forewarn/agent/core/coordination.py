"""Coordination: decides which VM of an event approves, and when; pure.

One approval counts for every VM of the event (A-4), so the approval must wait until all VMs are
prepared.
"""

from __future__ import annotations

from forewarn.agent.core.identity import plain
from forewarn.agent.value import Value

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from forewarn.agent.core.identity import Identity
    from forewarn.agent.core.records import EventRecord
    from forewarn.agent.core.values import PeersSeen

LEADER_ANSWER_S = 75  # a leader counts as silent after this time; the job that asks ends after 60 s
LEADER_ASK_S = 30  # interval between questions to an undecided leader


class Turn(Value):
    """The decision whether this VM may approve now, with a reason and a time."""

    #: The reason, as a sentence for people.
    reason: str
    #: Whether to approve now.
    go: bool = False
    #: Time from which this VM may approve without further stimuli, ms since the epoch; None: never.
    until_ms: int | None = None
    #: The VMs without a report that they are prepared.
    missing: tuple[str, ...] = ()
    #: The VMs before this VM; this VM may approve instead if all of these are silent.
    ahead: tuple[str, ...] = ()


def turn(record: EventRecord, identity: Identity, *, now_ms: int) -> Turn:
    """Decide whether this VM approves the event now.

    Args:
        record: The event, with its coordination, the time since when this VM (with `all`: every VM)
            is prepared, and the other VMs known to be prepared.
        identity: This VM.
        now_ms: Now, ms since the epoch UTC.

    Source: C-5; `self` is the coordination of groups with strict approval, A-7.
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
        return Turn(f"this VM approves instead of {leader}", go=True, ahead=ahead)
    return Turn(
        f"{leader} is the leader and approves; this VM is its substitute", until_ms=until_ms
    )


def is_silent(record: EventRecord, ahead: tuple[str, ...], *, now_ms: int) -> bool:
    """Return whether all VMs before this VM are silent; a VM that holds the event has answered.

    The caller must ask these VMs now if the function sets `record.asked_ms` to `now_ms`. With
    `all`, the agent repeats the question, because a VM may no longer be prepared.
    """
    decides = next((name for name in record.deciding or () if name in ahead), "")
    if decides:
        record.why = f"{decides} decides and has not approved yet"
        record.next_ms = now_ms + LEADER_ASK_S * 1000
        record.asked_ms, record.deciding = 0, None
        return False
    waited = record.asked_ms and record.coordination != "all"
    if record.deciding is not None or waited:  # no VM decides, or the time is over
        record.asked_ms, record.deciding = 0, None
        return True
    record.asked_ms = now_ms
    record.why = f"{ahead[0]} has not approved; this VM asks for its decision"
    record.next_ms = now_ms + LEADER_ANSWER_S * 1000
    return False


def heard(record: EventRecord, seen: PeersSeen, *, now_ms: int) -> bool:
    """Record the answers of other VMs; return whether the set of prepared VMs changes.

    The last answer of a silent VM counts until this VM takes over, because the silent VM may be
    gone. If a VM reports that it is not prepared, for example after a restart, this VM waits for
    that VM again.
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
    record.ready_ms = now_ms  # the wait of a substitute begins when all VMs are prepared
    record.next_ms = None
    record.asked_ms, record.deciding = 0, None
    return True
