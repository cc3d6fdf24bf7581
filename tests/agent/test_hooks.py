"""The marks hooks leave: what a restarted agent believes of them."""

import json
import os
from pathlib import Path

import pytest

from forewarn.agent.child import OUTPUT_BYTES_MAX
from forewarn.agent.child_processes import FLOOD_MS, TRIM_MS, ChildProcesses
from forewarn.agent.core.identity import Identity
from forewarn.agent.core.rules import PreparationStep
from forewarn.agent.core.values import PrepareIntent
from forewarn.agent.hooks import HookRoom
from forewarn.agent.log import Log
from forewarn.agent.poller import BURST, SPACING_MS, Poller
from forewarn.agent.runner import Runner
from forewarn.agent.sdk.dialogue import Dialogue
from forewarn.agent.settings import AgentSettings
from forewarn_base.clock import SystemClock
from forewarn_base.ids import Ids
from tests.agent.making import event
from tests.agent.service import Service
from tests.waiting import wait_until


@pytest.mark.parametrize(
    ("marks", "fate"),
    [
        ({}, "never"),
        ({"begun": ""}, "never"),
        ({"begun": "1\n"}, "interrupted"),
        ({"begun": "1\n", "ended": "143\n"}, "143"),
        ({"begun": "1\n", "ended": "1"}, "interrupted"),
        ({"begun": "1\n", "ended": ""}, "interrupted"),
        ({"begun": "1\n", "ended": "\0\0\0\n"}, "interrupted"),
    ],
    ids=[
        "none",
        "empty begin",
        "no end",
        "whole",
        "end cut short",
        "empty end",
        "zeroed by a crash",
    ],
)
def test_mark_is_believed_only_when_it_is_whole(
    tmp_path: Path, marks: dict[str, str], fate: str
) -> None:
    """A hook that was cut off is never taken for one that succeeded. Source: C-9."""
    for ending, text in marks.items():
        (tmp_path / f"7.{ending}").write_text(text)
    assert HookRoom(str(tmp_path)).fate("7") == (fate, None)


def test_marks_stay_until_every_end_is_written_down(tmp_path: Path) -> None:
    """Of two hooks that end at once, neither is forgotten before its end is in the journal."""
    steps = [
        {
            "name": name,
            "timeout_s": 60.0,
            "on_failure": "hold",
            "repeatable": False,
            "spec": {"prepare": ["sh", "-c", f"until [ -e {tmp_path}/go ]; do sleep 0.01; done"]},
        }
        for name in ("one", "two")
    ]
    rule = {"name": "both", "match": {}, "action": "prepare", "steps": [["one", "two"]]}
    with Service() as service:
        form = {"endpoint": service.endpoint, "name": "vm_0", "state_dir": str(tmp_path)}
        settings = AgentSettings({**form, "steps": steps, "rules": [rule]})
        runner = Runner(settings, clock=SystemClock(), ids=Ids(), log=Log())
        service.show(event(not_before_ms=4_000_000_000_000))
        while not list((tmp_path / "hooks").glob("*.json")):
            runner.turn()
        blocked = tmp_path / "journal.1"  # where the second of the two ends will be written
        blocked.unlink()
        blocked.mkdir()
        hooks = tmp_path / "hooks"
        (tmp_path / "go").touch()
        wait_until(lambda: len(list(hooks.glob("*.ended"))) == 2, what="both ends")
        for begun in hooks.glob("*.begun"):  # the shells that wrote the marks end a little later
            os.waitid(os.P_PID, int(begun.read_text()), os.WEXITED | os.WNOWAIT)
        assert runner.core is not None
        while any(held.runs for held in runner.core.steps):
            runner.turn()
        runner.turn()
        assert len(list(hooks.glob("*.ended"))) == 2
        runner.close()


def test_output_that_floods_is_dropped_as_it_comes(tmp_path: Path) -> None:
    """A hook that prints without end fills no disk; it is looked at all the more often."""
    settings = AgentSettings({"stop_grace_s": 0.1})
    children = ChildProcesses(HookRoom(str(tmp_path / "hooks")), Identity("vm_0"), settings)
    flood = f"head -c {4 * OUTPUT_BYTES_MAX} /dev/zero; exec sleep 600"
    spec = json.dumps({"prepare": ["sh", "-c", flood]})
    step = PreparationStep("drain", spec=spec)
    intent = PrepareIntent("drain", step, event=event(), deadline_ms=0, attempt=1, run=1)
    children.start(intent)
    output = tmp_path / "hooks" / "1.out"
    wait_until(
        lambda: output.exists() and output.stat().st_size >= 4 * OUTPUT_BYTES_MAX, what="the flood"
    )
    assert children.ended(1000) == ()
    assert output.stat().st_size == 0
    assert children.next_ms(1000) == 1000 + FLOOD_MS
    assert children.ended(1000 + FLOOD_MS) == ()
    assert children.next_ms(1000 + FLOOD_MS) == 1000 + FLOOD_MS + TRIM_MS
    children.stop("drain", "test", now_ms=0)
    wait_until(lambda: children.ended(5000), what="its end")


def test_falling_incarnations_are_read_at_the_usual_pace() -> None:
    """A service whose documents are doubtful each time is not asked faster for it. Source: E-6."""
    poller = Poller(Dialogue(("http://127.0.0.1:9",)), Ids(1), interval_s=1.0)
    pauses_ms = []
    for number in range(1, 10):
        begun_ms = number * 100_000
        poller._begun_ms = begun_ms
        poller._due_ms = begun_ms + 60_000
        poller.poll_soon()
        pauses_ms.append(poller.next_ms() - begun_ms)
    assert pauses_ms == [SPACING_MS] * BURST + [1000] * (9 - BURST)
