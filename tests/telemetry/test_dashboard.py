"""The dashboard and the alert rules in `dist`: valid to promtool, and about metrics that exist."""

import asyncio
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from forewarn_base.settings import (
    FeedSettings,
    LifecycleSettings,
    ListenSettings,
    NodeSettings,
    Settings,
)
from forewarn_core.access.roles import Role
from forewarn_server.service.metadata_node import MetadataNode
from tests.agent.programs import program
from tests.api.live import FLEET, Live
from tests.outbox.rig import Receiver, delivering
from tests.telemetry.scraping import samples, scrape, value, with_metrics
from tests.waiting import wait_until

DIST = Path(__file__).resolve().parents[2] / "dist"
RULES = DIST / "prometheus" / "forewarn.rules.yml"
DASHBOARD = DIST / "grafana" / "forewarn.json"
METRIC = re.compile(r"\b(?:forewarn|process)_[a-z_]+\b")


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return what a service with worker, destination and work, and its node, answer."""
    receiver = Receiver()
    table = {"bus": {"kind": "webhook", "url": receiver.url}}
    settings = delivering(table, with_metrics())
    feed = FeedSettings(listen="127.0.0.1:0")
    lifecycle = LifecycleSettings(show_timeout_s=0.1)  # its nodes are away at first
    service = Live(replace(settings, feed=feed, lifecycle=lifecycle))
    service.fleet(**FLEET)
    service.enable("web-0", "db-0")
    form = {"cause": "host-reboot", "all": True, "duration": "PT5M"}
    made = service.call("POST", "/v1/maintenances", form).json["maintenance"]
    service.post(f"/v1/maintenances/{made['id']}/start")
    service.post("/v1/vms/db-0/reboot")
    service.advance(901)
    service.settle()
    node = asyncio.run(of_node(service, tmp_path_factory.mktemp("node")))
    yield scrape(service.daemon.metrics_address)[1] + node
    service.stop()
    receiver.close()


async def of_node(service: Live, store: Path) -> str:
    """Return what a metadata node that follows a service answers."""
    settings = Settings(
        listen=ListenSettings(metadata=("127.0.0.1:0",), metrics="127.0.0.1:0"),
        node=NodeSettings(
            follow=service.daemon.node_feed.address,
            store=str(store),
            name="h1",
            token=service.add_token("h1", Role.NODE),
        ),
    )
    node, ended, started = MetadataNode(settings), asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(node.run(ended, lambda _: started.set()))
    async with asyncio.timeout(30):
        await started.wait()
    _, text = await asyncio.to_thread(scrape, node.metrics_address)
    found = samples(text)
    assert value(found, "forewarn_node_feed_connected") == 1
    assert value(found, "forewarn_metadata_vms", process="node") == 2
    lag = frozenset({("node", "h1")})
    served = service.daemon.metrics_address

    def current() -> bool:
        return samples(scrape(served)[1]).get(("forewarn_feed_lag_changes", lag)) == 0

    await asyncio.to_thread(wait_until, current)
    ended.set()
    await running
    return text


def expressions() -> Iterator[str]:
    """Yield every expression of the dashboard and the rules."""
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    for line in RULES.read_text("utf-8").splitlines():
        if "expr:" in line:
            yield line.partition("expr:")[2]


def test_every_metric_that_is_looked_at_exists(exposed: str) -> None:
    """Dashboard and rules ask for nothing that no process exposes."""
    families = set(re.findall(r"^# TYPE (\S+) ", exposed, re.MULTILINE))
    known = families | {f"{each}_{end}" for each in families for end in ("bucket", "sum", "count")}
    asked = {name for each in expressions() for name in METRIC.findall(each)}
    assert len(asked) > 20
    assert asked <= known, asked - known


def test_every_metric_is_documented(exposed: str) -> None:
    """The reference has a line for each metric that a process exposes."""
    page = (DIST.parent / "docs" / "reference" / "metrics.md").read_text("utf-8")
    families = set(re.findall(r"^# TYPE (forewarn_\S+) ", exposed, re.MULTILINE))
    families = {each for each in families if not each.endswith("_created")}
    assert {each for each in families if f"`{each}`" not in page} == set()
    told = set(re.findall(r"^\| `(forewarn_[a-z_]+)`", page, re.MULTILINE))
    assert told - families == set()


def test_exposition_is_clean_to_promtool(exposed: str) -> None:
    """Prometheus's own linter finds nothing in what a service exposes."""
    served = exposed.partition("# HELP process_virtual_memory_bytes")[2]
    first = (
        "# HELP process_virtual_memory_bytes"
        + served.partition("# HELP process_virtual_memory_bytes")[0]
    )
    checked = subprocess.run(
        [program("promtool"), "check", "metrics"],
        input=first,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_rules_do_what_they_say() -> None:
    """Promtool finds the rules valid, and each alert fires when its test says so. Source: L-8."""
    promtool = program("promtool")
    subprocess.run([promtool, "check", "rules", RULES.name], cwd=RULES.parent, check=True)
    tests = "forewarn.rules.test.yml"
    subprocess.run([promtool, "test", "rules", tests], cwd=RULES.parent, check=True)
    alerts = set(re.findall(r"alert: (\w+)", RULES.read_text("utf-8")))
    tested = set(re.findall(r"alertname: (\w+)", (RULES.parent / tests).read_text("utf-8")))
    assert alerts == tested


def test_dashboard_has_no_panel_twice() -> None:
    """Panels have their own numbers and places, and each asks for something."""
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels)
    assert all(panel["targets"] for panel in panels if panel["type"] != "row")
