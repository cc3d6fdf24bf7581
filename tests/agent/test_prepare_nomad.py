"""The Nomad preparation against a stand-in that speaks the documented HTTP API of a client."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.agent.programs import do, done
from tests.serving import HttpServer, Request

NODE = "f7476465-4d6e-c0de-26d0-e383c49be941"
EXPECTED_META = {"forewarn": "Reboot E1", "message": "forewarn: Reboot E1"}


class Nomad(HttpServer):
    """One client node, whose drain is complete once it has been looked at some times."""

    def __init__(self, *, looks: int = 1, client: bool = True) -> None:
        """Begin with a node in service and one running allocation."""
        self.node: dict[str, Any] = {"ID": NODE, "SchedulingEligibility": "eligible"}
        self.node |= {"DrainStrategy": None, "LastDrain": None}
        self.allocations = [{"ClientStatus": "running", "Job": {"Type": "service"}}]
        self.drains: list[dict[str, Any]] = []
        self.tokens: set[str] = set()
        self._looks = looks
        self._client = client
        super().__init__(self._respond)

    def drain(self, form: dict[str, Any]) -> None:
        """Begin a drain, or end it without a `DrainSpec`, as the servers do."""
        self.node["DrainStrategy"] = form["DrainSpec"]
        if form["DrainSpec"]:
            self.node["SchedulingEligibility"] = "ineligible"
            self.node["LastDrain"] = {"Status": "draining", "Meta": form.get("Meta")}
            self.drains.append(form)
        elif form.get("MarkEligible"):
            self.node["SchedulingEligibility"] = "eligible"

    def _respond(self, request: Request) -> tuple[int, bytes, dict[str, str]]:
        self.tokens.add(request.headers.get("x-nomad-token", ""))
        answer: object = {}
        match request.path.removeprefix("/v1/").replace(NODE, "ID"):
            case "agent/self":
                answer = {"stats": {"client": {"node_id": NODE}} if self._client else {}}
            case "node/ID/drain":
                self.drain(request.json)
            case "node/ID/eligibility":
                self.node["SchedulingEligibility"] = request.json["Eligibility"]
            case "node/ID/allocations":
                answer = self.allocations
            case "node/ID":
                answer = dict(self.node)
                if self.node["DrainStrategy"]:
                    self._looks -= 1
                    if self._looks <= 0:
                        self.node["DrainStrategy"] = None
                        self.allocations = [{"ClientStatus": "complete"}]
            case _:
                return 404, b"", {}
        return 200, json.dumps(answer).encode(), {}


def test_node_is_drained_until_the_deadline_and_eligible_again(tmp_path: Path) -> None:
    """The drain has the seconds that are left, and names the event. Source: J-3."""
    (tmp_path / "token").write_text("secret\n")
    with Nomad(looks=3) as nomad:
        settings = {"address": nomad.url, "token_file": str(tmp_path / "token")}
        assert done("nomad", "prepare", settings, tmp_path / "s") == "f7476465 is drained"
        [drain] = nomad.drains
        assert 1 <= drain["DrainSpec"]["Deadline"] / 1e9 <= 58
        assert (drain["Meta"], nomad.tokens) == (EXPECTED_META, {"secret"})
        assert done("nomad", "prepare", settings, tmp_path / "s") == "f7476465 is drained"
        assert len(nomad.drains) == 1
        assert done("nomad", "recover", settings, tmp_path / "s") == "f7476465 is eligible again"
        assert nomad.node["SchedulingEligibility"] == "eligible"


def test_event_that_is_cancelled_ends_the_drain(tmp_path: Path) -> None:
    """A drain that still runs is ended with the event. Source: J-3."""
    with Nomad(looks=10_000) as nomad:
        settings = {"address": nomad.url}
        result = do("nomad", "prepare", settings, tmp_path / "s", seconds=4)
        assert (result.returncode, "no allocation is left" in result.stderr) == (1, True)
        done("nomad", "recover", settings, tmp_path / "s")
        assert nomad.node["DrainStrategy"] is None
        assert nomad.node["SchedulingEligibility"] == "eligible"


@pytest.mark.parametrize("when", ["before", "after"])
def test_drain_of_an_administrator_stays(when: str, tmp_path: Path) -> None:
    """Only our own drain is undone. Source: J-3."""
    other = {"DrainSpec": {"Deadline": 10**9}, "Meta": {"message": "new disk"}}
    with Nomad() as nomad:
        if when == "before":
            nomad.drain(other)
        said = done("nomad", "prepare", {"address": nomad.url}, tmp_path / "s")
        assert said.endswith("by another administrator") == (when == "before")
        if when == "after":
            nomad.drain(other)
        done("nomad", "recover", {"address": nomad.url}, tmp_path / "s")
        assert nomad.node["SchedulingEligibility"] == "ineligible"


def test_agent_that_is_no_client_fails(tmp_path: Path) -> None:
    """A server has no node to drain."""
    with Nomad(client=False) as nomad:
        result = do("nomad", "prepare", {"address": nomad.url}, tmp_path / "s")
    assert (result.returncode, "is not a client" in result.stderr) == (1, True), result.stderr
