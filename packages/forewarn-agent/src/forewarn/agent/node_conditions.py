"""Node conditions: decides what the Kubernetes node of this VM should say, and when to write it.

A background job (`node_job.py`) compares the node with this notice, and writes the difference. The
agent starts the job at each change of the notice, and while a notice exists also at intervals, so
that the node is right again after a failure of either side. Without events, no job runs.

Source: K-1.
"""

from __future__ import annotations

import json

from forewarn.agent.core import records as rec
from forewarn.agent.core.records import event_form
from forewarn.agent.json_fields import FieldInvalid, member, words
from forewarn_base.protocol.versions import ADVISORY_STATUS

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from forewarn.agent.core.agent_core import AgentCore
    from forewarn.agent.core.identity import Identity
    from forewarn.agent.core.records import EventRecord, StepRecord

CHECK_MS = 15_000  # interval of checks while a notice exists; a node is right again within 30 s
RETRY_MS = 5_000  # pause after a failed job
FAR_MS = 1 << 62

Notice = dict[str, object]
#: The notice after a start of the agent, which may have stopped before it wrote the last one.
UNKNOWN: Notice = {}


class NodeConditions:
    """The notice of one VM's node, and the job that writes it."""

    def __init__(self, settings: dict[str, object]) -> None:
        self._settings = settings
        self._notice: Notice | None = UNKNOWN
        self._runs = False
        self._due_ms = FAR_MS

    def job(self, core: AgentCore, identity: Identity, now_ms: int) -> dict[str, object] | None:
        """Return the input of the next job, or None if no job is due."""
        if self._runs or not (core.sighted or core.events):
            return None  # without a journal, wait for a document before removing a notice
        notice = notice_of(core, identity)
        if notice == self._notice and now_ms < self._due_ms:
            return None
        self._notice = notice
        self._runs = True
        return {"settings": self._settings, "notice": notice}

    def ended(self, *, failed: bool, now_ms: int) -> None:
        """Schedule the next job after the end of a job."""
        self._runs = False
        if failed:
            self._due_ms = now_ms + RETRY_MS
        else:
            self._due_ms = now_ms + CHECK_MS if self._notice is not None else FAR_MS

    def left_alone(self, output: str) -> str:
        """Return a sentence about what a job has left to other writers; empty for nothing."""
        try:
            form = json.loads(output)
            foreign, writer = words(form, "foreign"), member(form, "writer", "")
        except (ValueError, FieldInvalid):
            return ""
        if writer:
            return f"{writer} has marked the node, so the agent writes no conditions."
        if not foreign:
            return ""
        held = ", ".join(foreign)
        return f"Another program writes these conditions, so the agent does not: {held}."

    def next_ms(self) -> int:
        """Return when the next job is due, ms since the epoch; a change may need one before."""
        return FAR_MS if self._runs else self._due_ms


def notice_of(core: AgentCore, identity: Identity) -> Notice | None:
    """Return what the node should say; None if no event concerns this VM.

    The event that has started, or else the one with the earliest NotBefore, is named.
    """
    mine = [record for record in core.events if _concerns(record, identity)]
    if not mine:
        return None
    facts = [
        *(("in-progress",) if any(record.started for record in mine) else ()),
        *(("planned",) if not all(record.started for record in mine) else ()),
    ]
    drains = [held for held in core.steps if held.phase == "prepare" and _drains(held)]
    deadline_ms = None
    for held in drains:
        if held.runs:
            facts.append("draining")
            deadline_ms = held.begun_ms + int(held.step.timeout_s * 1000)
    if drains and all(map(_is_drained, drains)):
        facts.append("drained")
    event = min((record.event for record in mine), key=lambda one: _order(one.not_before_ms))
    if event.not_before_ms is not None:
        deadline_ms = min(deadline_ms or FAR_MS, event.not_before_ms)
    if deadline_ms is not None:
        deadline_ms -= deadline_ms % 1000
    return {"facts": sorted(set(facts)), "event": event_form(event), "deadline_ms": deadline_ms}


def _order(not_before_ms: int | None) -> int:
    """Sort events by their NotBefore; a started event has none, and is first."""
    return not_before_ms or 0


def _concerns(record: EventRecord, identity: Identity) -> bool:
    announced = not record.gone and record.event.status != ADVISORY_STATUS
    return announced and bool(record.event_id) and identity.named_in(record.event.resources)


def _drains(held: StepRecord) -> bool:
    """Return whether a step drains this VM's node."""
    if held.status == rec.UNPREPARED or '"kubernetes"' not in held.step.spec:
        return False
    spec = json.loads(held.step.spec)
    return spec.get("use") == "kubernetes" and bool(spec.get("settings", {}).get("evict", True))


def _is_drained(held: StepRecord) -> bool:
    """Return whether a drain succeeded; the node stays drained while the VM restarts."""
    return held.status in (rec.DONE, rec.AGAIN) and held.verdict == "go-on"
