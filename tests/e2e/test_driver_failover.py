"""What a driver knows of its tasks is found by the process that takes over. Source: R-2."""

import asyncio
import json
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from forewarn_base.clock import SystemClock
from forewarn_base.ids import Ids
from forewarn_base.settings import (
    DriverSettings,
    ListenSettings,
    MetadataSettings,
    NamedTable,
    OperatorSettings,
    Settings,
    StoreSettings,
)
from forewarn_drivers.command import runner
from forewarn_drivers.registry import make_driver
from forewarn_drivers.task_records import TaskRecords
from forewarn_server.control.plane import ControlPlane
from forewarn_server.service.daemon import Daemon
from forewarn_server.service.hooks import ServiceHooks
from forewarn_store import open_store
from tests.drivers.tasks import ended, now_ms, task
from tests.e2e.crashing import FLEET, TERM_MS, Client, Doom, Life
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.postgres]


def serve(store: str, ready: Connection, begin: list[str]) -> None:
    """Run a service whose hosts are rebooted by a program."""
    program = NamedTable("mine", {"kind": "command", "begin": begin, "poll_s": 0.1})
    settings = Settings(
        listen=ListenSettings(metadata=("127.0.0.1:0",), operator="127.0.0.1:0"),
        metadata=MetadataSettings(vm_by_query=True, rate_per_s=0),
        operator=OperatorSettings(open_on_loopback=True),
        store=StoreSettings(url=store),
        drivers=DriverSettings(default="mine", tables=(program,)),
    )

    def lay_out(plane: ControlPlane) -> None:
        if not plane.state.topology.vms:
            plane.commit(FLEET, actor="test", now_ms=SystemClock().now_ms())

    async def run() -> None:
        hooks = ServiceHooks(prepare=lay_out, term_ms=TERM_MS)
        daemon = Daemon(settings, clock=SystemClock(), ids=Ids(), hooks=hooks)
        bound = await daemon.start()
        ready.send((bound.metadata[0], bound.operator.removeprefix("http://")))
        await daemon.ended.wait()

    asyncio.run(run())


def test_task_that_ended_well_is_found_after_a_failover(
    postgres_address: str, tmp_path: Path
) -> None:
    """Its program ends while nobody leads; the heir completes it, and begins nothing twice."""
    gate, log = tmp_path / "gate", tmp_path / "log"
    begin = ["sh", "-c", f"echo begun >> {log}; until [ -e {gate} ]; do sleep 0.05; done"]
    writer = Life(postgres_address, serve, begin)
    assert writer.listening()
    operator = Client(writer.operator, Doom(1000))
    status, body = operator.ask("POST", "/v1/operations", {"cause": "host-lost", "targets": ["h1"]})
    assert status < 300, body
    wait_until(log.exists)
    operator.close()
    writer.kill()
    gate.touch()
    heir = Life(postgres_address, serve, begin)
    assert heir.listening()
    operator = Client(heir.operator, Doom(1000))

    def state() -> str:
        _, shown = operator.ask("GET", "/v1/operations/op-1")
        return str(json.loads(shown)["operation"]["state"])

    wait_until(lambda: state() == "succeeded")
    operator.close()
    heir.kill()
    assert log.read_text().split() == ["begun"]


def test_program_on_a_lost_machine_fails_and_never_ends_well(
    postgres_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A beat that stands still says so to a process that cannot look for the runner itself."""
    monkeypatch.setattr(runner, "LOST_S", 1)
    open_store(postgres_address).close()
    records = TaskRecords(postgres_address, "mine")
    driver = make_driver("mine", {"kind": "command", "begin": ["true"]}, postgres_address)
    records.begin(task().key)
    records.put(12, 1, {"runner": "elsewhere/1 17 4711", "beat": "1"})
    assert not driver.progress(task(), now_ms()).failed
    assert "the progress is unknown" in ended(driver, task()).failed
    records.put(12, 1, {"end": ""})
    assert driver.progress(task(), now_ms()).done, "it was only cut off"
    records.close()
