"""State that was accepted under another environment: one part waits, and the service names it.

Each service of a test stands for a start on another machine, on the same store. Source: L-12.
"""

import asyncio
import importlib.metadata
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from forewarn_base import extensions
from forewarn_base.extensions import PartsMissing
from forewarn_base.settings import (
    AzureSettings,
    DriverSettings,
    GateSettings,
    NamedTable,
    OutboxSettings,
    Settings,
    StoreSettings,
)
from forewarn_core.fleet.stimulus import ApplyPolicy
from forewarn_core.planning.policy import MaintenancePolicy
from forewarn_core.rules.local_time import Window
from forewarn_drivers.registry import DRIVERS, DriverKindUnknown
from forewarn_server.cli.main import main
from forewarn_server.control.gate_checks import make_gates
from forewarn_server.outbox.destinations import DestinationInvalid
from forewarn_server.service.start_check import check_start
from forewarn_sinks import nats_sink
from tests.api.live import FLEET, SETTINGS, Json, Live, rereading
from tests.packages import install
from tests.waiting import LIMIT_S, wait_until

SITE = NamedTable("site", {"kind": "manual"})
NEIGHBOUR = NamedTable("site", {"kind": "kind-of-another-package"})


def settings(folder: Path, **sections: object) -> Settings:
    """Return settings of a service on a store in a folder."""
    store = StoreSettings(url=str(folder / "forewarn.db"))
    return replace(SETTINGS, store=store, **sections)  # type: ignore[arg-type]


def degraded(live: Live, count: int = 1) -> list[str]:
    """Return what a service names in its health, which is a second old, though it is ready."""
    live.settle()
    named: list[str] = []

    def are_named() -> bool:
        health = live.get("/v1/health")
        assert health["ready"]
        named[:] = health.get("degraded", [])
        return len(named) == count

    wait_until(are_named)
    return named


def layout(driver: str) -> Json:
    """Return the fleet with a driver for h1."""
    return {**FLEET, "hosts": {**FLEET["hosts"], "h1": {**FLEET["hosts"]["h1"], "driver": driver}}}


