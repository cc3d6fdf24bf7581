"""The feed of a process for metadata nodes elsewhere: its address, and when it is closed."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from forewarn.api.listener import FEED, taken
from forewarn.service.operators import imported

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AsyncExitStack

    from forewarn.access.roles import Permission
    from forewarn.access.tokens import AccessToken
    from forewarn.api.feed_endpoint import FeedPort
    from forewarn.replication.server import FeedServer
    from forewarn.service.credentials import ServedCertificates
    from forewarn.settings import FeedSettings

#: Interval of a follower's checks whether it may serve the feed, in seconds.
FEED_LOOK_S = 0.2


def may(token: AccessToken, permission: Permission) -> bool:
    """Return whether a proved token has a permission for the whole fleet."""
    return token.bearer.owners_for(permission) is None


async def open_feed(
    server: FeedServer,
    settings: FeedSettings,
    certificates: ServedCertificates,
    *,
    closing: AsyncExitStack,
) -> str:
    """Open the address for nodes on other machines until `closing` ends; return the actual one.

    Raises:
        OperatorAddressUnusable: the address is malformed or in use.
    """
    (endpoint,) = await imported("forewarn.api.feed_endpoint")
    address, tls = settings.listen, certificates.load("feed", settings)
    port: FeedPort = endpoint.FeedPort()
    try:
        await port.start(server, address, tls)
    except OSError as error:
        raise taken(address, FEED, error) from error
    closing.push_async_callback(port.stop)
    # Waiting nodes are answered before their connections close.
    closing.callback(partial(server.suspend, suspended=True))
    return port.address


async def suspend_while(server: FeedServer, may_be_old: Callable[[], bool]) -> None:
    """Close the feed while the state may be outdated, which it is at first; until cancelled."""
    closed = True
    while True:
        if may_be_old() is not closed:
            closed = not closed
            server.suspend(suspended=closed)
        await asyncio.sleep(FEED_LOOK_S)
