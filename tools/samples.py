"""`python -m tools.samples` stores files of this version for later compatibility tests.

The same changes run in a service on SQLite and on PostgreSQL. `tests/samples/VERSION` receives the
two stores, the answers of the operator API, and the journal of an
agent. Run it once for a release, as its last change: later versions only read the files.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

from forewarn.agent.core.agent_core import AgentCore
from forewarn.agent.core.identity import Identity
from forewarn.agent.core.rules import PreparationStep, default_rules
from forewarn.agent.core.values import DocumentPolled, HookEnded
from forewarn_base.protocol.documents import Document, ScheduledEvent
from forewarn_base.settings import OperatorSettings, StoreSettings
from forewarn_core.access.roles import Role
from tests.api.live import FLEET, SETTINGS, TOKEN, Live
from tests.postgres import running_postgres

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "tests" / "samples"
#: Requests to the API; the names in braces stand for a live event and a live maintenance.
ASKED = (
    *("hosts", "hosts/h1", "groups", "groups/web", "vms", "vms/web-0", "topology", "policy"),
    *("operations", "operations/op-1", "events", "events/{event}", "outcomes", "why?id=op-2"),
    *("maintenances", "maintenances/{maintenance}", "maintenances/{maintenance}/report"),
    *("blockers", "whoami"),
    *("history?limit=1000", "audit?limit=1000", "access", "access/tokens", "search?text=we"),
)


class Service(Live):
    """A service with tokens, on a store that is not deleted."""

    def __init__(self, url: str) -> None:
        """Start the service."""
        super().__init__(
            replace(
                SETTINGS,
                store=StoreSettings(url=url),
                operator=OperatorSettings(),
            )
        )

    def ask(self, method: str, path: str, form: object = None) -> Any:  # noqa: ANN401 - JSON
        """Send one request as an administrator and return the answer."""
        headers = {"Authorization": f"Bearer {TOKEN}"}
        if method == "POST":
            headers["Idempotency-Key"] = f"{path} {form}"
        reply = self.call(method, f"/v1/{path}", form, headers=headers)
        assert reply.status < 300, reply
        return reply.json


def tell_story(service: Service) -> None:
    """Create records of every kind in the store."""
    hosts: dict[str, dict[str, object]] = {**FLEET["hosts"], "h3": {}, "h4": {}}
    service.ask("PUT", "topology", {**FLEET, "hosts": hosts})
    service.enable("web-0", "db-0")
    service.ask("PUT", "policy", {"canary": 1, "pause": "5m"})
    service.ask("POST", "hosts/h1/reboot", {})  # op-1 ends
    service.settle()
    service.ask("POST", "operations/op-1/approve", {})
    service.ask("POST", "operations/op-1/complete", {"reason": "it is back"})
    service.ask("POST", "vms/web-0/reboot", {})  # op-2 stays announced
    service.ask("POST", "hosts/h4/update", {})  # op-3 runs and disturbs no VM
    service.ask("POST", "vms/db-0/redeploy", {})
    service.ask("POST", "operations/op-4/cancel", {"reason": "not today"})
    work = {"cause": "host-reboot", "duration": "10m"}
    made = service.ask("POST", "maintenances", {**work, "hosts": ["h2"], "reason": "new kernel"})
    service.ask("POST", f"maintenances/{made['maintenance']['id']}/start", {})
    service.ask("POST", "maintenances", {**work, "hosts": ["h3"]})
    service.ask("POST", "access/grant", {"principal": "kim", "role": "owner", "owner": "shop"})
    service.add_token("h1", Role.NODE)
    service.settle()


def answers(service: Service) -> dict[str, Any]:
    """Return the service's answer to each request."""
    event = service.ask("GET", "events")["events"][0]["id"]
    maintenance = service.ask("GET", "maintenances")["maintenances"][0]["id"]
    paths = [each.format(event=event, maintenance=maintenance) for each in ASKED]
    return {path: service.ask("GET", path) for path in paths}


def journal() -> dict[str, object]:
    """Return the journal of an agent that has prepared its VM for an event."""
    agent = AgentCore(Identity("web-0"), default_rules(((PreparationStep("drain"),),)))
    event = ScheduledEvent(event_id="E1", event_type="Reboot", resources=("web-0",))
    agent.step(DocumentPolled(Document(1, (event,))), 0)
    agent.step(HookEnded("drain", 0), 0)
    return agent.journal()


def make(target: Path) -> None:
    """Write the samples of this version."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    (target / "journal.json").write_text(json.dumps(journal(), indent=1) + "\n", "utf-8")
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder, "store.db")
        for record in (False, True):  # a restarted service answers from the stored state
            service = Service(f"sqlite://{store}")
            if record:
                text = json.dumps(answers(service), indent=1, sort_keys=True)
                (target / "api.json").write_text(f"{text}\n", "utf-8")
            else:
                tell_story(service)
            service.stop()
            if not record:
                shutil.copy(store, target)
    with running_postgres() as server, server.database("template0") as address:
        service = Service(address)
        tell_story(service)
        service.stop()
        dump = ["pg_dump", "--inserts", "--no-owner", "--no-privileges", f"--dbname={address}"]
        text = subprocess.run(dump, check=True, capture_output=True, text=True).stdout
        # A psql command in the dump that differs in each dump.
        lines = [each for each in text.splitlines() if each and not each.startswith(("--", "\\"))]
        (target / "store.dump").write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    make(SAMPLES / version)
    for path in sorted((SAMPLES / version).iterdir()):
        print(f"{path.stat().st_size:>8}  {path.relative_to(ROOT)}")
