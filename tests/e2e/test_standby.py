"""On a shared PostgreSQL store one process serves and the next takes over where it stopped."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from forewarn_base.clock import SystemClock
from forewarn_base.ids import Ids
from forewarn_base.settings import ListenSettings, Settings, StoreSettings
from forewarn_server.cli.api_client import ApiClient, ApiRefused
from forewarn_server.control import service_state
from forewarn_server.control.run_loop import LAPSED
from forewarn_server.service.daemon import Daemon
from forewarn_server.service.hooks import ServiceHooks
from forewarn_store import open_store
from forewarn_store.lease import Tenure
from tests.agent.programs import free_port
from tests.e2e.crashing import VMS, Client, Doom, Life
from tests.telemetry.scraping import samples, scrape
from tests.waiting import LIMIT_S, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.postgres]

REQUESTS_MAX = 1000


def test_standby_takes_over_what_was_promised(postgres_address: str) -> None:
    """When the writer is killed the standby shows the same document and loses no approval.

    A token that was revoked there is unknown here. Source: L-7, A-6, P-4.
    """
    writer = Life(postgres_address)
    assert writer.listening()
    standby = Life(postgres_address)
    operator, vm = (Client(at, Doom(REQUESTS_MAX)) for at in (writer.operator, writer.metadata))
    vm.document("db_0")
    vm.document("web_0")
    body = {"cause": "host-reboot", "targets": ["h1"]}
    status, _ = operator.ask("POST", "/v1/operations", body)
    assert status < 300
    before = vm.document("web_0")
    event_id = json.loads(before)["Events"][0]["EventId"]
    assert vm.approve("web_0", event_id)
    assert not standby.listening(wait_s=0), "two processes serve one store"
    form = {"role": "viewer", "expires": "+1h"}
    kim, sam = (
        json.loads(operator.ask("POST", "/v1/access/tokens", {**form, "principal": name})[1])
        for name in ("kim", "sam")
    )
    assert operator.ask("DELETE", f"/v1/access/tokens/{kim['id']}")[0] == 204

    writer.kill()
    for client in (operator, vm):
        client.close()
    assert standby.listening(wait_s=LIMIT_S)
    heir = Client(standby.metadata, Doom(REQUESTS_MAX))
    assert heir.document("web_0") == before
    db_event = json.loads(heir.document("db_0"))["Events"][0]["EventId"]
    assert heir.approve("db_0", db_event)
    started = json.loads(heir.document("web_0"))["Events"][0]
    heir.close()
    told = ApiClient(f"http://{standby.operator}", sam["token"]).get("/v1/whoami")
    assert told["principal"] == "sam"
    with pytest.raises(ApiRefused, match="was revoked"):
        ApiClient(f"http://{standby.operator}", kim["token"]).get("/v1/whoami")
    standby.kill()
    assert started["EventId"] == event_id
    assert started["EventStatus"] == "Started", "the approval given to the first was lost"
    assert {vm.name for vm in VMS} >= set(started["Resources"])


def asked(path: Path, what: str) -> tuple[int, dict[str, object]]:
    """Ask an operator API on a Unix socket."""
    with closing(socket.socket(socket.AF_UNIX)) as line:
        line.settimeout(LIMIT_S)
        line.connect(str(path))
        line.sendall(f"GET {what} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: line.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def state_of(metrics: str) -> set[str]:
    """Return the states that a process says to be in when it is scraped."""
    status, text = scrape(metrics)
    assert status == 200, text
    name = "forewarn_service_state"
    found = samples(text).items()
    return {dict(labels)["state"] for (sample, labels), is_in in found if sample == name and is_in}


def test_standby_is_ready_for_its_service_manager(postgres_address: str, tmp_path: Path) -> None:
    """It says that it stands by, also to its health check and scrapes, and takes over when due.

    Source: L-7.
    """
    notices, operator = tmp_path / "notify", tmp_path / "operator"
    metrics = f"127.0.0.1:{free_port()}"
    settings = tmp_path / "forewarn.toml"
    settings.write_text(
        f'[store]\nurl = "{postgres_address}"\n[listen]\nmetadata = ["127.0.0.1:0"]\n'
        f'operator = "unix:{operator}"\nmetrics = "{metrics}"\n'
    )
    with (
        closing(open_store(postgres_address)) as store,
        closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as manager,
    ):
        tenure = Tenure(store, 10**9)
        assert tenure.attempt(0)
        manager.settimeout(LIMIT_S)
        manager.bind(str(notices))
        with subprocess.Popen(
            [sys.executable, "-m", "forewarn_server.cli.main", "serve", "--config", str(settings)],
            env={**os.environ, "NOTIFY_SOCKET": str(notices)},
        ) as process:
            try:
                assert manager.recv(1000) == b"READY=1\nSTATUS=standby"
                wait_until(lambda: asked(operator, "/ready")[0] == 200)
                assert asked(operator, "/v1/health")[1]["state"] == "standby"
                assert asked(operator, "/leader")[0] == 503
                assert state_of(metrics) == {"standby"}
                assert asked(operator, "/v1/operations") == (200, {"operations": [], "next": None})
                status, body = asked(operator, "/v1/outbox")  # only the active process has it
                assert (status, body["error"]["code"]) == (421, "active-asked")  # type: ignore[index]
                tenure.release()
                assert manager.recv(1000) == b"READY=1\nSTATUS=serving"
                assert asked(operator, "/v1/health")[0] == 200
                assert state_of(metrics) == {"ready"}
            finally:
                process.send_signal(signal.SIGTERM)
    assert process.returncode == 0


def test_signal_while_starting_gives_the_lease_up(postgres_address: str, tmp_path: Path) -> None:
    """The next process need not wait for a term. Source: H-2."""
    settings = tmp_path / "forewarn.toml"
    settings.write_text(
        f'[store]\nurl = "{postgres_address}"\n'
        '[listen]\nmetadata = ["127.0.0.1:0"]\noperator = "127.0.0.1:0"\n'
    )
    with closing(open_store(postgres_address)) as store, psycopg.connect(postgres_address) as lock:
        lock.execute("LOCK TABLE vm IN ACCESS EXCLUSIVE MODE")  # it cannot load
        with subprocess.Popen(
            [sys.executable, "-m", "forewarn_server.cli.main", "serve", "--config", str(settings)]
        ) as process:
            wait_until(lambda: store.lease().holder)
            process.send_signal(signal.SIGTERM)
            wait_until(lambda: not store.lease().holder)
    assert process.returncode == 0


def test_writer_that_hangs_is_followed_by_another(
    postgres_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its deciding thread answers nothing: it is not ready, closes its feed, and loses the lease.

    Source: H-3.
    """
    monkeypatch.setattr(service_state, "SILENT_MS_MAX", 1500)
    settings = Settings(
        store=StoreSettings(url=postgres_address),
        listen=ListenSettings(metadata=("127.0.0.1:0",), operator=f"unix:{tmp_path}/operator"),
    )

    async def story() -> None:
        hooks = ServiceHooks(term_ms=2000)
        daemon = Daemon(settings, clock=SystemClock(), ids=Ids(), hooks=hooks)
        await daemon.start()
        rival_store = await asyncio.to_thread(open_store, postgres_address)
        rival = Tenure(rival_store, hooks.term_ms)
        for path in ("/v1/health", "/ready", "/leader", "/live"):
            assert (await asyncio.to_thread(asked, tmp_path / "operator", path))[0] == 200
        released = threading.Event()
        daemon.control.read(lambda _: released.wait())
        began = time.monotonic()
        while not await asyncio.to_thread(rival.attempt, time.monotonic_ns() // 1_000_000):
            assert time.monotonic() - began < LIMIT_S
        assert daemon.control.trouble == LAPSED
        assert (await asyncio.to_thread(asked, tmp_path / "operator", "/leader"))[0] == 503
        assert (await asyncio.to_thread(asked, tmp_path / "operator", "/live"))[0] == 200
        while (await asyncio.to_thread(asked, tmp_path / "operator", "/v1/health"))[0] != 503:
            assert time.monotonic() - began < LIMIT_S
        released.set()
        await asyncio.wait_for(daemon.ended.wait(), LIMIT_S)
        rival_store.close()
        await daemon.stop()

    asyncio.run(story())
