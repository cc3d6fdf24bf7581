"""Real agents and applications, killed again and again: prepared once, recovered once."""

import contextlib
import random
import subprocess
import sys
from pathlib import Path

import pytest

from forewarn_base.protocol.documents import ScheduledEvent
from tests.agent.agents import Agent
from tests.agent.making import event
from tests.agent.service import Fault, Service, reset, status

pytestmark = pytest.mark.slow

LIFE_S_MAX = 0.5  # it is up and at work after 0.15 s; where it is not, it lives longer
#: Kills without an act after which a life may be twice as long: the machine is slow.
PATIENCE = 40
FAR_MS = 4_000_000_000_000
ODD: tuple[Fault, ...] = (
    status(200, b'{"DocumentIncarnation":0,"Events":[]}'),
    status(200, b""),
    status(200, b"<html>"),
    status(400, b"an odd version of an answer"),
    status(404, b"{}"),
    status(410),
    status(429, Retry_After="3600"),
    status(500),
    reset,
)


def scheduled(number: int) -> ScheduledEvent:
    """Return the event of a number, far ahead."""
    return event(f"E{number}", not_before_ms=FAR_MS)


@pytest.mark.parametrize(
    ("kind", "kills_min"),
    [
        ("agent", 12),
        ("handler", 12),
        pytest.param("agent", 500, marks=pytest.mark.nightly),
        pytest.param("handler", 200, marks=pytest.mark.nightly),
        pytest.param("async handler", 200, marks=pytest.mark.nightly),
    ],
)
def test_killed_client_prepares_and_recovers_each_event_once(
    kind: str, kills_min: int, tmp_path: Path
) -> None:
    """Killed at any moment, among odd answers. Source: C-7, C-9, invariant 14."""
    dice = random.Random(1)
    shown, kills = 0, 0
    prepare = "sleep 0.1"
    with Service(waits=False) as service, Agent(tmp_path, service.endpoint, prepare=prepare) as one:
        if kind != "agent":
            program = [sys.executable, str(Path(__file__).with_name("application.py"))]
            one.command = [*program, str(tmp_path), service.endpoint, *kind.split()[:-1]]
        one.kill()
        idle = 0
        while kills < kills_min or shown % 2:
            acts = _acts(tmp_path)
            event_id = f"E{shown // 2}"
            if not shown % 2 and len(acts) == shown:
                shown += 1
                service.show(scheduled(shown // 2))
            elif shown % 2 and f"E{shown // 2}" in service.approvals:
                shown += 1
                service.show()
            service.faults = [dice.choice(ODD) for _ in range(dice.randrange(3))]
            one.start()
            assert one.process is not None
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.process.wait(dice.random() * LIFE_S_MAX * 2 ** (idle // PATIENCE))
            one.kill()
            kills += 1
            idle = 0 if _acts(tmp_path) != acts else idle + 1
            assert kills < 20 * kills_min, f"{event_id} comes to no end"
        service.faults = []
        one.start()
        one.until_acts(*(["prepare", "recover"] * (shown // 2)))
    each = [act.split() for act in _acts(tmp_path)]
    wanted = [(act, f"E{n}") for n in range(shown // 2) for act in ("prepare", "recover")]
    assert [tuple(one) for one in each] == wanted


def _acts(directory: Path) -> list[str]:
    path = directory / "acts"
    return path.read_text().splitlines() if path.exists() else []
