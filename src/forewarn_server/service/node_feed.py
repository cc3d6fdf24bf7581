"""The feed of a process for metadata nodes elsewhere: who may follow it, and when it is closed."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from forewarn_core.access.roles import Permission
from forewarn_core.access.tokens import proved
from forewarn_server.api.listener import FEED, taken
from forewarn_server.service.operators import imported

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AsyncExitStack

    from forewarn_base.clock import Clock
    from forewarn_base.settings import Settings
    from forewarn_core.access.tokens import AccessToken
    from forewarn_metadata.replication.server import FeedServer
    from forewarn_server.api.feed_endpoint import FeedPort
    from forewarn_server.api.relay import Relay
    from forewarn_server.control.standby import StateFollower
    from forewarn_server.service.bridge import Bridge
    from forewarn_server.service.credentials import ServedCertificates

#: Interval of a follower's checks whether it may serve the feed, in seconds.
FEED_LOOK_S = 0.2


class NodeFeed:
    """Opens the feed, in the active process or a follower. Use it on one event loop."""

    def __init__(
        self,
        settings: Settings,
        bridge: Bridge,
        *,
        token: Callable[[str], AccessToken | None],
        clock: Clock,
        certificates: ServedCertificates,
        closing: AsyncExitStack,
    ) -> None:
        """Open nothing; `token` finds a token by its id, and `closing` closes the address."""
        self._settings = settings
        self._bridge = bridge
        self._token = token
        self._clock = clock
        self._certificates = certificates
        self._closing = closing
        #: Closes a follower's feed while its state may be outdated.
        self._following: asyncio.Task[None] | None = None
        #: Address for nodes on other machines; empty: none.
        self.address = ""

    def new_server(
        self,
        epoch: str,
        newest_commit: Callable[[], str],
        check_commit: Callable[[str, str], Awaitable[bool]],
    ) -> FeedServer | None:
        """Return a feed for nodes and workers; None if no setting needs it."""
        feed = self._settings.feed
        if not feed.listen and self._settings.listen.workers <= 0:
            return None
        from forewarn_metadata.replication.access import NodeAccess  # noqa: PLC0415 - most services have none
        from forewarn_metadata.replication.pace import pace_for  # noqa: PLC0415
        from forewarn_metadata.replication.server import FeedServer, StoreHistory  # noqa: PLC0415

        access = None
        if feed.listen:
            access = NodeAccess(feed.hosts, self.proves_node, self.may_read)
        history = StoreHistory(newest_commit, check_commit)
        pace = partial(pace_for, is_tls=bool(feed.certificate))
        server = FeedServer(self._bridge, epoch=epoch, access=access, pace=pace, history=history)
        self._closing.push_async_callback(server.stop)
        return server

    def proves_node(self, name: str, given: str) -> bool:
        """Return whether a token belongs to a node and permits following the feed."""
        token = self._prove(given)
        return token is not None and token.principal == name and _may(token, Permission.FOLLOW)

    def may_read(self, given: str) -> bool:
        """Return whether a person's token permits reading every node's part."""
        token = self._prove(given)
        return token is not None and _may(token, Permission.READ_FLEET)

    def _prove(self, token: str) -> AccessToken | None:
        return proved(token, self._token, self._clock.now_ms())

    async def open(self, server: FeedServer) -> None:
        """Open the address for nodes, if there is one.

        Raises:
            OperatorAddressUnusable: the address is malformed or in use.
        """
        settings = self._settings.feed
        if not settings.listen:
            return
        (endpoint,) = await imported("forewarn_server.api.feed_endpoint")
        tls = self._certificates.load("feed", settings)
        port: FeedPort = endpoint.FeedPort()
        try:
            await port.start(server, settings.listen, tls)
        except OSError as error:
            raise taken(settings.listen, FEED, error) from error
        self._closing.push_async_callback(port.stop)
        # Waiting nodes are answered before their connections close.
        self._closing.callback(partial(server.suspend, suspended=True))
        self.address = port.address

    async def follow(self, server: FeedServer, follower: StateFollower, relay: Relay) -> None:
        """Serve nodes from the followed state, while it is not outdated. Source: H-4."""
        server.suspend(suspended=True)
        server.state_age(lambda: follower.age_ms(follower.freshness()))
        await self.open(server)
        relay.start(server)
        self._closing.push_async_callback(relay.stop)
        watching = _suspend_while(server, lambda: follower.lapsed() or relay.silent)
        task = self._following = asyncio.ensure_future(watching)
        self._closing.callback(task.cancel)

    async def lead(self, server: FeedServer, relay: Relay, *, epoch: str, suspended: bool) -> None:
        """Take over from the followed process; the connected nodes stay."""
        if self._following is not None:
            self._following.cancel()
        server.epoch = epoch
        server.state_age(int)
        server.suspend(suspended=suspended)
        await relay.stop(self._bridge)


def _may(token: AccessToken, permission: Permission) -> bool:
    """Return whether a proved token has a permission for the whole fleet."""
    return token.bearer.owners_for(permission) is None


async def _suspend_while(server: FeedServer, may_be_old: Callable[[], bool]) -> None:
    """Close the feed while the state may be outdated, which it is at first; until cancelled."""
    closed = True
    while True:
        if may_be_old() is not closed:
            closed = not closed
            server.suspend(suspended=closed)
        await asyncio.sleep(FEED_LOOK_S)
