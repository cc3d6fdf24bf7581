"""A real Prometheus scrapes a real service and its node: rules evaluated, alerts fired, panels."""

import contextlib
import json
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from forewarn_core.access.roles import Role
from tests.access import seed_token
from tests.agent.programs import free_port, running
from tests.api.live import FLEET, Json
from tests.asking import EVENTS, ask
from tests.outbox.rig import Receiver
from tests.prometheus import Prometheus, running_prometheus
from tests.telemetry.test_dashboard import DASHBOARD, RULES
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

FORM = "application/json"
SERVICE = """
[listen]
metadata = ["127.0.0.1:{metadata}"]
operator = "127.0.0.1:{operator}"
metrics = "127.0.0.1:{metrics}"
[metadata]
vm_by_query = true
rate_per_s = 0
[operator]
open_on_loopback = true
[store]
url = "sqlite:///{place}/forewarn.db"
[drivers]
default = "broken"
[drivers.broken]
kind = "command"
begin = ["{python}", "-c", "raise SystemExit('the board does not answer')"]
[feed]
listen = "127.0.0.1:{feed}"
[outbox.bus]
kind = "webhook"
url = "{bus}"
"""
NODE = """
[listen]
metadata = ["127.0.0.1:0"]
metrics = "127.0.0.1:{node}"
[node]
follow = "127.0.0.1:{feed}"
store = "{place}/node"
name = "h1"
token = "{token}"
"""
#: Panels that show nothing before an event has passed its NotBefore.
EMPTY = {'forewarn_group_unapproved_events{instance=~".*"}'}


@dataclass
class Site:
    """A service with a node, and the Prometheus that scrapes them."""

    prometheus: Prometheus
    operator: str
    metadata: str
    #: The operation that its driver fails at.
    stuck: str = ""

    def call(self, path: str, form: object) -> Json:
        """Post to the operator API, and return the answer."""
        reply = ask(self.operator, "POST", path, form)
        assert reply.status < 300, reply
        return reply.json

    def document(self, vm: str) -> Json:
        """Return what a VM reads."""
        return ask(self.metadata, "GET", f"{EVENTS}&vm={vm}").json

    def approve(self, vm: str) -> None:
        """Approve every event that a VM is shown."""
        wanted = [{"EventId": each["EventId"]} for each in self.document(vm)["Events"]]
        reply = ask(self.metadata, "POST", f"{EVENTS}&vm={vm}", {"StartRequests": wanted})
        assert reply.status == 200, reply


def _is_up(operator: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{operator}/v1/health"):
        return True
    return False


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A VM's reboot is approved, and the driver fails at it while Prometheus looks on."""
    place = tmp_path_factory.mktemp("site")
    receiver = Receiver()
    names = ("metadata", "operator", "metrics", "feed", "node")
    ports: dict[str, object] = {name: free_port() for name in names}
    told = {**ports, "place": place, "python": sys.executable, "bus": receiver.url}
    told["token"] = seed_token(place / "forewarn.db", "h1", Role.NODE)
    (place / "service.toml").write_text(SERVICE.format(**told))
    (place / "node.toml").write_text(NODE.format(**told))
    forewarn = (sys.executable, "-m", "forewarn_server.cli.main")
    serve = (*forewarn, "serve", "--config", str(place / "service.toml"))
    node = (*forewarn, "node", "run", "--config", str(place / "node.toml"))
    jobs = {name: f"127.0.0.1:{ports[name]}" for name in ("metrics", "node")}
    jobs = {"forewarn": jobs["metrics"], "forewarn-nodes": jobs["node"]}
    with (
        running(*serve, log=place / "service.log"),
        running(*node, log=place / "node.log"),
        running_prometheus(place, jobs, RULES) as prometheus,
    ):
        metadata, operator = (f"127.0.0.1:{ports[name]}" for name in ("metadata", "operator"))
        wait_until(lambda: _is_up(operator), what="the service")
        yield _in_trouble(Site(prometheus, operator, metadata))
    receiver.close()


def _in_trouble(site: Site) -> Site:
    """Have an operation stuck after Prometheus has seen that none was."""
    assert ask(site.operator, "PUT", "/v1/topology", FLEET).status == 200
    results = site.prometheus.results
    up = 'up{job=~"forewarn.*"} == 1'
    wait_until(lambda: len(results(up)) == 2, what="both scraped")
    wait_until(lambda: results("forewarn_alerts_total == 0"), what="no alert")
    site.document("db-0")
    [site.stuck] = [each["id"] for each in site.call("/v1/vms/db-0/reboot", {})["operations"]]
    wait_until(lambda: site.document("db-0")["Events"], what="the event")
    site.approve("db-0")
    return site


def test_rules_are_evaluated(site: Site) -> None:
    """Prometheus loads every rule and evaluates it without an error."""

    def rules() -> list[Json]:
        groups = site.prometheus.ask("rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    wait_until(lambda: all(each["health"] != "unknown" for each in rules()))
    assert len(rules()) == RULES.read_text("utf-8").count("alert: ")
    assert [each["lastError"] for each in rules() if each["health"] != "ok"] == []


def test_failing_driver_fires_its_alert(site: Site) -> None:
    """An operation that its driver fails at alerts people, and nothing else does. Source: L-8."""
    expected = {("ForewarnNeedsOperator", "operation.stuck"), ("ForewarnDriverFails", "")}

    def fired() -> set[tuple[str, str]]:
        alerts = site.prometheus.firing()
        return {(each["alertname"], each.get("action", "")) for each in alerts}

    wait_until(lambda: fired() >= expected, what="the alerts")
    assert fired() == expected


def test_every_panel_is_answered(site: Site) -> None:
    """Each query of the dashboard is valid, and gives data where there is any."""
    queries = set()
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        for target in panel.get("targets", ()):
            text = target["expr"].replace("$__rate_interval", "1m").replace("$__range", "1h")
            queries.add(text.replace("$instance", ".*"))
    assert len(queries) > 30

    silent = set(queries)

    def answered() -> bool:
        silent.difference_update({query for query in silent if site.prometheus.results(query)})
        return silent <= EMPTY

    form = {"cause": "host-reboot", "hosts": ["h2"], "duration": "PT5M"}
    made = site.call("/v1/maintenances", form)["maintenance"]["id"]
    site.call(f"/v1/maintenances/{made}/start", {})
    site.call(f"/v1/operations/{site.stuck}/complete", {})
    wait_until(answered, what=lambda: f"data of {silent - EMPTY}")
    names = site.prometheus.ask("label/instance/values", **{"match[]": "forewarn_build_info"})
    assert len(names) == 2  # what the dashboard's choice of instances asks for
