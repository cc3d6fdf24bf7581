"""The provider's steps, run as programs against a service with a tenant's token.

The rules are those of the suite: a flag without a record proves nothing.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from forewarn_base.settings import OperatorSettings
from forewarn_conformance.provider.__main__ import main
from forewarn_conformance.provider.steps import STEPS
from forewarn_core.access.roles import Role
from tests.api.live import FLEET, SETTINGS, TOKEN, Json, Live

CLOSED = replace(SETTINGS, operator=OperatorSettings())


class Site:
    """A service whose shop has VMs on h1 and h2, and a bank without any."""

    def __init__(self) -> None:
        """Start it, with a rack r1 that has h1."""
        self.live = Live(CLOSED)
        owners = ("shop", "bank")
        self.tokens = {name: self.live.add_token(name, Role.OWNER, name) for name in owners}
        hosts = {**FLEET["hosts"]}
        hosts["h1"] = {**hosts["h1"], "labels": {"rack": "r1"}}
        self.operator("PUT", "/v1/topology", {**FLEET, "hosts": hosts})
        self.live.enable("web-0", "db-0")

    def operator(self, method: str, path: str, form: object = None) -> Json:
        """Return the answer to an operator's call."""
        headers = {"Authorization": f"Bearer {TOKEN}"}
        reply = self.live.call(method, path, form, headers=headers)
        assert reply.status < 300, reply.json
        return reply.json

    def step(self, step: str, *options: str, tenant: str = "shop") -> dict[str, Any]:
        """Run a step as a program, and return its object."""
        command = [sys.executable, "-m", "forewarn_conformance.provider", step, *options]
        environment = {
            **os.environ,
            "FOREWARN_SERVER": self.live.url,
            "FOREWARN_TOKEN": self.tokens[tenant],
        }
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        answer: dict[str, Any] = json.loads(done.stdout)
        assert (done.returncode == 0) == (answer["success"] or "skipped" in answer)
        return answer


@pytest.fixture
def site() -> Iterator[Site]:
    """A service with two tenants."""
    site = Site()
    with site.live:
        yield site


def test_steps_invent_no_record(site: Site) -> None:
    """A site without work has none, and says so. Source: T-10."""
    for step, member in (
        ("query_maintenance_events", "events"),
        ("query_retirement_notices", "notices"),
        ("query_repair_history", "records"),
        ("query_planned_notifications", "notifications"),
        ("query_failure_notifications", "notifications"),
    ):
        answer = site.step(step, "--region", "eu-1")
        assert (answer["success"], answer[member]) == (True, [])


def test_steps_report_what_concerns_the_tenant(site: Site) -> None:
    """Work, notices and repairs of its hosts, and of no other tenant's. Source: P-3, T-10."""
    reboot = site.operator("POST", "/v1/hosts/h1/reboot", {})["operations"][0]
    site.live.settle()
    retirement = {"type": "retirement", "target_kind": "rack", "target": "r1"}
    retirement |= {"description": "end of life", "due": "2027-06-01T00:00:00Z"}
    site.operator("POST", "/v1/tickets", retirement)
    repair = {"type": "repair", "target_kind": "host", "target": "h1", "category": "gpu"}
    site.operator("POST", "/v1/tickets", repair | {"description": "GPU replaced"})
    [event] = site.step("query_maintenance_events", "--machine-id", "h1")["events"]
    assert (event["machine_id"], event["status"], event["id"]) == ("h1", "announced", reboot["id"])
    [notice] = site.step("query_retirement_notices")["notices"]
    assert (notice["target_type"], notice["target_id"]) == ("rack", "r1")
    assert notice["not_before"] == "2027-06-01T00:00:00Z"
    [record] = site.step("query_repair_history")["records"]
    assert record["machine_id"] == "h1"
    assert [each["description"] for each in record["entries"]] == ["GPU replaced"]
    assert [
        e["id"] for e in site.step("query_retirement_notices", "--machine-id", "h1")["notices"]
    ] == [notice["id"]]
    [planned] = site.step("query_planned_notifications")["notifications"]
    assert (planned["machine_id"], planned["type"]) == ("h1", "planned")
    assert planned["notified_at"].endswith("Z")
    assert site.step("query_failure_notifications")["notifications"] == []
    assert site.step("query_retirement_notices", tenant="bank")["notices"] == []


def test_work_that_nobody_was_told_of_is_no_notification(site: Site) -> None:
    """A VM that never polled has no event, so its owner was not notified. Source: T-10."""
    fleet = {
        "hosts": {**FLEET["hosts"], "h3": {}},
        "groups": {**FLEET["groups"], "quiet": {"owner": "shop"}},
        "vms": {**FLEET["vms"], "quiet-0": {"host": "h3", "group": "quiet"}},
    }
    site.operator("PUT", "/v1/topology", fleet)
    site.operator("POST", "/v1/hosts/h3/reboot", {})
    site.live.settle()
    assert site.step("query_maintenance_events", "--machine-id", "h3")["events"]
    assert site.step("query_planned_notifications", "--machine-id", "h3")["notifications"] == []


def test_declared_work_is_an_event_and_a_notification(site: Site) -> None:
    """The owner has known of it since the declaration. Source: T-1, T-10."""
    form = {"cause": "host-reboot", "hosts": ["h1"], "duration": 600, "reason": "firmware"}
    site.operator("POST", "/v1/maintenances", form)
    site.operator("POST", "/v1/maintenances/m-1/declare", {"hand_back": "P21D"})
    [event] = site.step("query_maintenance_events", "--machine-id", "h1")["events"]
    assert (event["machine_id"], event["status"]) == ("h1", "declared")
    assert (event["message"], event["id"]) == ("firmware", "m-1")
    [told] = site.step("query_planned_notifications")["notifications"]
    assert (told["id"], told["notified_at"][-1]) == ("m-1", "Z")
    assert site.step("query_maintenance_events", tenant="bank")["events"] == []


def test_returned_node_and_rack_are_tickets(site: Site) -> None:
    """Each is one record that the operator sees, however often it is asked. Source: T-9."""
    node, again = (
        site.step("return_node_maintenance", "--machine-id", "h1")["operation"] for _ in range(2)
    )
    assert again == node
    rack = site.step("return_rack_maintenance", "--rack-id", "r1")["operation"]
    assert (node["accepted"], node["machine_id"], node["maintenance_mode"]) == (True, "h1", False)
    assert (rack["accepted"], rack["rack_id"]) == (True, "r1")
    tickets = site.operator("GET", "/v1/tickets?type=report")["tickets"]
    assert {each["id"] for each in tickets} == {node["id"], rack["id"]}


def test_step_about_a_foreign_node_fails(site: Site) -> None:
    """A tenant returns only what it uses. Source: P-3."""
    answer = site.step("return_node_maintenance", "--machine-id", "h1", tenant="bank")
    assert (answer["success"], "operation" in answer) == (False, False)


@pytest.mark.parametrize("step", ["cordon_node", "request_host_replacement"])
def test_step_that_is_not_offered_is_skipped_with_a_reason(
    step: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It claims nothing. Source: T-9."""
    assert main([step, "--machine-id", "h1"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["success"], answer["skipped"]) == (False, True)
    assert answer["reason"]


def test_every_step_of_the_suite_has_an_answer() -> None:
    """The nine steps by their names in the suite."""
    assert len(STEPS) == 9