def test_unknown_time_zone_closes_its_window_alone(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The service starts, is ready, and names the window; VMs and other work go on. F-7."""
    with Live(settings(tmp_path)) as live:
        live.fleet(**FLEET)
        policy = MaintenancePolicy(windows=(Window("night", "Atlantis/Capital"),))
        live.daemon.control.submit(ApplyPolicy(policy), "elsewhere").result(LIMIT_S)
    caplog.clear()
    with Live(settings(tmp_path)) as live:
        [named] = degraded(live)
        assert "Window night is closed" in named
        assert "time zone Atlantis/Capital" in named
        assert [each.message for each in caplog.records].count(named) == 1
        monkeypatch.setenv("FOREWARN_SERVER", live.url)
        assert main(["status"]) == 0
        assert named in capsys.readouterr().out
        assert live.post("/v1/vms/web-0/reboot")["operations"]
        work = {"cause": "host-reboot", "hosts": ["h1"], "duration": "10m"}
        [blocked] = live.post("/v1/maintenances/plan", **work)["plan"]["blocked"]
        assert "no time zone Atlantis/Capital" in str(blocked)
        assert live.get("/v1/windows")["spans"] == []
        live.call("PUT", "/v1/policy", {})
        assert degraded(live, 0) == []


def test_driver_that_left_the_settings_holds_up_its_hosts_alone(tmp_path: Path) -> None:
    """Work there waits before any VM is disturbed, and starts once the driver is back."""
    drivers = DriverSettings("manual", tables=(SITE,))
    with Live(settings(tmp_path, drivers=drivers)) as live:
        live.call("PUT", "/v1/topology", layout("site"))
    hooks = rereading(lambda: settings(tmp_path, drivers=drivers))
    with Live(settings(tmp_path), hooks=hooks) as live:
        [named] = degraded(live)
        assert "1 host uses driver site, whose work waits: [drivers.site] is not in" in named
        [waiting] = live.post("/v1/hosts/h1/reboot")["operations"]
        [other] = live.post("/v1/vms/web-1/reboot")["operations"]
        live.advance(1000)
        path = f"/v1/operations/{waiting['id']}"
        assert live.get(path)["operation"]["state"] == "announced"
        assert live.get(f"/v1/operations/{other['id']}")["operation"]["state"] == "running"
        why = live.get(f"/v1/why?id={waiting['id']}")
        assert "waits for its driver: [drivers.site] is not in" in why["blockers"][0]["text"]
        live.post("/v1/reload")
        live.settle()
        assert degraded(live, 0) == []
        assert live.get(path)["operation"]["state"] == "running"


def test_driver_whose_package_left_holds_up_its_hosts_alone(tmp_path: Path) -> None:
    """It is the default driver, too; a driver that nobody has used is refused as a mistake."""
    with Live(settings(tmp_path, drivers=DriverSettings("site", tables=(SITE,)))) as live:
        live.call("PUT", "/v1/topology", FLEET)
    with Live(settings(tmp_path, drivers=DriverSettings("site", tables=(NEIGHBOUR,)))) as live:
        [named] = degraded(live)
        assert "2 hosts use driver site" in named
        assert "kind-of-another-package, which is neither built in nor installed" in named
    with pytest.raises(DriverKindUnknown):
        Live(settings(tmp_path, drivers=DriverSettings("manual", tables=(NEIGHBOUR,))))


def test_driver_that_does_not_load_holds_up_its_hosts_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package of a driver in use hangs after an update; VMs and other hosts go on. L-12."""
    with Live(settings(tmp_path, drivers=DriverSettings("manual", tables=(SITE,)))) as live:
        live.call("PUT", "/v1/topology", layout("site"))
    monkeypatch.setattr(extensions, "LOAD_TIMEOUT_S", 0.2)
    code = "import threading; threading.Event().wait()"
    entry_points = {DRIVERS.entry_points: "hung = hung_driver:create"}
    install(monkeypatch, tmp_path / "packages", "hung_driver", code=code, entry_points=entry_points)
    hung = NamedTable("site", {"kind": "hung"})
    with Live(settings(tmp_path, drivers=DriverSettings("manual", tables=(hung,)))) as live:
        [named] = degraded(live)
        assert "1 host uses driver site, whose work waits" in named
        assert "the package hung_driver 1.0 cannot be used: it takes more than 0.2 s" in named
        assert live.post("/v1/vms/web-1/reboot")["operations"]


def test_gate_that_left_is_named_before_its_maintenance_stops(tmp_path: Path) -> None:
    """People can put it back, or cancel the maintenance."""
    table = NamedTable("load", {"command": ["true"]})
    assert make_gates({table.name: table.values})
    with Live(settings(tmp_path, gates=GateSettings((table,)))) as live:
        live.fleet(**FLEET)
        form = {"cause": "host-reboot", "hosts": ["h1"], "duration": "10m", "gate": "load"}
        assert live.call("POST", "/v1/maintenances", form).status < 300
    with Live(settings(tmp_path)) as live:
        [named] = degraded(live)
        assert named == "Maintenance m-1 stops after its next wave: gate load is missing."


def test_destination_whose_package_left_keeps_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are delivered to; a destination that was never served is refused as a mistake."""
    bus = NamedTable("bus", {"kind": "nats", "servers": ["nats://127.0.0.1:9"]})
    with Live(settings(tmp_path, outbox=OutboxSettings((bus,)))) as live:
        live.fleet(**FLEET)
    kind = replace(nats_sink.KIND, module="no_such_package")
    monkeypatch.setattr(nats_sink, "KIND", kind)
    with Live(settings(tmp_path, outbox=OutboxSettings((bus,)))) as live:
        [named] = degraded(live)
        assert "Destination bus receives nothing: it needs the package no_such_package" in named
        [shown] = live.get("/v1/outbox")["destinations"]
        assert shown["behind"] > 0
    other = replace(bus, name="other")
    with pytest.raises(DestinationInvalid):
        Live(settings(tmp_path, outbox=OutboxSettings((other,))))


def test_everything_that_is_not_installed_is_named_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody installs one package only to learn of the next."""
    kind = replace(nats_sink.KIND, module="no_such_package")
    monkeypatch.setattr(nats_sink, "KIND", kind)
    options = {"kind": "nats", "servers": ["nats://127.0.0.1:9"]}
    tables = (NamedTable("bus", options), NamedTable("log", options))
    drivers = DriverSettings("manual", tables=(NamedTable("lab", {"kind": "none"}),))
    with pytest.raises(PartsMissing) as refused:
        Live(settings(tmp_path, outbox=OutboxSettings(tables), drivers=drivers))
    assert all(name in str(refused.value) for name in ("lab", "bus", "log"))


def test_what_is_missing_is_logged_once_and_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each change of the fleet costs its own records, and repeats nothing."""
    caplog.set_level(logging.INFO)
    drivers = DriverSettings("manual", tables=(SITE,))
    with Live(settings(tmp_path, drivers=drivers)) as live:
        live.call("PUT", "/v1/topology", layout("site"))
    with Live(settings(tmp_path)) as live:
        for zone in ("1", "2", "3"):
            live.call("PUT", "/v1/hosts/h2", {"zone": zone})
        live.call("PUT", "/v1/hosts/h1", {"driver": "manual"})
        live.settle()
    lines = [each for each in caplog.records if "driver site" in each.getMessage()]
    actions = [getattr(each, "action", "") for each in lines]
    assert actions == ["degraded", "degraded.over"]


def test_azure_whose_package_is_missing_is_not_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service starts and does all other work; a check of the start says the same. L-12."""
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: ())
    asking = settings(tmp_path, azure=AzureSettings(listen="127.0.0.1:0"))
    [note] = [each for each in asyncio.run(check_start(asking)) if "Azure" in each]
    with Live(asking) as live:
        live.fleet(**FLEET)
        [named] = degraded(live)
        assert named == note
        assert "is not served. " in named
        assert "needs the package forewarn-azure: pip install" in named
        assert live.daemon.bound is not None
        assert live.daemon.bound.azure == ""
        assert live.post("/v1/vms/web-1/reboot")["operations"]
