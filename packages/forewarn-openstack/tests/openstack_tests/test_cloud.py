"""The nova driver carries each impact out on Nova itself, with fake hypervisors."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forewarn_base.values import replace
from forewarn_core.fleet.impact import Cause
from forewarn_drivers import Progress, Task
from forewarn_openstack.config import NovaConfig
from forewarn_openstack.driver import NovaDriver
from openstack_tests import tasks
from openstack_tests.cloud import Cloud
from openstack_tests.tasks import TASK_S, UNWARNED, look, nova, task
from tests.waiting import wait_until

#: Nova is not asked more often, in seconds.
LOOK_EVERY_S = 0.2
pytestmark = [pytest.mark.slow, UNWARNED]


@pytest.fixture
def config(cloud: Cloud, tmp_path: Path) -> NovaConfig:
    """What the driver is told."""
    return NovaConfig(cloud="test", clouds_file=str(cloud.clouds_file))


@pytest.fixture
def held(cloud: Cloud) -> Iterator[None]:
    """Live migrations do not end by themselves."""
    cloud.test("hold", on=True)
    yield
    cloud.test("hold", on=False)


@pytest.fixture(autouse=True)
def _emptied(cloud: Cloud) -> Iterator[None]:
    """Leave no server to the next test."""
    yield
    for each in cloud.get("/servers")["servers"]:
        cloud.delete(f"/servers/{each['id']}")
    wait(lambda: not cloud.get("/servers")["servers"])


def wait(true: Callable[[], object]) -> None:
    """Wait for Nova."""
    wait_until(true, what="Nova", limit_s=TASK_S, every_s=LOOK_EVERY_S)


def carried_out(driver: NovaDriver, given: Task) -> Progress:
    """Begin a task, and ask after it until it has ended."""
    return tasks.carried_out(driver, given, every_s=LOOK_EVERY_S)


def done(driver: NovaDriver, given: Task) -> bool:
    """Whether a task ends well."""
    return carried_out(driver, given).done


def begun(driver: NovaDriver, given: Task) -> Progress:
    """Begin a task; return what is said once Nova tells how far it is."""
    driver.begin(given)
    said: list[Progress] = []

    def under_way() -> bool:
        said.append(look(driver, given))
        return bool(said[-1].share or said[-1].failed)

    wait(under_way)
    return said[-1]


def test_freeze_moves_servers_alive(cloud: Cloud, config: NovaConfig) -> None:
    """The host is disabled meanwhile; a driver that has just started repeats nothing. R-2, R-5."""
    servers = [cloud.server(f"alive-{each}", "h1") for each in range(2)]
    cloud.post(f"/servers/{servers[1]}/action", {"os-stop": None})
    wait(lambda: cloud.seen(servers[1])[1] == "SHUTOFF")
    given = task(Cause.LIVE_MIGRATION, "h1", *servers)
    driver = nova(config)
    driver.begin(given)
    look(driver, given)
    reason = cloud.service("h1")["disabled_reason"]
    assert reason.startswith(f"forewarn {given.operation.id}@")
    said = carried_out(nova(config), given)
    assert said.done
    assert said.placements == {each: cloud.seen(each)[0] for each in servers}
    places = [cloud.seen(each) for each in servers]
    assert places[0][0] != "h1" != places[1][0]
    assert [status for _, status in places] == ["ACTIVE", "SHUTOFF"]
    assert cloud.service("h1")["status"] == "enabled"
    assert done(nova(config, "elsewhere"), given)
    assert [cloud.seen(each) for each in servers] == places


def test_abort_ends_a_live_migration_where_it_began(
    cloud: Cloud, config: NovaConfig, held: None
) -> None:
    """An operation that ended without its driver moves nothing any more. Source: L-7."""
    server = cloud.server("stays", "h1")
    given, driver = task(Cause.LIVE_MIGRATION, "h1", server), nova(config)
    said = begun(driver, given)
    assert said.text.startswith(f"migrating {server} to h")
    assert said.share == 0.25
    driver.abort(given)
    wait(lambda: not cloud.get(f"/servers/{server}/migrations")["migrations"])
    wait(lambda: cloud.seen(server) == ("h1", "ACTIVE"))
    assert cloud.service("h1")["status"] == "enabled"


@pytest.mark.parametrize(("fallback", "host"), [("give-up", True), ("force-complete", False)])
def test_long_migration_ends_as_the_policy_says(
    cloud: Cloud, config: NovaConfig, held: None, fallback: str, host: bool
) -> None:
    """Given up where it began, or completed by force. Source: R-5."""
    server = cloud.server("long", "h1")
    driver = nova(replace(config, migration_timeout_s=1, migration_fallback=fallback))
    given = task(Cause.LIVE_MIGRATION, "h1", server)
    said = carried_out(driver, given)
    assert said.done != host
    assert ("was aborted after 1 s" in said.failed) == host
    assert (cloud.seen(server)[0] == "h1") == host
    driver.abort(given)  # a host whose drain has failed stays disabled until then


def test_migration_without_room_fails_in_novas_words(cloud: Cloud, config: NovaConfig) -> None:
    """A host that does not exist is refused at once, by Nova. Source: R-5."""
    server = cloud.server("nowhere", "h1")
    given = task(Cause.LIVE_MIGRATION, "h1", server)
    elsewhere = Task(replace(given.operation, destination="h9"), given.generation)
    driver = nova(config)
    said = carried_out(driver, elsewhere)
    driver.abort(elsewhere)
    assert "Nova refuses POST" in said.failed
    assert "h9" in said.failed
    assert cloud.seen(server) == ("h1", "ACTIVE")


def test_redeploy_and_reimage_are_done_once(cloud: Cloud, config: NovaConfig) -> None:
    """Each step is another driver's, as after a crash at any point. Source: R-2, R-5."""
    server = cloud.server("redeployed", "h1")
    for cause, action, count in ((Cause.REDEPLOY, "migrate", 1), (Cause.REIMAGE, "rebuild", 1)):
        given = task(cause, cloud.seen(server)[0], server)
        nova(config).begin(given)
        wait(lambda given=given: look(nova(config), given).done)  # type: ignore[misc]
        found = cloud.get(f"/servers/{server}/os-instance-actions")["instanceActions"]
        assert sum(each["action"] == action for each in found) == count
    assert cloud.seen(server)[0] != "h1"


