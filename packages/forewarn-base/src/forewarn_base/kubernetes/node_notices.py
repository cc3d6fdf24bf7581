"""The notice on a node: conditions and annotations about a scheduled event; pure.

A condition is one of the facts below under a type that a setting names, because readers of
different projects look for different types. The annotations have what a condition cannot say: which
event, from when, until when, and who wrote the notice.

A notice has one writer. `plan_notice` compares a node with the notice that it should carry, and
returns the one patch that makes them equal, or None if they are.

Source: K-1, K-2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from forewarn_base.protocol.timestamps import iso8601, parse, rfc1123

if TYPE_CHECKING:
    from collections.abc import Mapping

PLANNED, IN_PROGRESS = "planned", "in-progress"
DRAINING, DRAINED = "draining", "drained"
ANNOUNCED = "announced"  # from the announcement until the event is over
AKS_EVENT, AKS_PREEMPTION = "aks-event", "aks-preemption"
#: What a condition can say; the last two are `announced` in the words of AKS.
FACTS = (PLANNED, IN_PROGRESS, DRAINING, DRAINED, ANNOUNCED, AKS_EVENT, AKS_PREEMPTION)

#: Kubernetes' own types of KEP-5683 (alpha in 1.37) -> fact. Older releases store them as well.
KEP_TYPES: Mapping[str, str] = {
    "MaintenancePlanned": PLANNED,
    "MaintenanceInProgress": IN_PROGRESS,
    "DrainInProgress": DRAINING,
    "Drained": DRAINED,
}

PREFIX = "forewarn.io/"
WRITER = f"{PREFIX}writer"
VALID_UNTIL = f"{PREFIX}valid-until"
TYPES_HELD = f"{PREFIX}condition-types"
#: All annotations of a notice.
ANNOTATIONS = (
    f"{PREFIX}event-id",
    f"{PREFIX}event-type",
    f"{PREFIX}not-before",
    f"{PREFIX}deadline",
    f"{PREFIX}expected-interruption",
    WRITER,
    VALID_UNTIL,
    TYPES_HELD,
)

#: How long a notice stays valid after the expected end of its event: an hour.
VALID_MS = 3_600_000

#: Longest text of an event in an annotation or a message.
TEXT_CHARACTERS_MAX = 253

#: Source of an event -> cause category of KEP-5683; all others are `MaintenanceWindow`.
CAUSES = {"User": "AdminRequested"}


class NodeNotice(NamedTuple):
    """What a node should say about the event that concerns it most.

    A tuple, because `dataclasses` would cost the agent's writer 1.5 MiB.
    """

    #: Facts of `FACTS` that are true now, without `announced` and its forms.
    facts: frozenset[str]
    event_id: str
    event_type: str
    status: str
    source: str
    #: Earliest start without consent, ms since the epoch; None: unknown or already started.
    not_before_ms: int | None
    #: Time by which workloads should have left, ms since the epoch; None: unknown.
    deadline_ms: int | None
    #: Expected interruption in seconds; -1: unknown.
    duration_s: int

    def says(self, fact: str) -> bool:
        """Return whether a fact is true."""
        if fact in (ANNOUNCED, AKS_EVENT):
            return True
        if fact == AKS_PREEMPTION:
            return self.event_type == "Preempt"
        return fact in self.facts


class NoticePlan(NamedTuple):
    """The result of a comparison of a node with its notice."""

    #: Strategic merge patch of the node and its status; None: nothing to write.
    patch: dict[str, Any] | None = None
    #: Condition types that another writer holds, which are left alone.
    foreign: tuple[str, ...] = ()
    #: Another Forewarn writer whose notice is still valid; nothing is written beside it.
    other_writer: str = ""


def plan_notice(
    node: Mapping[str, Any],
    notice: NodeNotice | None,
    *,
    writer: str,
    types: Mapping[str, str],
    now_ms: int,
) -> NoticePlan:
    """Compare a node with the notice of a writer; None: the writer has nothing to say.

    A condition that the writer's annotations do not claim belongs to another program, and is never
    written or removed. A notice of another writer is replaced once it has expired. Source: K-2.
    """
    known = _annotations(node)
    owner = known.get(WRITER, "")
    if owner not in ("", writer) and not is_expired(node, now_ms):
        return NoticePlan(other_writer=owner)
    held = set(filter(None, known.get(TYPES_HELD, "").split(",")))
    before = {str(one.get("type")): one for one in _conditions(node)}
    wanted = {} if notice is None else _true_conditions(notice, types, node)
    foreign = tuple(sorted(wanted.keys() & before.keys() - held))
    for kind in foreign:
        del wanted[kind]
    conditions = [
        _condition(kind, *words, before=before.get(kind), now_ms=now_ms)
        for kind, words in sorted(wanted.items())
        if not _is_same(before.get(kind), *words)
    ]
    conditions += [
        {"$patch": "delete", "type": kind}
        for kind in sorted(held - wanted.keys())
        if kind in before
    ]
    marks = _marks(notice, writer, ",".join(sorted(wanted)), known=known, now_ms=now_ms)
    changed = {key: marks.get(key) for key in ANNOTATIONS if known.get(key) != marks.get(key)}
    if not conditions and not changed:
        return NoticePlan(foreign=foreign)
    # The version makes the API server refuse the patch if another program has changed the node.
    meta: dict[str, Any] = {"resourceVersion": node["metadata"].get("resourceVersion")}
    patch: dict[str, Any] = {"metadata": meta}
    if changed:
        meta["annotations"] = changed
    if conditions:
        patch["status"] = {"conditions": conditions}
    return NoticePlan(patch, foreign)


def is_expired(node: Mapping[str, Any], now_ms: int) -> bool:
    """Return whether a node carries a notice that is no longer valid."""
    known = _annotations(node)
    until_ms = _time_of(known.get(VALID_UNTIL, ""))
    return WRITER in known and (until_ms is None or now_ms >= until_ms)


def _true_conditions(
    notice: NodeNotice, types: Mapping[str, str], node: Mapping[str, Any]
) -> dict[str, tuple[str, str]]:
    """Return the reason and message of each condition that is true.

    A node that somebody has uncordoned may get new pods, so that it is drained no longer.
    """
    uncordoned = not (node.get("spec") or {}).get("unschedulable")
    return {
        kind: _words(notice, fact)
        for kind, fact in types.items()
        if notice.says(fact) and not (fact == DRAINED and uncordoned)
    }


def _words(notice: NodeNotice, fact: str) -> tuple[str, str]:
    """Return the reason and the message of a fact."""
    event = f"{_short(notice.event_type)} {_short(notice.event_id)}"
    cause = CAUSES.get(notice.source, "MaintenanceWindow")
    starts = "" if notice.not_before_ms is None else f", not before {iso8601(notice.not_before_ms)}"
    if fact == AKS_EVENT:
        return "VMEventScheduled", _aks_message(notice)
    if fact == AKS_PREEMPTION:
        return "SpotEvictionIncoming", _aks_message(notice)
    if fact == IN_PROGRESS:
        return cause, f"{event} is in progress."
    if fact == DRAINING:
        return cause, f"The node is being drained for {event}{starts}."
    if fact == DRAINED:
        return "DrainCompleted", f"The node is drained for {event}."
    return cause, f"{event} is announced{starts}."


def _aks_message(notice: NodeNotice) -> str:
    """Return `TYPE STATUS: NOT-BEFORE. EventId: ID`, as AKS's node problem detector has it."""
    time = "" if notice.not_before_ms is None else f": {rfc1123(notice.not_before_ms)}"
    kind, status = _short(notice.event_type), _short(notice.status)
    return f"{kind} {status}{time}. EventId: {_short(notice.event_id)}"


