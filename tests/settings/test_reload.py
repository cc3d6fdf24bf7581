"""Settings that are taken over while the service runs. Source: P-9."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from forewarn_base.settings import Settings
from forewarn_server.settings_loader import load_settings
from tests.api.live import FLEET, SETTINGS, Live, rereading

GATE = '[gates.{name}]\ncommand = ["true"]\n'


class Reloading:
    """A service whose settings are partly in a file."""

    def __init__(self, path: Path) -> None:
        """Start it with an empty file."""
        self.path = path
        path.write_text("")
        self.live = Live(hooks=rereading(self._read))

    def _read(self) -> Settings:
        found = load_settings([self.path], {})
        drivers = replace(found.drivers, default="manual")
        return replace(
            SETTINGS, gates=found.gates, outbox=found.outbox, log=found.log, drivers=drivers
        )

    def write(self, text: str) -> list[str]:
        """Write the file and reload; return what waits for a restart."""
        self.path.write_text(text)
        found: list[str] = self.live.post("/v1/reload")["needs_restart"]
        return found


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Reloading]:
    """A running service, and its file."""
    reloading = Reloading(tmp_path / "forewarn.toml")
    yield reloading
    reloading.live.stop()
    logging.getLogger("forewarn").handlers.clear()


def test_gates_destinations_and_drivers_are_taken_over(service: Reloading) -> None:
    """New ones can be used at once; a gate and a destination that are gone cannot. P-9."""
    live = service.live
    bus = '[outbox.bus]\nkind = "webhook"\nurl = "http://127.0.0.1:9/"\n'
    driver = '[drivers.fence]\nkind = "command"\nbegin = ["true"]\n'
    assert service.write(GATE.format(name="ping") + bus + driver) == []
    assert [each["name"] for each in live.get("/v1/outbox")["destinations"]] == ["bus"]
    assert live.call("PUT", "/v1/hosts/h1", {"driver": "fence"}).status == 201
    form = {"cause": "host-reboot", "hosts": ["h1"], "gate": "ping", "duration": "PT5M"}
    assert live.call("POST", "/v1/maintenances", form).status == 201
    assert service.write("") == ["[drivers.fence]"]
    assert live.get("/v1/outbox")["destinations"] == []
    assert live.daemon.configured.gates == {}


@pytest.mark.parametrize(
    "text",
    [
        "[log]\nlevel = 'loud'",
        GATE.format(name="a") + '[drivers.x]\nkind = "none"\n',
        '[outbox.bus]\nkind = "none"\n',
        "not toml",
    ],
)
def test_faulty_file_changes_nothing(service: Reloading, text: str) -> None:
    """It is refused with its own reason, whole. Source: P-9."""
    assert service.write(GATE.format(name="ping")) == []
    service.path.write_text(text)
    assert service.live.call("POST", "/v1/reload", {}).status >= 400
    assert list(service.live.daemon.configured.gates) == ["ping"]


def test_reloads_under_load_refuse_no_call(service: Reloading) -> None:
    """VMs and operators are answered meanwhile, changes included. Source: P-9."""
    live, ended, answered = service.live, threading.Event(), Counter[str]()
    live.fleet(**FLEET)

    def call(kind: str, send: Callable[[int], object]) -> None:
        while not ended.is_set():
            send(answered[kind])
            answered[kind] += 1

    def change(number: int) -> None:
        assert live.call("PUT", f"/v1/hosts/n{number}", {}).status == 201

    callers: dict[str, Callable[[int], object]] = {
        "polled": lambda _: live.document("web-0"),
        "read": lambda _: live.get("/v1/vms/web-0"),
        "changed": change,
    }
    with ThreadPoolExecutor() as pool:
        calls = [pool.submit(call, *each) for each in callers.items()]
        try:
            for number in range(20):
                bus = f'[outbox.b{number}]\nkind = "webhook"\nurl = "http://127.0.0.1:9/"\n'
                assert service.write(GATE.format(name=f"g{number}") + bus) == []
        finally:
            ended.set()
    assert [each.result() for each in calls] == [None] * 3
    assert min(answered.values()) > 10
    assert list(live.daemon.configured.gates) == ["g19"]


def test_level_of_the_log_is_taken_over(service: Reloading) -> None:
    """It counts from the next line on. Source: P-9."""
    assert service.write("[log]\nlevel = 'error'\n") == []
    assert not logging.getLogger("forewarn").isEnabledFor(logging.INFO)
    assert service.write("[log]\nlevel = 'info'\n") == []
    assert logging.getLogger("forewarn").isEnabledFor(logging.INFO)


def test_emulator_has_nothing_to_reload() -> None:
    """A service that was given its settings says so. Source: P-9."""
    live = Live()
    assert live.call("POST", "/v1/reload", {}).code == "reload-unavailable"
    live.stop()
