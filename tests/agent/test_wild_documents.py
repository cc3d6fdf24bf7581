"""Documents seen in the wild: each is read and leads to a sensible intent."""

import json
from pathlib import Path

import pytest

from forewarn.agent.core.identity import Identity
from forewarn.agent.core.rules import default_rules
from forewarn.agent.core.values import DocumentPolled, HookEnded
from forewarn_base.protocol.documents import Document, ScheduledEvent, read_document
from tests.agent.making import DRAIN, NOW, Watched, brief

LINES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "documents.jsonl").read_text("utf-8").splitlines()
]
DOCUMENTS = [read_document(json.dumps(line["document"])) for line in LINES]


def seen_by(name: str, document: Document) -> list[str]:
    """Return what an agent of that name wants done on first reading the document."""
    first = min((e.not_before_ms for e in document.events if e.not_before_ms), default=NOW)
    agent = Watched(Identity(name), default_rules(((DRAIN,),)))
    wanted = brief(agent.step(DocumentPolled(document), first - 60_000))
    if "Prepare drain" in wanted:
        wanted += brief(agent.step(HookEnded("drain", 0), first - 50_000))
    return wanted


def wanted_for(event: ScheduledEvent) -> list[str]:
    """Return what the clients' duties ask of the first VM an event names. Source: C-3, C-4."""
    if not event.event_id or event.status == "Started":
        return []
    approve = [f"Approve {event.event_id}"]
    if event.event_type == "Freeze" and 0 <= event.duration_s < 9:
        return approve
    return ["Prepare drain", *approve]


@pytest.mark.parametrize("document", DOCUMENTS, ids=range(1, len(DOCUMENTS) + 1))
def test_document_is_met_as_the_duties_say(document: Document) -> None:
    """The VM an event names prepares and approves; any other does nothing. Source: C-3, C-4."""
    for event in document.events:
        assert seen_by(event.resources[0], document) == wanted_for(event)
    assert seen_by("some-other-vm", document) == []


def test_there_are_documents() -> None:
    """The file beside this one is the evidence; it must not run empty."""
    assert len(DOCUMENTS) == 27
    assert sum(1 for document in DOCUMENTS if document.events) > 15
