"""Several processes share the metadata addresses and tell the same truth."""

import asyncio
import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from forewarn_base.clock import SystemClock
from forewarn_base.ids import Ids
from forewarn_base.settings import (
    DriverSettings,
    ListenSettings,
    MetadataSettings,
    Settings,
    StoreSettings,
)
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.stimulus import ChangeTopology, RequestMaintenance
from forewarn_core.fleet.topology import Group, Host, Vm
from forewarn_metadata.replication.server import FeedServer
from forewarn_server.control.plane import ControlPlane
from forewarn_server.service.daemon import Daemon
from forewarn_server.service.hooks import ServiceHooks
from forewarn_server.service.workers import FEED, FOLDER_PREFIX, WorkerFailed
from tests import asking
from tests.postgres import running_postgres
from tests.waiting import LIMIT_S, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="workers need POSIX signals"),
]

WORKERS = 2
#: Connections that together meet every worker: each is as likely to meet either.
CLIENTS = 24


def settings_for(*addresses: str) -> Settings:
    """A service with workers on these addresses, in memory, without an operator API."""
    return Settings(
        listen=ListenSettings(metadata=addresses, workers=WORKERS, operator=""),
        metadata=MetadataSettings(default_vm="vm_0", rate_per_s=0),
        store=StoreSettings(url="sqlite::memory:"),
        drivers=DriverSettings(default="manual"),
    )


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[Daemon]:
    """Run a service with one VM."""

    def lay_out(plane: ControlPlane) -> None:
        fleet = ChangeTopology(
            hosts=(Host("h"),), groups=(Group("g"),), vms=(Vm("vm_0", "h", "g"),)
        )
        plane.commit(fleet, actor="test", now_ms=SystemClock().now_ms())

    hooks = ServiceHooks(prepare=lay_out)
    daemon = Daemon(settings, clock=SystemClock(), ids=Ids(), hooks=hooks)
    await daemon.start()
    try:
        yield daemon
    finally:
        await daemon.stop()


class Refused(Exception):
    """An answer other than 200."""


async def ask(daemon: Daemon, query: str = "", body: object = None) -> bytes:
    """Send one request over a connection of its own."""
    assert daemon.bound is not None
    method, path = ("GET" if body is None else "POST"), asking.EVENTS + query
    reply = await asyncio.to_thread(asking.ask, daemon.bound.metadata[-1], method, path, body)
    if reply.status != 200:
        raise Refused(reply.status)
    return reply.body


async def announce(daemon: Daemon) -> str:
    """Announce work on the host, have every worker show it, and return the event's id."""
    work = RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h",))
    committed = await asyncio.wrap_future(daemon.control.submit(work, "test", shown=True))
    return committed.operations[0].events[0]


def test_workers_all_learn_of_a_change() -> None:
    """Every client waiting at any worker is told of a new event. Source: E-9, S-1."""

    async def story() -> None:
        async with serving(settings_for("127.0.0.1:0")) as daemon:
            await ask(daemon)
            waiting = [
                asyncio.create_task(ask(daemon, "&wait=60&incarnation=0")) for _ in range(CLIENTS)
            ]
            event_id = await announce(daemon)
            for told in await asyncio.gather(*waiting):
                document = json.loads(told)
                assert document["DocumentIncarnation"] == 1
                assert [event["EventId"] for event in document["Events"]] == [event_id]

    asyncio.run(story())


def test_approval_through_a_worker_starts_the_event() -> None:
    """An approval given at a worker counts, and its 200 is followed by the truth. Source: A-6."""

    async def story() -> None:
        async with serving(settings_for("127.0.0.1:0")) as daemon:
            await ask(daemon)
            event_id = await announce(daemon)
            await ask(daemon, body={"StartRequests": [{"EventId": event_id}]})
            document = json.loads(await ask(daemon, "&wait=60&incarnation=1"))
            assert [each["EventStatus"] for each in document["Events"]] == ["Started"], document

    asyncio.run(story())


@pytest.mark.skipif(sys.platform != "linux", reason="affinity is Linux's")
def test_one_address_has_one_limit() -> None:
    """However many connections a VM opens, one worker meets and counts them all. Source: E-6."""
    limited = MetadataSettings(default_vm="vm_0", rate_per_s=0.001, rate_burst=3)
    settings = replace(settings_for("127.0.0.1:0"), metadata=limited)

    async def story() -> None:
        async with serving(settings) as daemon:
            codes = []
            for _ in range(CLIENTS):
                try:
                    await ask(daemon)
                except Refused as refused:
                    codes.append(refused.args[0])
            assert codes == [429] * (CLIENTS - 3)

    asyncio.run(story())


