"""Every scenario that comes with Forewarn, told through the real ports and checked step by step.

No scenario may be only read in here; that is `test_scenario_files.py`.
"""

from collections.abc import Callable

import pytest

from emulator_tests.conftest import Stage
from forewarn_core.fleet.refusals import Unknown
from forewarn_emulator.scenario_files import shipped
from forewarn_server.cli.api_client import ApiRefused

#: Just behind a NotBefore of 15, 10, 5 minutes or 30 seconds: the margin and whole seconds.
PAST_15M, PAST_10M, PAST_5M, PAST_30S = "902s", "602s", "302s", "32s"

Told = tuple[tuple[str, list[str]], ...]

#: Scenario -> acts and what the default VM sees after each: "" begins, "approve" approves all it
#: sees, anything else lets so much time pass.
STORIES: dict[str, Told] = {
    "live-migration": (
        ("", ["Freeze Scheduled vm-1 Platform 5"]),
        (PAST_15M, ["Freeze Started vm-1 Platform 5"]),
        ("5s", []),
    ),
    "host-update": (
        ("", ["Freeze Scheduled vm-1 Platform 9"]),
        (PAST_15M, ["Freeze Started vm-1 Platform 9"]),
        ("9s", []),
    ),
    "network-update": (
        ("", ["Freeze Scheduled vm-1 Platform 0"]),
        ("15m", ["Freeze Scheduled vm-1 Platform 0"]),
        ("2s", []),
    ),
    "host-reboot": (
        ("", ["Reboot Scheduled vm-1 Platform 300"]),
        ("approve", ["Reboot Started vm-1 Platform 300"]),
        ("299s", ["Reboot Started vm-1 Platform 300"]),
        ("1s", []),
    ),
    "user-reboot": (
        ("", ["Reboot Scheduled vm-1 User -1"]),
        ("approve", ["Reboot Started vm-1 User -1"]),
        ("60s", []),
    ),
    "user-redeploy": (
        ("", ["Redeploy Scheduled vm-1 User -1"]),
        (PAST_10M, ["Redeploy Started vm-1 User -1"]),
        ("180s", []),
    ),
    "degraded-hardware": (
        ("", ["Redeploy Scheduled vm-1 Platform -1"]),
        ("6d", ["Redeploy Scheduled vm-1 Platform -1"]),
        ("86402s", ["Redeploy Started vm-1 Platform -1"]),
        ("180s", []),
    ),
    "hardware-failure": (
        ("", ["Reboot Started vm-1 Platform -1"]),
        ("approve", ["Reboot Started vm-1 Platform -1"]),
        ("300s", []),
    ),
    "host-lost": (
        ("", ["Redeploy Started vm-1 Platform -1"]),
        ("300s", []),
    ),
    "prediction-comes-true": (
        ("", ["Redeploy Scheduled vm-1 Platform -1"]),
        ("1h", ["Reboot Started vm-1 Platform -1"]),
        ("300s", []),
    ),
    "cancelled-maintenance": (
        ("", ["Reboot Scheduled vm-1 Platform -1"]),
        ("119s", ["Reboot Scheduled vm-1 Platform -1"]),
        ("1s", []),
    ),
    "image-upgrade": (
        ("", ["Reboot Scheduled vm-1 Platform 180"]),
        ("approve", ["Reboot Started vm-1 Platform 180"]),
        ("180s", [f"Reboot Scheduled {vm} Platform 180" for vm in ("upgrade-2", "upgrade-3")]),
        ("30s", [f"Reboot Started {vm} Platform 180" for vm in ("upgrade-2", "upgrade-3")]),
        ("180s", []),
    ),
    "two-fault-domains": (
        ("", ["Reboot Scheduled vm-1 Platform 120"]),
        ("approve", ["Reboot Started vm-1 Platform 120"]),
        ("120s", ["Reboot Scheduled neighbour Platform 120"]),
        ("10s", ["Reboot Started neighbour Platform 120"]),
        ("120s", []),
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_scenario_is_told_step_by_step(stage: Stage, name: str) -> None:
    """Each cause shows type, source and duration, and goes. Source: O-2, L-1, L-3 to L-5."""
    fleet = stage.fleet()
    for act, expected in STORIES[name]:
        if act == "approve":
            stage.approve()
        elif act:
            stage.advance(act)
        else:
            stage.run(name)
        assert stage.sees() == expected, act
    assert stage.state(name) == "finished"
    assert stage.fleet() == fleet


def test_every_shipped_scenario_has_its_test() -> None:
    """No scenario is shipped that nothing here tells."""
    told_apart = {"scale-in", "shared-host", "spot-preemption", "storm"}
    told_apart |= {"typical-update", "second-pause"}  # test_started_for.py
    told_apart |= {"rolling-update", "gate-trips", "window-closes"}  # test_maintenance_scenarios.py
    assert set(shipped()) == STORIES.keys() | told_apart


def test_descriptions_are_those_clients_know(stage: Stage) -> None:
    """The texts of migration, update and restart are the public ones. Source: D-11."""
    texts = {}
    for name in ("live-migration", "host-update", "user-reboot", "user-redeploy"):
        stage.run(name)
        texts[name] = stage.emulator.document().events[0].description
        stage.api.post(f"/v1/scenarios/{name}/stop")
    assert texts == {
        "live-migration": "Virtual machine is being paused because of a memory-preserving"
        " Live Migration operation.",
        "host-update": "Host server is undergoing maintenance.",
        "user-reboot": "Virtual machine is going to be restarted as requested by authorized user.",
        "user-redeploy": "Virtual machine is going to be redeployed as requested by authorized"
        " user.",
    }


def test_migration_leaves_the_vm_on_another_host_until_the_end(stage: Stage) -> None:
    """A migrated VM is on the spare host, and back home when the scenario is over."""
    stage.run("user-redeploy")
    stage.approve()
    assert stage.api.get("/v1/vms/vm-1")["host"] == "host-1"
    stage.advance("180s")
    moved = [
        entry["text"]
        for entry in stage.api.get("/v1/history", vm="vm-1")["entries"]
        if entry["action"] == "vm.changed"
    ]
    assert len(moved) == 2
    assert stage.api.get("/v1/vms/vm-1")["host"] == "host-1"


def test_preempted_vm_is_gone_and_comes_back(stage: Stage) -> None:
    """A Spot VM has 30 s, is then nobody, and is given back. Source: D-4, N-1, S-6."""
    stage.run("spot-preemption")
    assert stage.sees() == ["Preempt Scheduled vm-1 Platform -1"]
    assert stage.emulator.document().events[0].description == ""
    stage.advance(PAST_30S)
    assert stage.sees() == ["Preempt Started vm-1 Platform -1"]
    stage.advance("10s")
    with pytest.raises(Unknown):
        stage.sees()
    stage.advance("30s")
    assert stage.sees() == []
    assert stage.state("spot-preemption") == "finished"


def test_scale_in_waits_for_all_approvals(stage: Stage) -> None:
    """Approved deletions wait for the one that is not approved. Source: A-8, N-1."""
    stage.run("scale-in")
    scheduled = [f"Terminate Scheduled {vm} User -1" for vm in ("vm-1", "scale-2", "scale-3")]
    assert stage.sees() == scheduled
    stage.advance("2m")
    assert stage.sees() == scheduled
    mine = stage.emulator.document().events[0]
    stage.emulator.approve(mine.event_id)
    assert stage.sees() == [each.replace("Scheduled", "Started") for each in scheduled]
    stage.advance("10s")
    with pytest.raises(Unknown):
        stage.sees()
    stage.advance("30s")
    assert stage.sees() == []
    assert [vm["name"] for vm in stage.api.get("/v1/vms")["vms"]] == ["vm-1"]


def test_shared_host_waits_for_every_group(stage: Stage) -> None:
    """Each group sees its own event and VMs; the host waits for all. Source: L-2, S-4, S-5."""
    stage.run("shared-host")
    assert stage.sees() == ["Reboot Scheduled vm-1 Platform 300"]
    assert stage.sees("tenant-b-1") == ["Reboot Scheduled tenant-b-1 Platform 300"]
    assert stage.sees("tenant-c-2") == ["Reboot Scheduled tenant-c-1+tenant-c-2 Platform 300"]
    ids = {
        stage.emulator.document(vm).events[0].event_id for vm in ("", "tenant-b-1", "tenant-c-1")
    }
    assert len(ids) == 3
    stage.approve()
    stage.advance("39s")
    assert stage.sees() == ["Reboot Scheduled vm-1 Platform 300"]
    stage.advance("1s")
    assert stage.sees() == ["Reboot Started vm-1 Platform 300"]
    stage.advance("300s")
    assert stage.sees() == []
    assert [vm["name"] for vm in stage.api.get("/v1/vms")["vms"]] == ["vm-1"]


def test_storm_never_shows_an_event_twice(staged: Callable[..., Stage]) -> None:
    """In a storm ids never come back and equal incarnations mean equal events. Source: D-1, D-3."""
    stage = staged(seed=7)
    stage.run("storm")
    documents: dict[int, object] = {}
    present, gone, most = set[str](), set[str](), 0
    for _ in range(1500):
        document = stage.emulator.document()
        ids = {event.event_id for event in document.events}
        assert documents.setdefault(document.incarnation, document.events) == document.events
        gone |= present - ids
        assert not gone & ids
        present, most = ids, max(most, len(ids))
        if stage.emulator.emulator.runs["storm"].over:
            break
        stage.emulator.advance(1)
    assert stage.state("storm") == "finished"
    assert stage.sees() == []
    assert most >= 8
    assert len(gone) >= 16


def test_scenario_runs_again_and_again(stage: Stage) -> None:
    """A scenario leaves nothing behind that stands in its own way. Source: O-2."""
    for _ in range(3):
        stage.run("shared-host")
        assert len(stage.sees()) == 1
        stage.api.post("/v1/scenarios/shared-host/stop")
        assert stage.sees() == []
        assert stage.state("shared-host") == "stopped"


def test_scenario_runs_once_at_a_time(stage: Stage) -> None:
    """The same scenario twice at once would be two casts on one stage."""
    stage.run("host-reboot")
    with pytest.raises(ApiRefused, match="already running"):
        stage.run("host-reboot")
    stage.run("user-reboot")
    assert len(stage.sees()) == 2


def test_two_domains_need_a_reason_to_wait(stage: Stage) -> None:
    """The second fault domain's work waits and says for what. Source: G-1, G-2."""
    stage.run("two-fault-domains")
    found = stage.api.get("/v1/operations", state="planned")["operations"]
    assert [operation["host"] for operation in found] == ["other-domain"]


def test_scenario_happens_to_the_vm_that_is_named(staged: Callable[..., Stage]) -> None:
    """`--vm` says whose story it is; the others of its group see it too. Source: S-1."""
    stage = staged(vms=("web-1", "web-2"))
    stage.run("host-reboot", vm="web-2")
    assert stage.sees("web-1") == ["Reboot Scheduled web-2 Platform 300"]
    with pytest.raises(ApiRefused, match="does not exist"):
        stage.run("user-reboot", vm="web-9")


@pytest.mark.parametrize("name", ["two-fault-domains", "scale-in", "image-upgrade", "storm"])
def test_lone_vm_has_company_for_a_story(staged: Callable[..., Stage], name: str) -> None:
    """A VM that shares its document with nobody does so while a story needs others. Source: S-2."""
    fleet = "[hosts.h1]\n[vms.alone]\nhost = 'h1'\n"
    stage = staged(topology=fleet, topology_name="fleet.toml")
    before = stage.fleet()
    stage.run(name)
    assert any("alone" in line for line in stage.sees())
    stage.api.post(f"/v1/scenarios/{name}/stop")
    assert stage.sees() == []
    assert stage.fleet() == before


def test_failed_scenario_says_why_and_tidies_up(stage: Stage) -> None:
    """A story that cannot go on ends with its reason, and its cast leaves."""
    text = '[hosts.h-9]\n[[steps]]\ndo = "host-reboot"\non = "h-9"\nduration = "2d"\n'
    stage.run("mine", text=text)
    run = stage.api.get("/v1/scenarios/mine")["run"]
    assert (run["state"], "duration" in run["problem"]) == ("failed", True)
    assert [host["name"] for host in stage.api.get("/v1/hosts")["hosts"]] == ["host-1"]
