"""The outcome of an event, as its VM and the VM's recovery hook are told it. Source: X-1."""

import json
from pathlib import Path

import pytest

from forewarn import Client
from forewarn.agent.child_processes import ChildProcesses
from forewarn.agent.core.identity import Identity
from forewarn.agent.core.rules import PreparationStep
from forewarn.agent.core.values import RecoverIntent
from forewarn.agent.hooks import HookRoom
from forewarn.agent.settings import AgentSettings
from forewarn.testing import EmulatorThread
from forewarn_base.errors import PeerError
from forewarn_base.protocol.documents import ScheduledEvent
from forewarn_core.requests import OutcomeRequest, RequestAnswer
from forewarn_metadata.replication.feed_client import FeedLost
from tests.agent.making import event as shown_event
from tests.metadata.feeds import run
from tests.metadata.live import request, serving, with_settings
from tests.replication.rig import Feed
from tests.waiting import wait_until


def rebooted(emulator: EmulatorThread) -> ScheduledEvent:
    """Reboot vm-1, from its announcement to its end; return its event."""
    emulator.ask("host-reboot", "host-1", duration_s=60)
    [event] = emulator.document().events
    emulator.approve(event.event_id)
    emulator.advance(60)
    return event


def test_vm_asks_for_the_outcome_of_its_event(forewarn_emulator: EmulatorThread) -> None:
    """While it is shown, and once it has left the document. Source: X-1."""
    emulator = forewarn_emulator
    emulator.ask("reboot", "vm-1")
    [shown] = emulator.document().events
    with Client(emulator.endpoint, patience_s=0) as client:
        assert client.outcome(shown)["result"] == "unknown"
        emulator.approve(shown.event_id)
        emulator.advance(120)
        outcome = client.outcome(shown.event_id.lower())
        assert (outcome["result"], outcome["start"]) == ("completed", "early")
        assert "host" not in outcome
        with pytest.raises(PeerError):
            client.outcome("11111111-AFDC-4513-B24B-AA5F13A16123")


def test_recovery_hook_is_told_the_outcome(
    forewarn_emulator: EmulatorThread, tmp_path: Path
) -> None:
    """The whole as JSON, and the result as a word. Source: X-1."""
    settings = AgentSettings({"outcomes": True, "endpoint": forewarn_emulator.endpoint})
    children = ChildProcesses(HookRoom(str(tmp_path / "hooks")), Identity("vm-1"), settings)
    command = ["sh", "-c", f'echo "$FOREWARN_EVENT_RESULT $FOREWARN_OUTCOME" >{tmp_path}/told']
    step = PreparationStep("drain", spec=json.dumps({"recover": command}))
    event = rebooted(forewarn_emulator)
    children.start(RecoverIntent("drain", step, event=event, deadline_ms=0, attempt=1, run=1))
    wait_until(lambda: children.ended(0), what="its end")
    word, _, text = (tmp_path / "told").read_text().partition(" ")
    assert word == json.loads(text)["result"] == "completed"


def test_hook_runs_without_an_outcome(tmp_path: Path) -> None:
    """A service that is away keeps no workload drained. Source: X-1."""
    settings = AgentSettings({"outcomes": True, "endpoint": "http://127.0.0.1:9"})
    children = ChildProcesses(HookRoom(str(tmp_path / "hooks")), Identity("vm-1"), settings)
    command = ["sh", "-c", f'echo "$FOREWARN_EVENT_RESULT" >{tmp_path}/told']
    step = PreparationStep("drain", spec=json.dumps({"recover": command}))
    event = shown_event()
    children.start(RecoverIntent("drain", step, event=event, deadline_ms=0, attempt=1, run=1))
    wait_until(lambda: children.ended(0), what="its end")
    assert (tmp_path / "told").read_text() == "unknown\n"


def test_outcomes_are_shown_where_they_are_wanted() -> None:
    """Azure's wire is unchanged unless a setting says otherwise. Source: X-1, E-2."""
    path = "/forewarn/outcomes/e-1"
    with serving() as live:
        assert live.get(path).status == 404
    with serving(with_settings(outcomes=True)) as live:
        live.control.outcomes["vm-a", "E-1"] = '{"result":"failed"}'
        assert live.get(path).body == b'{"result":"failed"}'
        assert live.get("/forewarn/outcomes/e-2").status == 404
        assert live.ask(request(path, metadata="")).status == 400


def test_node_asks_for_outcomes_of_its_own_vms(tmp_path: Path) -> None:
    """Those of other nodes' VMs are not shown to it. Source: X-1, M-5."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        node = await feed.node("n1")
        feed.control.outcomes |= {("web_0", "E"): "mine", ("web_1", "E"): "other"}
        mine = await node.feed_client.ask(OutcomeRequest("web_0", "E"))
        assert mine == RequestAnswer(accepted=True, outcome="mine")
        with pytest.raises(FeedLost):
            await node.feed_client.ask(OutcomeRequest("web_1", "E"))
        await node.stop()
        await feed.stop()

    run(story())
