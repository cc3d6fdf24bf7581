"""The topology is taken over from Nova, and kept in step with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from forewarn.cli.api_client import ApiClient
from forewarn.cli.main import main
from forewarn.cli.topology_import import Importer
from forewarn.cli.topology_nova import NovaSource
from forewarn.clock import VirtualClock
from forewarn.drivers.nova.config import NovaConfig
from tests.nova.tasks import UNWARNED
from tests.operator_api.live import Live

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.nova.small_cloud import SmallCloud

pytestmark = UNWARNED

LOST_AFTER_S = 60


@pytest.fixture
def live() -> Iterator[Live]:
    """A service that knows nothing."""
    service = Live()
    yield service
    service.stop()


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
    small.groups.append({"id": "a-group", "name": "web", "members": [first, second]})
    settings = tmp_path / "forewarn.toml"
    settings.write_text(
        f'[drivers.manual]\nkind = "nova"\nstate = "{tmp_path}"\ncloud = "test"\n'
        f'clouds_file = "{small.clouds_file}"\n'
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
    config = NovaConfig(
        str(tmp_path), cloud="test", clouds_file=small.clouds_file, lost_after_s=LOST_AFTER_S
    )
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


def test_servers_without_a_name_of_their_own_are_left_out(
    live: Live, small: SmallCloud, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where VMs are called by their servers' names; said once."""
    config = NovaConfig(str(tmp_path), cloud="test", clouds_file=small.clouds_file, vm_names="name")
    importer = Importer(ApiClient(live.url), NovaSource(config, "manual"))
    small.server("web_0")
    twins = [small.server("twin"), small.server("twin")]
    for _ in range(2):
        importer.turn()
    assert topology(live)["vms"].keys() == {"web_0"}
    said = capsys.readouterr().err
    assert [said.count(each) for each in twins] == [1, 1]