@pytest.mark.postgres
def test_takeover_does_not_wait_for_workers() -> None:
    """The heir's own process answers VMs until its workers have started; then only they do. H-2."""

    async def story(address: str) -> None:
        settings = replace(settings_for("127.0.0.1:0"), store=StoreSettings(url=address))
        following = asyncio.Event()
        hooks = ServiceHooks(on_standby=lambda _: following.set())
        heir = Daemon(settings, clock=SystemClock(), ids=Ids(), hooks=hooks)
        async with serving(settings):
            starting = asyncio.create_task(heir.start())
            await asyncio.wait_for(following.wait(), LIMIT_S)
            await asyncio.to_thread(wait_until, lambda: heir.parts and heir.parts.control.view)
        await starting
        assert json.loads(await ask(heir))["DocumentIncarnation"] == 0
        workers = heir.workers
        assert workers is not None
        started = lambda: len(workers.processes) == WORKERS  # noqa: E731
        await asyncio.to_thread(wait_until, started)
        assert heir.metadata._service is not None
        heir.metadata._service.last_polls()  # counts the poll of the second that has just begun
        before = {**heir.metadata.figures(), "changes": 0}
        work = RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h",))
        await asyncio.wrap_future(heir.control.submit(work, "test", shown=True))
        documents = await asyncio.gather(*(ask(heir) for _ in range(CLIENTS)))
        assert {json.loads(each)["DocumentIncarnation"] for each in documents} == {1}
        assert {**heir.metadata.figures(), "changes": 0} == before
        await heir.stop()

    with running_postgres() as server, server.database() as address:
        asyncio.run(story(address))


def test_a_killed_worker_is_replaced() -> None:
    """When a worker dies the others go on, and another takes its place."""

    async def story() -> None:
        async with serving(settings_for("127.0.0.1:0")) as daemon:
            await ask(daemon)
            assert daemon.workers is not None
            victim = daemon.workers.processes[0]
            os.kill(victim.pid, signal.SIGKILL)
            await victim.wait()
            replaced = daemon.workers.replaced
            await announce(daemon)
            await asyncio.wait_for(replaced.wait(), LIMIT_S)
            documents = await asyncio.gather(*(ask(daemon) for _ in range(CLIENTS)))
            assert {json.loads(each)["DocumentIncarnation"] for each in documents} == {1}

    asyncio.run(story())


