"""A topology goes as one file says, a large one in portions, as one request would do it."""

import json
from pathlib import Path

import pytest

from forewarn_base.exit_codes import REFUSED
from forewarn_cli import topology as topology_commands
from forewarn_cli import topology_portions
from tests.api.live import FLEET, Live
from tests.cli.conftest import Run


@pytest.mark.parametrize("ending", ["json", "toml", "yaml"])
def test_large_topology_goes_in_portions(
    run: Run, live: Live, tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of any size is applied, tried and pruned as one request would do it."""
    monkeypatch.setattr(topology_portions, "WHOLE_BYTES_MAX", 10)
    monkeypatch.setattr(topology_portions, "PORTION", 3)
    monkeypatch.setattr(topology_portions, "REMOVED", 2)
    hosts = {f"n{n}": {"fault_domain": n} for n in range(8)}
    groups = {"app": {"owner": "shop"}, "empty": {}}
    vms = {f"app-{n}": {"host": f"n{n}", "group": "app"} for n in range(5)}
    vms |= {f"solo-{n}": {"host": "n6"} for n in range(2)}
    live.call("PUT", "/v1/topology?prune=true", {"hosts": hosts, "groups": groups, "vms": vms})
    whole = run("topology", "show", "--format", ending).out
    live.call("PUT", "/v1/topology?prune=true", FLEET)
    before = live.get("/v1/topology")
    file = tmp_path / f"fleet.{ending}"
    file.write_text(whole, "utf-8")
    tried = run("topology", "apply", str(file), "--prune", "--dry-run", "--json")
    assert live.get("/v1/topology") == before
    done = run("topology", "apply", str(file), "--prune", "--json")
    assert "part 1 of " in done.err
    assert {**tried.json, "applied": True} == done.json
    assert len(done.json["added"]) == 8 + 4 + 7
    assert len(done.json["removed"]) == 2 + 2 + 3
    assert json.loads(run("topology", "show", "--format", "json").out) == {
        "hosts": hosts | {"n0": {}},
        "groups": groups | {f"solo-{n}": {"kind": "lone"} for n in range(2)},
        "vms": {name: {"group": name, **form} for name, form in vms.items()},
    }


def test_portion_that_is_refused_is_the_last(
    run: Run, live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was applied before it stays, and nothing that follows it is sent."""
    monkeypatch.setattr(topology_portions, "WHOLE_BYTES_MAX", 10)
    monkeypatch.setattr(topology_portions, "PORTION", 1)
    vms: dict[str, object] = {f"p-{n}": {"host": "p", "group": "p"} for n in range(4)}
    vms["p-1"] = {"host": "p", "group": "p", "addresses": ["0.0.0.0"]}
    file = tmp_path / "fleet.json"
    file.write_text(json.dumps({"hosts": {"p": {}}, "groups": {"p": {}}, "vms": vms}))
    refused = run("topology", "apply", str(file))
    assert refused.status == REFUSED
    assert "vms.p-1.addresses[0] must be the address of one machine" in refused.err
    assert [name for name in live.get("/v1/topology")["vms"] if name in vms] == ["p-0"]


def test_answer_of_many_records_is_one_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --json a large answer is as complete as a small one, on one line."""
    file = tmp_path / "fleet.json"
    file.write_text(json.dumps({"hosts": {"q": {}, "r": {}}}))
    small = run("topology", "apply", str(file), "--dry-run", "--json")
    monkeypatch.setattr(topology_commands, "INDENTED_MAX", 1)
    large = run("topology", "apply", str(file), "--dry-run", "--json")
    assert large.json == small.json
    assert large.out.count("\n") == 1


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_topology_of_nothing_does_not_remove_the_fleet(
    run: Run, live: Live, tmp_path: Path, more: tuple[str, ...]
) -> None:
    """A file that names nothing is most likely one that could not be written."""
    file = tmp_path / "empty.toml"
    file.write_text("\n# nothing yet\n")
    before = live.get("/v1/topology")
    refused = run("topology", "apply", str(file), "--prune", *more)
    assert refused.status == REFUSED
    assert "The topology is empty" in refused.err
    assert live.get("/v1/topology") == before
    assert run("topology", "apply", str(file)).status == 0


def test_import_of_a_driver_takes_what_it_lists(run: Run, live: Live, tmp_path: Path) -> None:
    """Any kind of driver with `discover` takes part; unreachable hosts keep their VMs. R-4."""
    listed = tmp_path / "machines.json"
    config = tmp_path / "site.toml"
    config.write_text(
        '[drivers.manual]\nkind = "command"\nbegin = ["true"]\n'
        f'discover = ["cat", "{listed}"]\n[drivers.people]\nkind = "simulated"\n'
    )
    hosts = {"n7": {"zone": "2"}, "n8": {}}
    vms = {"app-7": {"host": "n7", "group": "app"}, "app-8": {"host": "n8", "group": "app"}}
    listed.write_text(json.dumps({"hosts": hosts, "groups": {"app": {"owner": "a"}}, "vms": vms}))
    command = ("topology", "import", "driver", "manual", "--config", str(config))
    assert run(*command, "--dry-run").status == 0
    assert "n7" not in live.get("/v1/topology")["hosts"]
    assert run(*command).status == 0
    topology = live.get("/v1/topology")
    assert topology["hosts"]["n7"]["zone"] == "2"
    assert topology["hosts"]["n7"]["driver"] == "manual"
    assert topology["groups"]["app"]["owner"] == "a"
    listed.write_text(json.dumps({"hosts": {"n7": {}}, "vms": {}, "silent": {"n7": "no power"}}))
    assert "host n7 does not answer: no power" in run(*command).err
    assert "app-7" in live.get("/v1/topology")["vms"]
    refused = run("topology", "import", "driver", "people", "--config", str(config))
    assert "[driver-discovery-missing]" in refused.err


@pytest.mark.parametrize("whole_bytes_max", [10, 1_000_000])
def test_revision_of_a_file_is_kept_in_history(
    run: Run, tmp_path: Path, whole_bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """History names the commit of a file that changed the fleet, once."""
    monkeypatch.setattr(topology_portions, "WHOLE_BYTES_MAX", whole_bytes_max)
    file = tmp_path / "fleet.json"
    file.write_text(json.dumps({"hosts": {"r1": {}, "r2": {}}}))
    command = ("topology", "apply", str(file), "--revision", "8c2f1e0")
    assert run(*command, "--dry-run").status == 0
    assert "revision 8c2f1e0: 2 added (2 hosts), 0 changed, 0 removed" in run(*command).err
    assert "revision 8c2f1e0: 0 added" in run(*command).err
    history = run("history", "--action", "topology.applied").out
    assert history.count("revision 8c2f1e0 of the topology is applied: 2 added") == 1


@pytest.mark.parametrize("whole_bytes_max", [10, 1_000_000])
def test_changes_are_summed_up_by_zone_and_owner(
    run: Run, live: Live, tmp_path: Path, whole_bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dry run shows how much each zone and owner gains and loses, moved VMs at their new host."""
    monkeypatch.setattr(topology_portions, "WHOLE_BYTES_MAX", whole_bytes_max)
    monkeypatch.setattr(topology_portions, "PORTION", 2)
    racks = {f"n{n}": {"zone": "b", "labels": {"rack": f"r{n}"}} for n in range(1, 12)}
    groups = {"app": {"owner": "shop"}}
    fleet = {
        "hosts": {"old": {"zone": "a"}, **racks},
        "groups": {**groups, "gone": {}},
        "vms": {name: {"host": "old", "group": name[:-2]} for name in ("app-1", "gone-1")},
    }
    live.call("PUT", "/v1/topology?prune=true", fleet)
    hosts = {name: {**form, "fault_domain": 1} for name, form in racks.items()}
    vms = {f"app-{n}": {"host": f"n{n}", "group": "app"} for n in range(1, 5)}
    file = tmp_path / "fleet.json"
    file.write_text(json.dumps({"hosts": hosts, "groups": groups, "vms": vms}))
    tried = run("topology", "apply", str(file), "--prune", "--dry-run")
    _, zones, owners = tried.out.split("\n\n")
    assert [line.split() for line in zones.splitlines()[1:]] == [
        ["a", "-1", "-1"],
        ["b", "r1,", "r2,", "r3", "and", "8", "more", "~11", "+3", "~1"],
    ]
    assert [line.split() for line in owners.splitlines()[1:]] == [
        ["(none)", "-1", "-1"],
        ["shop", "+3", "~1"],
    ]


def test_topology_shows_what_changes_in_a_record(run: Run, tmp_path: Path) -> None:
    """Old and new values of a few members, and a row of CSV for each record."""
    file = tmp_path / "fleet.json"
    labels = {f"k{n}": "v" for n in range(5)}
    hosts = {"h1": {"zone": "b", "labels": labels}, "h9": {}}
    vms = {"web-0": {"host": "h1", "group": "web", "size": "S2", "spot": False}}
    file.write_text(json.dumps({"hosts": hosts, "vms": vms}))
    words = ("topology", "apply", str(file), "--dry-run")
    shown = run(*words).out
    values = "zone (default) -> b, labels.k0 (default) -> v, labels.k1 (default) -> v"
    assert f"~ host h1: {values}, labels.k2 (default) -> v and 2 more\n" in shown
    assert "~ vm web-0: spot true -> (default), size (default) -> S2\n" in shown
    rows = [line.split(",")[:3] for line in run(*words, "-o", "csv").out.splitlines()]
    assert rows == [
        ["change", "kind", "name"],
        ["added", "host", "h9"],
        ["changed", "host", "h1"],
        ["changed", "vm", "web-0"],
    ]
