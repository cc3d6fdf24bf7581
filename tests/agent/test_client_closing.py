"""A client of the SDK that is closed while it waits."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading

import pytest

import forewarn
from tests.agent.service import Service

WAITS = pytest.mark.parametrize("waits", [True, False], ids=["held", "between polls"])


@WAITS
def test_closing_ends_changes_in_another_thread(waits: bool) -> None:
    """A thread that follows changes ends within a second, whatever it waits for."""
    with Service(waits=waits) as service:
        client = forewarn.Client(service.endpoint)
        changes = client.changes(interval_s=60)
        next(changes)
        follower = threading.Thread(target=next, args=(changes, None))
        follower.start()
        service.until(lambda: len(service.requests) > waits, "the poll that is held")
        client.close()
        follower.join(1)
        assert not follower.is_alive()
        with pytest.raises(forewarn.ClientClosed):
            client.get()


@WAITS
def test_closing_ends_changes_in_another_task(waits: bool) -> None:
    """The same for the async client."""

    async def story(service: Service) -> None:
        client = forewarn.AsyncClient(service.endpoint)
        changes = client.changes(interval_s=60)
        await anext(changes)
        follower = asyncio.ensure_future(anext(changes, None))
        await asyncio.to_thread(service.until, lambda: len(service.requests) > waits)
        await client.close()
        assert await asyncio.wait_for(follower, 1) is None
        with pytest.raises(forewarn.ClientClosed):
            await client.get()

    with Service(waits=waits) as service:
        asyncio.run(story(service))


@pytest.mark.skipif(sys.platform != "linux", reason="a full queue of connections hangs on Linux")
def test_closing_ends_a_connection_that_is_being_made() -> None:
    """So does one that waits for a service that does not accept."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.socket() as first:
        first.connect(full.getsockname())
        client = forewarn.Client(f"http://127.0.0.1:{full.getsockname()[1]}")
        follower = threading.Thread(target=next, args=(client.changes(), None))
        follower.start()
        follower.join(0.1)
        client.close()
        follower.join(1)
        assert not follower.is_alive()
