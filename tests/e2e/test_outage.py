"""An outage of PostgreSQL under a running service: VMs are answered, nothing is promised, it ends.

The line to the database is cut for many times the length of a lease.
"""

import asyncio
import json
import logging
import tempfile
from collections.abc import Callable, Iterator
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
from forewarn_server.service.daemon import Daemon
from forewarn_server.service.hooks import ServiceHooks
from tests import asking
from tests.postgres import PostgresServer
from tests.store.proxy import Proxy, running_proxy
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.postgres]

#: Length of a lease here, so that an outage outlasts many.
TERM_MS = 300
RENEWALS_MISSED = 15
#: What a client is told that should ask again.
NOT_READY = '{"error":"Service is not ready. Try again."}'
FLEET = ChangeTopology(hosts=(Host("h"),), groups=(Group("g"),), vms=(Vm("v", "h", "g"),))


@pytest.fixture
def line(server: PostgresServer) -> Iterator[tuple[Proxy, str]]:
    """A line to an empty database that can be cut, and the address at its near end."""
    with (
        server.database() as address,
        tempfile.TemporaryDirectory() as folder,  # a Unix socket's path must be short
        running_proxy(Path(folder), server.folder) as proxy,
    ):
        name = address.partition("@/")[2].partition("?")[0]
        yield proxy, proxy.address(name)


def test_service_outlives_an_outage_of_its_database(
    line: tuple[Proxy, str], caplog: pytest.LogCaptureFixture
) -> None:
    """Through an outage documents are shown; an approval is refused, and counts afterwards.

    Source: A-6, L-7, D-1.
    """
    caplog.set_level(logging.INFO, logger="forewarn")
    proxy, address = line
    settings = Settings(
        listen=ListenSettings(metadata=("127.0.0.1:0",), operator=""),
        metadata=MetadataSettings(default_vm="v", rate_per_s=0),
        store=StoreSettings(url=address),
        drivers=DriverSettings(default="manual"),
    )

    async def story() -> None:
        hooks = ServiceHooks(term_ms=TERM_MS)
        daemon = Daemon(settings, clock=SystemClock(), ids=Ids(), hooks=hooks)
        await live_through(daemon, proxy, caplog)

    asyncio.run(story())


async def live_through(daemon: Daemon, proxy: Proxy, caplog: pytest.LogCaptureFixture) -> None:
    """Announce, cut, look, heal, approve."""
    await daemon.start()
    try:
        await asyncio.wrap_future(daemon.control.submit(FLEET, "test"))
        await ask(daemon)
        work = RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h",))
        committed = await asyncio.wrap_future(daemon.control.submit(work, "test"))
        approval = {"StartRequests": [{"EventId": committed.operations[0].events[0]}]}
        before = await ask(daemon)
        # Known to be shown: else the outage would have it announced again, one document later.
        await until(lambda: "the notice of op-1 is published" in caplog.text)

        proxy.reachable = False
        proxy.cut()
        await until(lambda: proxy.refused > RENEWALS_MISSED)
        assert await ask(daemon, approval) == (503, NOT_READY)
        assert await ask(daemon) == before
        assert daemon.failure is None

        proxy.reachable = True
        await until(lambda: "the lease is renewed again" in caplog.text)
        answers: list[tuple[int, str]] = []

        def approved() -> bool:
            answers.append(ask_now(daemon, approval))
            return answers[-1] != (503, NOT_READY)

        await until(approved)
        assert answers[-1] == (200, "")
        started = json.loads((await ask(daemon))[1])
        assert started["DocumentIncarnation"] == json.loads(before[1])["DocumentIncarnation"] + 1
        assert started["Events"][0]["EventStatus"] == "Started"
    finally:
        await daemon.stop()


async def until(true: Callable[[], object]) -> None:
    """Wait for something, while the service goes on."""
    await asyncio.to_thread(wait_until, true)


async def ask(daemon: Daemon, body: object = None) -> tuple[int, str]:
    """Send one request as a VM, while the service goes on."""
    return await asyncio.to_thread(ask_now, daemon, body)


def ask_now(daemon: Daemon, body: object = None) -> tuple[int, str]:
    """Send one request as a VM."""
    assert daemon.bound is not None
    reply = asking.ask(daemon.bound.metadata[0], "POST" if body else "GET", asking.EVENTS, body)
    return reply.status, reply.body.decode()
