"""Stopping a hook: it is asked, given its grace, and then ended with all it has started."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.agent.agents import Agent
from tests.agent.making import event
from tests.agent.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator

AHEAD = event(not_before_ms=4_000_000_000_000)


@pytest.fixture
def service() -> Iterator[Service]:
    """Run a service."""
    with Service() as one:
        yield one


def test_hook_that_ignores_the_request_is_ended(service: Service, tmp_path: Path) -> None:
    """Nothing goes on behind the agent's back once it says that the hook has ended."""
    pids = tmp_path / "pids"
    deaf = f"trap '' TERM; echo $$ >>{pids}; sleep 600 & echo $! >>{pids}; wait"
    with Agent(tmp_path, service.endpoint, prepare=deaf, timeout_s=0.3) as agent:
        service.show(AHEAD)
        agent.until_said("held")
        assert [pid for pid in pids.read_text().split() if runs(pid)] == []


def test_hook_is_given_its_grace(service: Service, tmp_path: Path) -> None:
    """A hook that tidies up when it is asked to end has ended when it has done so, not before."""
    tidy = f"trap 'touch {tmp_path}/tidied; exit 1' TERM; sleep 600 & wait"
    with Agent(tmp_path, service.endpoint, prepare=tidy, timeout_s=0.3) as agent:
        service.show(AHEAD)
        agent.until_said("held")
        assert (tmp_path / "tidied").exists()


def runs(pid: str) -> bool:
    """Tell whether a process runs; one that has ended and was not collected has no words."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except OSError:
        return False
