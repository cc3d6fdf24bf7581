"""An agent before something that is not the metadata service, or says what no VM expects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from forewarn.agent.core.identity import is_name
from forewarn.agent.sdk.dialogue import Dialogue
from forewarn.agent.sdk.http import HttpResponse
from tests.agent.agents import Agent
from tests.agent.making import event
from tests.agent.service import Service, status

if TYPE_CHECKING:
    from pathlib import Path

    from forewarn.protocol.documents import ScheduledEvent

FAR_MS = 4_000_000_000_000
PAGE = b"<html><body>Please log in</body></html>"


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("vm_0", True),
        ("web-1.example", True),
        ("\u30b5\u30fc\u30d0", True),
        ("", False),
        ("two words", False),
        (PAGE.decode(), False),
        ("line\nline", False),
        ("x" * 300, False),
    ],
)
def test_name_is_told_from_a_page(text: str, known: bool) -> None:
    """An agent that took a page for its name would follow no event at all. Source: I-2."""
    assert is_name(text) is known


def test_page_of_another_server_is_neither_name_nor_document(tmp_path: Path) -> None:
    """A portal that answers everything with 200 is asked again until the service is there."""
    with Service() as service:
        service.faults = [
            status(200, PAGE),
            status(200, PAGE),
            status(302, Location="http://[::1]"),
        ]
        with Agent(tmp_path, service.endpoint) as agent:
            agent.until_said("poll-failed")
            agent.until_said("named")
            service.show(event(not_before_ms=FAR_MS))
            service.until(lambda: service.approvals == ["E1"], "the approval")
            assert "name=vm_0" in agent.log()


def test_proxies_of_the_environment_are_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is asked for a VM must not be asked by another machine. Source: E-4, C-7."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with Service() as service, Agent(tmp_path, service.endpoint) as agent:
        agent.until_said("named")


@pytest.mark.parametrize(
    "odd",
    [
        event(description="\ud800 half a letter", not_before_ms=FAR_MS),
        event(description="x" * 200_000, not_before_ms=FAR_MS),
        event(description="a\0b\nc", event_id="E/../1", not_before_ms=FAR_MS),
    ],
    ids=["half a letter", "long", "control characters"],
)
def test_hook_is_started_whatever_the_event_says(tmp_path: Path, odd: ScheduledEvent) -> None:
    """The environment of a process cannot hold all that JSON can."""
    with Service() as service, Agent(tmp_path, service.endpoint) as agent:
        service.show(odd)
        service.until(lambda: service.approvals == [odd.event_id.upper()], "the approval")
        agent.until_acts("prepare")


def test_versions_are_not_looked_for_without_end() -> None:
    """A body that no parser can hold names no version; the next older one is tried."""
    dialogue = Dialogue(("http://127.0.0.1",))
    newest = dialogue.version
    answer = HttpResponse(400, {}, body=b'{"version":' + b"[" * 100_000)
    assert dialogue.take_poll(answer, elapsed_s=0, waited=False) is None
    assert dialogue.version < newest


def test_scale_set_that_does_not_fit_is_told_of(tmp_path: Path) -> None:
    """A setting that gives no further name leaves the names there are."""
    with Service() as service, Agent(tmp_path, service.endpoint, agent='scale_set = "x"') as agent:
        agent.until_said("named")
