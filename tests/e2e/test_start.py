"""What a service that starts waits for."""

import asyncio
from pathlib import Path

from forewarn_base.clock import SystemClock
from forewarn_base.ids import Ids
from forewarn_base.settings import (
    FeedSettings,
    LifecycleSettings,
    ListenSettings,
    Settings,
    StoreSettings,
)
from forewarn_server.service.daemon import Daemon
from forewarn_store import open_store
from tests.store.story import begin
from tests.waiting import LIMIT_S


def test_start_does_not_wait_for_nodes(tmp_path: Path) -> None:
    """VMs and nodes are served at once, however long work waits for nodes. Source: H-2."""
    store = open_store(f"sqlite://{tmp_path}/store.db")
    begin(store)
    store.close()
    settings = Settings(
        store=StoreSettings(url=f"sqlite://{tmp_path}/store.db"),
        listen=ListenSettings(metadata=("127.0.0.1:0",), operator=""),
        feed=FeedSettings(listen="127.0.0.1:0", hosts=("n1=h0", "n2=h1")),
        lifecycle=LifecycleSettings(show_timeout_s=300.0),
    )

    async def story() -> None:
        daemon = Daemon(settings, clock=SystemClock(), ids=Ids())
        bound = await asyncio.wait_for(daemon.start(), LIMIT_S)
        assert bound.metadata
        assert daemon.node_feed.address
        assert set(daemon.control.node_troubles().behind) == {"n1", "n2"}
        await daemon.stop()

    asyncio.run(story())