def _condition(
    kind: str, reason: str, message: str, *, before: Mapping[str, Any] | None, now_ms: int
) -> dict[str, Any]:
    now = iso8601(now_ms - now_ms % 1000)
    was_true = before is not None and before.get("status") == "True"
    since = str(before.get("lastTransitionTime") or now) if before and was_true else now
    return {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": since,
    }


def _is_same(before: Mapping[str, Any] | None, reason: str, message: str) -> bool:
    words = ("True", reason, message)
    return before is not None and words == tuple(
        before.get(name) for name in ("status", "reason", "message")
    )


def _marks(
    notice: NodeNotice | None, writer: str, types: str, *, known: Mapping[str, str], now_ms: int
) -> dict[str, str]:
    """Return the annotations of a notice; empty without one."""
    if notice is None:
        return {}
    marks = {
        f"{PREFIX}event-id": _short(notice.event_id),
        f"{PREFIX}event-type": _short(notice.event_type),
        WRITER: writer,
        TYPES_HELD: types,
    }
    if notice.not_before_ms is not None:
        marks[f"{PREFIX}not-before"] = iso8601(notice.not_before_ms)
    if notice.deadline_ms is not None:
        marks[f"{PREFIX}deadline"] = iso8601(notice.deadline_ms)
    if notice.duration_s >= 0:
        marks[f"{PREFIX}expected-interruption"] = f"{notice.duration_s}s"
    marks[VALID_UNTIL] = _valid_until(notice, known.get(VALID_UNTIL, ""), now_ms)
    return marks


def _valid_until(notice: NodeNotice, before: str, now_ms: int) -> str:
    """Return until when a notice is valid; keep the earlier time while half of it is left.

    An event that lasts longer than expected extends its notice, one write in half an hour.
    """
    ends_ms = max(now_ms, notice.not_before_ms or 0) + max(notice.duration_s, 0) * 1000
    before_ms = _time_of(before)
    if before_ms is not None and ends_ms + VALID_MS // 2 <= before_ms <= ends_ms + 2 * VALID_MS:
        return before
    until_ms = ends_ms + VALID_MS
    return iso8601(until_ms - until_ms % 1000)


def _time_of(text: str) -> int | None:
    try:
        return parse(text[:TEXT_CHARACTERS_MAX])
    except ValueError:
        return None


def _short(text: str) -> str:
    """Return a text of an event as one printable line of limited length."""
    return "".join(char if char.isprintable() else " " for char in text[:TEXT_CHARACTERS_MAX])


def _annotations(node: Mapping[str, Any]) -> Mapping[str, str]:
    return node["metadata"].get("annotations") or {}


def _conditions(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return (node.get("status") or {}).get("conditions") or []
