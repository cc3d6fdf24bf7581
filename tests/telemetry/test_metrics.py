"""Metrics of a running service, read as Prometheus reads them."""

from dataclasses import replace

from tests.api.live import Live
from tests.asking import ask
from tests.telemetry.scraping import Samples, samples, scrape, value, with_metrics
from tests.waiting import wait_until


def scraped(service: Live) -> Samples:
    """Return the samples of a service as they are now."""
    service.settle()
    status, text = scrape(service.daemon.metrics_address)
    assert status == 200, text
    return samples(text)


def since(found: Samples, stage: str, event_type: str = "Reboot") -> tuple[float, float]:
    """Return how many reached a stage, and the seconds that all of them took."""
    name = "forewarn_since_announced_seconds"
    labels = {"stage": stage, "event_type": event_type}
    count = found.get((f"{name}_count", frozenset(labels.items())), 0)
    return count, found.get((f"{name}_sum", frozenset(labels.items())), 0)


def test_notice_given_is_counted_against_owed(measured: Live) -> None:
    """Who starts at NotBefore has given at least the notice owed. Source: N-1."""
    measured.post("/v1/hosts/h1/reboot")
    measured.advance(901)
    found = scraped(measured)
    kind = {"event_type": "Reboot", "release": "due"}
    assert value(found, "forewarn_notice_given_seconds_count", **kind) == 1
    assert value(found, "forewarn_notice_given_seconds_sum", **kind) >= 900
    assert value(found, "forewarn_notice_owed_seconds_total", **kind) == 900
    assert value(found, "forewarn_notice_short_total", event_type="Reboot") == 0


def test_stages_are_timed_from_the_announcement(measured: Live) -> None:
    """Shown, seen by a poll, approved, started and ended each have their time. Source: L-1."""
    [operation] = measured.post("/v1/hosts/h1/reboot")["operations"]
    measured.settle()
    measured.enable("web-0", "db-0")
    wait_until(lambda: since(scraped(measured), "seen") == (2, 0))
    measured.advance(100)
    for event in operation["events"]:
        measured.post(f"/v1/operations/{event}/approve")
    measured.advance(20)
    measured.post(f"/v1/operations/{operation['id']}/complete")
    found = scraped(measured)
    assert since(found, "shown")[0] == 1
    assert since(found, "approved") == (2, 200)
    assert since(found, "started") == (1, 100)
    assert since(found, "ended") == (1, 120)
    ended = {"event_type": "Reboot", "outcome": "succeeded"}
    assert value(found, "forewarn_operations_ended_total", **ended) == 1
    early = {"event_type": "Reboot", "release": "early"}
    assert value(found, "forewarn_notice_given_seconds_count", **early) == 1


def test_groups_that_never_approve_are_named_until_they_do(measured: Live) -> None:
    """A group that polls and lets its event pass is counted; an approval clears it. A-1."""
    [first] = measured.post("/v1/vms/db-0/reboot")["operations"]
    measured.advance(901)
    found = scraped(measured)
    assert value(found, "forewarn_events_unapproved_total", event_type="Reboot") == 1
    assert value(found, "forewarn_groups_never_approving") == 1
    assert value(found, "forewarn_group_unapproved_events", group="db") == 1
    measured.post(f"/v1/operations/{first['id']}/complete")
    [second] = measured.post("/v1/vms/db-0/reboot")["operations"]
    measured.post(f"/v1/operations/{second['events'][0]}/approve")
    assert value(scraped(measured), "forewarn_groups_never_approving") == 0


def test_waits_are_counted_by_their_first_blocker(measured: Live) -> None:
    """What waits is counted by what it waits for first. Source: F-4."""
    measured.post("/v1/hosts/h1/reboot")
    measured.post("/v1/hosts/h2/reboot")
    found = scraped(measured)
    assert value(found, "forewarn_waits", blocker="approval") == 1
    assert value(found, "forewarn_waits", blocker="fault-domain") == 1
    announced = {"state": "announced", "event_type": "Reboot"}
    assert value(found, "forewarn_operations", **announced) == 1


