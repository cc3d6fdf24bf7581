"""Short ways to make events, documents and cores for the tests of the agent; no servers here."""

import copy
import json

from forewarn.agent.core.agent_core import AgentCore
from forewarn.agent.core.identity import Identity
from forewarn.agent.core.rules import Match, PreparationStep, Rule
from forewarn.agent.core.values import (
    ApproveIntent,
    DocumentPolled,
    HookEnded,
    HookIntent,
    Intent,
    Stimulus,
    TimePassed,
)
from forewarn_base.protocol.documents import Document, ScheduledEvent

ME = Identity("vm_0")
NOW = 1_795_000_000_000
NOTICE_MS = 15 * 60 * 1000
DAY_MS = 24 * 3_600_000
DRAIN = PreparationStep("drain")
STOP = PreparationStep("stop")
BOTH = ("vm_0", "vm_1")


def event(event_id: str = "E1", **fields: object) -> ScheduledEvent:
    """Return a Reboot of this VM, 15 minutes ahead, changed as told."""
    known: dict[str, object] = {
        "event_type": "Reboot",
        "resources": ("vm_0",),
        "not_before_ms": NOW + NOTICE_MS,
    }
    if fields.get("status") == "Started":
        known["not_before_ms"] = None
    return ScheduledEvent(event_id=event_id, **{**known, **fields})  # type: ignore[arg-type]


def document(incarnation: int, *events: ScheduledEvent) -> Document:
    """Return a document."""
    return Document(incarnation, events)


def polled(incarnation: int, *events: ScheduledEvent) -> DocumentPolled:
    """Return the stimulus of a document read."""
    return DocumentPolled(document(incarnation, *events))


def rule(*groups: tuple[PreparationStep, ...], **fields: object) -> Rule:
    """Return a rule that prepares for everything that names this VM, changed as told."""
    known: dict[str, object] = {"action": "prepare", "steps": groups}
    match = fields.pop("match", Match())
    return Rule("test", match, **{**known, **fields})  # type: ignore[arg-type]


class Watched(AgentCore):
    """An engine that is held to what it promises whoever drives it, at each step."""

    def kept(self) -> dict[str, object]:
        """What is written as soon as it changes; an incarnation alone is not."""
        return self.journal() | {"incarnation": 0}

    def step(self, stimulus: Stimulus, now_ms: int) -> tuple[Intent, ...]:
        """Step; what must be written is known to be, and nothing is due before it is said to be."""
        before, generation = self.kept(), self.generation
        intents = super().step(stimulus, now_ms)
        journal = self.kept()
        asked = any(isinstance(intent, ApproveIntent) for intent in intents)
        assert (journal != before or asked) >= (self.generation > generation), "written in vain"
        assert journal == before or self.generation > generation, "it would not be written"
        again = Watched(self._identity, (), journal=json.loads(json.dumps(self.journal())))
        assert again.kept() == journal
        due_ms = self.next_deadline()
        assert due_ms is None or due_ms > now_ms, "it would be woken again and again"
        last_ms = now_ms + DAY_MS if due_ms is None else due_ms - 1
        for at_ms in (now_ms, max(now_ms, last_ms)):
            later = copy.deepcopy(self)
            assert AgentCore.step(later, TimePassed(), at_ms) == ()
            assert later.kept() == journal
        return intents


def core(*groups: tuple[PreparationStep, ...], **fields: object) -> AgentCore:
    """Return a core with one rule."""
    return Watched(ME, (rule(*groups, **fields),))


def restarted(
    before: AgentCore, *groups: tuple[PreparationStep, ...], **fields: object
) -> AgentCore:
    """Return the core of a new process that found the journal of an earlier one."""
    return Watched(ME, (rule(*groups, **fields),), journal=before.journal())


def brief(intents: tuple[Intent, ...]) -> list[str]:
    """Return intents as words, notifications left out: `Prepare drain`, `Approve E1`."""
    words = []
    for intent in intents:
        kind = type(intent).__name__.removesuffix("Intent")
        if isinstance(intent, HookIntent):
            words.append(f"{kind} {intent.key}")
        elif kind == "Stop":
            words.append(f"{kind} {intent.key}")  # type: ignore[attr-defined]
        elif kind != "Notify":
            words.append(f"{kind} {intent.event.event_id}")  # type: ignore[attr-defined]
    return words


def told(intents: tuple[Intent, ...]) -> list[str]:
    """Return the actions of the notifications."""
    return [intent.action for intent in intents if type(intent).__name__ == "NotifyIntent"]  # type: ignore[attr-defined]


def prepared(**fields: object) -> AgentCore:
    """Return a core that has prepared E1 and has sent its approval."""
    agent = core((DRAIN,), **fields)
    agent.step(polled(1, event()), NOW)
    agent.step(HookEnded("drain", 0), NOW)
    return agent


def said(intents: tuple[Intent, ...]) -> list[str]:
    """Return the sentences of the notifications."""
    return [intent.text for intent in intents if type(intent).__name__ == "NotifyIntent"]  # type: ignore[attr-defined]


STARTED = event(status="Started")