@pytest.fixture
def watchful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have hung workers noticed within seconds; a sound one of a loaded machine answers."""
    defaults = FeedServer.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "heartbeat_s", 0.3)


@pytest.mark.usefixtures("watchful")
def test_a_hung_worker_is_noticed_and_replaced() -> None:
    """Work waits for a worker that hangs; it is killed, and another shows the truth. L-7, M-4."""

    async def story() -> None:
        async with serving(settings_for("127.0.0.1:0")) as daemon:
            await ask(daemon)
            assert daemon.workers is not None
            victim = daemon.workers.processes[0]
            os.kill(victim.pid, signal.SIGSTOP)
            work = RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h",))
            asked = daemon.control.submit(work, "test", shown=True)
            await asyncio.wait_for(asyncio.wrap_future(asked), LIMIT_S)
            assert await asyncio.wait_for(victim.wait(), LIMIT_S) == -signal.SIGKILL
            await asyncio.wait_for(daemon.workers.replaced.wait(), LIMIT_S)
            documents = await asyncio.gather(*(ask(daemon) for _ in range(CLIENTS)))
            [document] = set(documents)
            assert len(json.loads(document)["Events"]) == 1

    asyncio.run(story())


def test_operator_is_answered_once_every_worker_shows_it() -> None:
    """No worker shows the old document to anybody who asks after the answer. Source: M-4, L-7."""

    async def story() -> None:
        async with serving(settings_for("127.0.0.1:0")) as daemon:
            await ask(daemon)
            assert daemon.workers is not None
            slow = daemon.workers.processes[0]
            os.kill(slow.pid, signal.SIGSTOP)
            work = RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h",))
            asked = daemon.control.submit(work, "test", shown=True)
            committed = daemon.control.read(lambda plane: len(plane.state.operations))
            assert await asyncio.wrap_future(committed) == 1
            assert not asked.done()
            os.kill(slow.pid, signal.SIGCONT)
            await asyncio.wait_for(asyncio.wrap_future(asked), LIMIT_S)
            documents = await asyncio.gather(*(ask(daemon) for _ in range(CLIENTS)))
            assert {json.loads(each)["DocumentIncarnation"] for each in documents} == {1}

    asyncio.run(story())


STRANGERS = 20


@pytest.mark.skipif(sys.platform != "linux", reason="all of 127.0.0.0/8 is Linux's")
def test_a_stranger_at_an_old_address_approves_nothing() -> None:
    """A worker that does not know yet whose address it is cannot let the wrong VM in. S-4, S-6."""
    settings = settings_for("127.0.0.1:0")
    settings = replace(settings, metadata=replace(settings.metadata, default_vm=""))

    async def story() -> None:
        async with serving(settings) as daemon:
            assert daemon.workers is not None
            assert daemon.bound is not None
            vms = tuple(
                Vm(f"vm_{n}", "h", group, addresses=(address,))
                for n, group, address in ((0, "g", "127.0.0.2"), (1, "other", "127.0.0.3"))
            )
            await change(daemon, ChangeTopology(groups=(Group("other"),), vms=vms))
            assert b"200 OK" in await at_address(daemon, "127.0.0.2", b"GET")
            event_id = await announce(daemon)
            for process in daemon.workers.processes:
                os.kill(process.pid, signal.SIGSTOP)
            body = json.dumps({"StartRequests": [{"EventId": event_id}]}).encode()
            asking = [
                asyncio.create_task(at_address(daemon, "127.0.0.2", b"POST", body))
                for _ in range(STRANGERS)
            ]
            moved = tuple(
                replace(vm, addresses=("127.0.0.2",) if vm.name == "vm_1" else ()) for vm in vms
            )
            fleet = asyncio.wrap_future(
                daemon.control.submit(ChangeTopology(vms=moved), "test", shown=True)
            )
            durable = daemon.control.read(lambda plane: plane.state.topology.vms["vm_1"].addresses)
            assert await asyncio.wrap_future(durable) == ("127.0.0.2",)
            for process in daemon.workers.processes:
                os.kill(process.pid, signal.SIGCONT)
            answers = await asyncio.gather(*asking)
            assert {answer.split()[1] for answer in answers} == {b"400"}
            await fleet

    asyncio.run(story())


async def change(daemon: Daemon, fleet: ChangeTopology) -> None:
    """Change the fleet; returns once every worker knows."""
    asked = daemon.control.submit(fleet, "test", shown=True)
    await asyncio.wrap_future(asked)


async def at_address(daemon: Daemon, address: str, method: bytes, body: bytes = b"") -> bytes:
    """Send one request from an address, and return the answer."""
    assert daemon.bound is not None
    host, _, port = daemon.bound.metadata[-1].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), local_addr=(address, 0))
    target = b" /metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\r\nHost: x\r\n"
    length = b"Metadata: true\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    writer.write(method + target + length + body)
    answer = await reader.read()
    writer.close()
    return answer


def feeds(folder: Path) -> int:
    """How many services have their feed in a folder of temporary files."""
    return sum(1 for _ in folder.glob(f"*/{FEED}"))


def test_a_killed_service_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next start takes away the feed of one that was killed, and of no other. Source: L-7."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead, other = tmp_path / f"{FOLDER_PREFIX}dead", tmp_path / f"{FOLDER_PREFIX}starting"
    for folder in (dead, other):
        folder.mkdir()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(dead / FEED))

    async def story() -> None:
        async with serving(settings_for("127.0.0.1:0")):
            assert not dead.exists()
            assert other.exists()
            async with serving(settings_for("127.0.0.1:0")) as second:
                assert feeds(tmp_path) == 2
                await ask(second)

    asyncio.run(story())
    assert list(tmp_path.iterdir()) == [other]


def test_unix_socket_stays_beside_workers(tmp_path: object) -> None:
    """A Unix socket cannot be shared, so the service's own process answers there. Source: E-1."""

    async def story() -> None:
        path = f"unix:{tmp_path}/metadata"
        async with serving(settings_for(path, "127.0.0.1:0")) as daemon:
            reader, writer = await asyncio.open_unix_connection(path.removeprefix("unix:"))
            target = b"/metadata/scheduledevents?api-version=2020-07-01"
            writer.write(b"GET " + target + b" HTTP/1.0\r\nHost: x\r\nMetadata: true\r\n\r\n")
            answer = await reader.read()
            writer.close()
            assert answer.startswith(b"HTTP/1.1 200")
            assert answer.endswith(await ask(daemon))

    asyncio.run(story())


@pytest.mark.postgres
def test_a_worker_that_cannot_listen_is_an_error(
    capfd: pytest.CaptureFixture[str], postgres_address: str
) -> None:
    """It ends the start with a clear error and leaves nothing running.

    Beside a shared store, a start does not probe the metadata addresses first.
    """

    async def story() -> None:
        async with serving(settings_for("127.0.0.1:0")) as daemon:
            assert daemon.bound is not None
            taken = daemon.bound.metadata[-1]
            settings = settings_for(f"192.0.2.1:{taken.rpartition(':')[2]}")
            settings = replace(settings, store=replace(settings.store, url=postgres_address))
            other = Daemon(settings, clock=SystemClock(), ids=Ids())
            with pytest.raises(WorkerFailed, match=r"192\.0\.2\.1"):
                await other.start()

    asyncio.run(story())
    said = capfd.readouterr().err
    assert "Cannot listen on 192.0.2.1" in said
    assert "Traceback" not in said
