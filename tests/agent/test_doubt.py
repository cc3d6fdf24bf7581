"""A document that must be read twice before it is believed, as the running agent reads it."""

from pathlib import Path

from tests.agent.agents import Agent
from tests.agent.making import event
from tests.agent.service import Service

AHEAD = event(not_before_ms=4_000_000_000_000)


def test_second_reading_is_not_held(tmp_path: Path) -> None:
    """A service that started over is believed at once, not when it changes again. Source: B-2, E-9.

    The service holds an answer until the incarnation asked about is not the one it has.
    """
    with Service() as service, Agent(tmp_path, service.endpoint) as agent:
        service.show(incarnation=7)
        agent.until_said("named")
        service.until(lambda: "incarnation=7" in service.requests[-1], "the held poll")
        service.show(AHEAD, incarnation=1)
        service.until(lambda: service.approvals == ["E1"], "the approval")
        held = next(n for n, asked in enumerate(service.requests) if "incarnation=7" in asked)
        assert "wait=" not in service.requests[held + 1]