def test_refused_records_are_counted(measured: Live) -> None:
    """A machine that the topology does not take gets no notice: somebody is to look."""
    measured.call("PUT", "/v1/topology", {"vms": {"a b": {"host": "h1"}}})
    assert value(scraped(measured), "forewarn_topology_refused") == 1


def test_maintenance_progress_is_counted_by_host(measured: Live) -> None:
    """Of a live maintenance, hosts are left, announced, running, done or failed. Source: F-1."""
    form = {"cause": "host-reboot", "all": True, "duration": "PT5M"}
    made = measured.call("POST", "/v1/maintenances", form).json["maintenance"]
    measured.post(f"/v1/maintenances/{made['id']}/start")
    wait_until(lambda: value(scraped(measured), "forewarn_maintenances", state="running") == 1)

    def hosts(state: str) -> float:
        name = "forewarn_maintenance_hosts"
        return value(scraped(measured), name, maintenance=made["id"], state=state)

    wait_until(lambda: hosts("announced") == 1)
    assert hosts("left") == 1
    assert hosts("running") == hosts("done") == hosts("failed") == 0


def test_driver_calls_are_counted_with_their_result(measured: Live) -> None:
    """Each call of a driver has its verb, result and time. Source: R-1."""
    measured.post("/v1/vms/db-0/reboot")
    measured.advance(901)
    labels = {"driver": "manual", "verb": "begin", "result": "ok"}
    name = "forewarn_driver_calls_total"
    wait_until(lambda: scraped(measured).get((name, frozenset(labels.items()))) == 1)
    timed = {"driver": "manual", "verb": "begin"}
    assert value(scraped(measured), "forewarn_driver_call_seconds_count", **timed) == 1


def test_metadata_plane_counts_what_is_rare(measured: Live) -> None:
    """Approvals, callers nobody knows and documents asked for are counted. Source: S-6."""
    with_vm = {"process": "service"}
    assert value(scraped(measured), "forewarn_metadata_vms", **with_vm) == 3
    name = "forewarn_metadata_documents_polled_total"
    wait_until(lambda: value(scraped(measured), name, **with_vm) >= 1)
    assert value(scraped(measured), "forewarn_metadata_unknown_callers_total", **with_vm) == 0


def test_only_metrics_are_answered(measured: Live) -> None:
    """Nothing else is to be had at that address, and nothing can be changed there."""
    address = measured.daemon.metrics_address
    assert scrape(address, "/v1/hosts")[0] == 404
    assert scrape(address, method="POST")[0] == 405
    rebound = ask(address, "GET", "/metrics", headers={"Host": "evil.example"})
    assert rebound.status == 400, "a page whose domain was made to resolve to this machine"


def test_labels_are_bounded_words(measured: Live) -> None:
    """No id of an event or operation, and no VM, is ever a label."""
    [operation] = measured.post("/v1/hosts/h1/reboot")["operations"]
    measured.advance(901)
    status, text = scrape(measured.daemon.metrics_address)
    assert status == 200
    for name in (*operation["events"], operation["id"], "web-0", "db-0", "h1"):
        assert f'"{name}"' not in text


def test_workers_are_scraped_with_the_service() -> None:
    """Each metadata worker's figures stand in the service's scrape, by its name. Source: M-1."""
    settings = with_metrics()
    with Live(replace(settings, listen=replace(settings.listen, workers=1))) as service:
        key = ("forewarn_metadata_vms", frozenset({("process", "worker 0")}))
        wait_until(lambda: key in scraped(service))
        lag = ("forewarn_feed_lag_changes", frozenset({("node", "worker 0")}))
        wait_until(lambda: scraped(service).get(lag) == 0)
        assert value(scraped(service), "forewarn_feed_nodes", state="current") == 1
