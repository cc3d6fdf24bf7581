"""A store that cannot be written when the service starts: VMs are told what was durable."""

import asyncio
from pathlib import Path

from forewarn_base.ids import Ids
from forewarn_base.settings import StoreSettings
from forewarn_base.values import replace
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.stimulus import NoticeShown, RequestMaintenance
from forewarn_server.control.plane import ControlPlane
from forewarn_server.service.daemon import Daemon
from forewarn_server.service.hooks import ServiceHooks
from forewarn_store import open_store
from forewarn_store.sqlite import SqliteEngine
from tests import asking
from tests.api.live import SETTINGS
from tests.clock import VirtualClock
from tests.store.story import begin
from tests.waiting import wait_until


def seal(plane: ControlPlane, *, shut: bool = True) -> None:
    """Have SQLite refuse every write as it does on a read-only disk, or no more."""
    engine = plane.store._engine
    assert isinstance(engine, SqliteEngine)
    engine._writer.execute(f"PRAGMA query_only = {int(shut)}")


def test_known_vms_are_told_what_was_loaded(tmp_path: Path) -> None:
    """Nobody is unknown, nobody sees a notice too short, and health says why. L-7, N-1, E-4."""
    store = open_store(str(tmp_path / "store.db"))
    story = begin(store)
    story.tell(RequestMaintenance(cause=Cause.REBOOT, targets=("db_0",)))
    story.now_ms -= 1000  # at once: else the notice would be given again
    story.tell(NoticeShown((1,)))
    assert story.state.operations[1].notice.shown_ms
    story.tell(RequestMaintenance(cause=Cause.REBOOT, targets=("web_0",)))  # and then it crashed
    shown = story.state.views["db"].document.incarnation
    store.close()
    metadata = replace(SETTINGS.metadata, enable_timeout_s=1.0)
    url = str(tmp_path / "store.db")
    settings = replace(SETTINGS, metadata=metadata, store=StoreSettings(url=url))

    async def look() -> None:
        hooks = ServiceHooks(prepare=seal)
        daemon = Daemon(settings, clock=VirtualClock(story.now_ms), ids=Ids(1), hooks=hooks)
        await daemon.start()
        try:
            assert daemon.bound
            vms, operators = f"http://{daemon.bound.metadata[0]}", daemon.bound.operator
            document = vms + "/metadata/scheduledevents?api-version=2020-07-01&vm="
            status, body = await asyncio.to_thread(ask, document + "db_0")
            assert (status, f'"DocumentIncarnation":{shown}' in body) == (200, True)
            assert (await asyncio.to_thread(ask, document + "web_0"))[0] == 503
            assert (await asyncio.to_thread(ask, document + "nobody"))[0] == 404
            status, body = await asyncio.to_thread(ask, operators + "/v1/health")
            assert (status, "readonly" in body) == (503, True)
            await asyncio.wrap_future(daemon.control.read(lambda plane: seal(plane, shut=False)))
            healthy = lambda: ask(operators + "/v1/health")[0] == 200  # noqa: E731
            await asyncio.to_thread(wait_until, healthy)
            assert (await asyncio.to_thread(ask, document + "web_0"))[0] == 200
        finally:
            await daemon.stop()

    asyncio.run(look())


def ask(url: str) -> tuple[int, str]:
    """Send one request as a VM or an operator."""
    address, _, path = url.removeprefix("http://").partition("/")
    reply = asking.ask(address, "GET", f"/{path}")
    return reply.status, reply.body.decode()
