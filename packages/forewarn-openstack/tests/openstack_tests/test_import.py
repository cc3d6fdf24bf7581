"""The topology is taken over from Nova, and kept in step with it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn_cli.topology_import import Importer
from forewarn_openstack.config import NovaConfig
from forewarn_openstack.discovery import NovaSource
from forewarn_server.cli.api_client import ApiClient
from forewarn_server.cli.main import main
from openstack_tests.keystone import PROJECT
from openstack_tests.small_cloud import SmallCloud
from openstack_tests.tasks import UNWARNED
from tests.api.live import Live
from tests.clock import VirtualClock

pytestmark = UNWARNED

LOST_AFTER_S = 60


@pytest.fixture
def live() -> Iterator[Live]:
    """A service that knows nothing."""
    with Live() as service:
        yield service


def topology(live: Live) -> dict[str, dict[str, dict[str, object]]]:
    """Return what the service knows."""
    found: dict[str, dict[str, dict[str, object]]] = live.get("/v1/topology?format=json")
    return found


def test_import_takes_over_hosts_servers_and_groups(
    live: Live, small: SmallCloud, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Zones and aggregates become zones, domains and labels. Source: R-4, R-5."""
    first, second = small.server("web-0"), small.server("web-1", "h2")
    metadata = {"availability_zone": "z1", "fault_domain": "4", "rack": "r 7,8"}
    small.aggregates.append({"name": "row/1", "hosts": ["h1"], "metadata": metadata})
    small.group("a-group", "web", first, second)
    settings = tmp_path / "forewarn.toml"
    settings.write_text(
        f'[drivers.manual]\nkind = "nova"\ncloud = "test"\nclouds_file = "{small.clouds_file}"\n'
    )
    words = (
        "topology",
        "import",
        "nova",
        "manual",
        "--config",
        str(settings),
        "--server",
        live.url,
    )
    assert main([*words]) == 0
    known = topology(live)
    assert known["hosts"]["h1"]["fault_domain"] == 4
    assert known["hosts"]["h1"]["labels"] == {"aggregate/row/1": "member", "rack": "r_7_8"}
    assert known["hosts"]["h2"]["zone"] == "nova"
    assert known["hosts"]["h2"]["driver"] == "manual"
    vm = known["vms"][second]
    assert (vm["host"], vm["group"], vm["instance_id"]) == ("h2", "a-group", second)
    capsys.readouterr()
    assert main([*words]) == 0
    assert capsys.readouterr().err == ""


def test_following_keeps_in_step(live: Live, small: SmallCloud, tmp_path: Path) -> None:
    """A server that moved or is gone; a host whose service is down is reported lost once. L-4."""
    config = NovaConfig(cloud="test", clouds_file=small.clouds_file, lost_after_s=LOST_AFTER_S)
    clock = VirtualClock(1)
    importer = Importer(ApiClient(live.url), NovaSource(config, "manual"), clock=clock)
    moving, going = small.server("web-0"), small.server("web-1")
    importer.turn()
    assert topology(live)["vms"][moving]["host"] == "h1"
    small.servers[moving]["OS-EXT-SRV-ATTR:host"] = "h2"
    del small.servers[going]
    importer.turn()
    assert topology(live)["vms"].keys() == {moving}
    assert topology(live)["vms"][moving]["host"] == "h2"
    small.services["h2"]["state"] = "down"
    for _ in range(3):
        importer.turn()
        clock.advance(LOST_AFTER_S * 1000)
    operations = live.get("/v1/operations")["operations"]
    assert [(each["cause"], each["host"]) for each in operations] == [("host-lost", "h2")]


def by_name(live: Live, small: SmallCloud, tmp_path: Path) -> Importer:
    """Return what calls VMs by their servers' names."""
    config = NovaConfig(cloud="test", clouds_file=small.clouds_file, vm_names="name")
    return Importer(ApiClient(live.url), NovaSource(config, "manual"))


def test_names_are_those_of_a_project(live: Live, small: SmallCloud, tmp_path: Path) -> None:
    """What has no name of its own there, or one that cannot be, is called by its id."""
    small.server("web_0")
    odd = [small.server("twin"), small.server("twin"), small.server("what?")]
    by_name(live, small, tmp_path).turn()
    assert topology(live)["vms"].keys() == {f"{PROJECT}.web_0", *odd}


def test_another_project_cannot_take_a_group_over(
    live: Live, small: SmallCloud, tmp_path: Path
) -> None:
    """Neither by a server nor by a server group of the same name; nor end what is there."""
    small.group("a-group", "web", small.server("web-0"))
    small.server("db")
    importer = by_name(live, small, tmp_path)
    importer.turn()
    before = topology(live)["vms"]
    foreign = [small.server(name, project="b") for name in ("web-0", "web", "db")]
    small.group("b-group", "web", foreign[0], project="b")
    small.group("c-group", "db", foreign[1], project="b")
    importer.turn()
    after = topology(live)["vms"]
    assert before.items() <= after.items()
    own = {each["group"] for each in before.values()}
    assert own.isdisjoint(after[name]["group"] for name in after.keys() - before.keys())


@pytest.mark.parametrize("name", ["web\u3000one", "web\u00a0one"])
def test_server_moves_whatever_its_name(
    live: Live, small: SmallCloud, tmp_path: Path, name: str
) -> None:
    """A tag that cannot be shown keeps no notice from its new host."""
    config = NovaConfig(cloud="test", clouds_file=small.clouds_file)
    importer = Importer(ApiClient(live.url), NovaSource(config, "manual"))
    moving = small.server("web")
    importer.turn()
    small.servers[moving] |= {"name": name, "OS-EXT-SRV-ATTR:host": "h2"}
    importer.turn()
    vm = topology(live)["vms"][moving]
    assert vm["host"] == "h2"
    assert vm["tags"] == {"name": "web one", "project": PROJECT}


def test_server_moves_though_the_rest_of_its_record_is_refused(
    live: Live, small: SmallCloud, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Notices follow the server; what was refused is said."""
    config = NovaConfig(cloud="test", clouds_file=small.clouds_file)
    importer = Importer(ApiClient(live.url), NovaSource(config, "manual"))
    moving = small.server("web")
    importer.turn()
    small.servers[moving]["OS-EXT-SRV-ATTR:host"] = "h2"
    small.group("not a name", "web", moving)
    importer.turn()
    assert topology(live)["vms"][moving]["host"] == "h2"
    assert "not a name" in capsys.readouterr().err
