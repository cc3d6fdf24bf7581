"""The marks hooks leave: what a restarted agent believes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from forewarn.agent.hooks import HookRoom
from forewarn.agent.log import Log
from forewarn.agent.runner import Runner
from forewarn.agent.settings import AgentSettings
from forewarn.clock import SystemClock
from forewarn.ids import Ids
from tests.agent.making import event
from tests.agent.service import Service
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path


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
        wait_until(lambda: len(list(hooks.glob("*.ended"))) == 2, what="both ends", limit_s=60)
        assert runner.core is not None
        while any(held.runs for held in runner.core.steps):
            runner.turn()
        runner.turn()
        assert len(list(hooks.glob("*.ended"))) == 2
        runner.close()