def test_host_reboot_and_update_leave_servers_as_they_were(
    cloud: Cloud, config: NovaConfig, tmp_path: Path
) -> None:
    """The command sees them off, or paused; afterwards they run. Source: R-5."""
    server, log = cloud.server("rebooted", "h2"), tmp_path / "log"
    ask = (
        "import sys, urllib.request as r; "
        f"print(r.urlopen('http://127.0.0.1:{cloud.port}/v2.1/servers/{server}').read()"
        ".decode().split('\"status\": \"')[1].split('\"')[0], file=open(sys.argv[1], 'a'))"
    )
    words = (sys.executable, "-c", ask, str(log))
    driver = nova(replace(config, reboot_command=words, update_command=words))
    for cause in (Cause.HOST_REBOOT, Cause.HOST_UPDATE):
        assert done(driver, task(cause, "h2", server))
        assert cloud.seen(server) == ("h2", "ACTIVE")
    assert log.read_text().split() == ["SHUTOFF", "PAUSED"]
    assert cloud.service("h2")["status"] == "enabled"


def test_lost_host_is_evacuated_and_removed_servers_are_gone(
    cloud: Cloud, config: NovaConfig
) -> None:
    """Once it is fenced its servers run elsewhere; an eviction deletes one. Source: R-5."""
    server = cloud.server("saved", "h3")
    cloud.test("down", host="h3")
    given = task(Cause.HOST_LOST, "h3", server)
    try:
        assert done(nova(replace(config, fence_command=("true",))), given)
        home, status = cloud.seen(server)
        assert (home != "h3", status) == (True, "ACTIVE")
        assert cloud.service("h3")["forced_down"] is True
    finally:
        cloud.test("up", host="h3")
    assert done(nova(config), task(Cause.EVICTION, home, server))
    listed = cloud.get("/servers?all_tenants=1")["servers"]
    assert server not in {each["id"] for each in listed}


def test_discovery_tells_of_hosts_servers_and_groups(cloud: Cloud, config: NovaConfig) -> None:
    """Zones, aggregates as labels, server groups as groups. Source: R-4, R-5."""
    made = cloud.post("/os-aggregates", {"aggregate": {"name": "row 7", "availability_zone": "z1"}})
    place = f"/os-aggregates/{made['aggregate']['id']}/action"
    cloud.post(place, {"set_metadata": {"metadata": {"rack": "r7", "fault_domain": "5"}}})
    cloud.post(place, {"add_host": {"host": "h2"}})
    form = {"name": "web", "policy": "anti-affinity"}
    group = cloud.post("/os-server-groups", {"server_group": form})["server_group"]["id"]
    server = cloud.test("server", name="grouped", group=group)
    found: dict[str, dict[str, dict[str, object]]] = nova(config).discover()  # type: ignore[assignment]
    assert set(found["hosts"]) == {"h1", "h2", "h3"}
    assert found["hosts"]["h2"] == {
        "driver": "nova", "zone": "z1", "fault_domain": 5, "update_domain": 1,
        "labels": {"aggregate/row_7": "member", "rack": "r7"},
    }  # fmt: skip
    assert found["vms"][server]["group"] == group
    assert found["vms"][server]["instance_id"] == server
    assert found["vms"][server]["tags"]["name"] == "grouped"  # type: ignore[index]
    assert group in found["groups"]
