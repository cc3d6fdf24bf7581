"""All open connections of one service: who has how many, and which of them makes way.

Admitting one costs the same however many there are: a few of those that were looked at longest
ago are compared, never all.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from forewarn.metadata.identity import Callers, Peer
    from forewarn.settings import MetadataSettings

LOOKS_MAX = 8
"""Connections compared where one must make way."""

UNKNOWN_SHARE = 4
"""Callers whom no VM owns have at most one in this many of all connections."""

UNKNOWN_REQUEST_S = 2
"""Seconds of the service's count in which such a caller's request must have come: 1 to 2 s."""

OVER, STUCK, IDLE, FRESH, HELD = range(5)
"""How much is lost with a connection: it ends anyway; its request began in an earlier second;
nothing is under way; its request began just now; it waits for an answer.
"""

RESERVED_SHARE, RESERVED_FDS_MAX = 4, 1024
"""File descriptors left to the operator API and the store: one in four, and at most this many."""


class OpenConnection(Protocol):
    """What is known about a connection here."""

    peer: Peer
    client: ConnectedClient
    stamp: int
    """Second of the last sign of life."""
    since: int
    """Second in which an unfinished request began."""
    over: bool
    stalled: bool

    @property
    def ready(self) -> Mapping[bytes, object]:
        """What it answers from memory; empty while anything is under way."""

    @property
    def idle(self) -> bool:
        """Whether nothing of it is under way."""

    @property
    def unfinished(self) -> bool:
        """Whether a request has begun to arrive and is not here yet."""

    def identity_moved(self) -> bool:
        """Ask again who this is; returns whether a held answer must be another's."""

    def answer_again(self) -> None:
        """Answer a held request for its caller as of now."""

    def make_way(self) -> bool:
        """Close for a newcomer's sake; False where an approval is under way."""

    def stop(self) -> None:
        """Close if idle, else with the answer under way."""

    def slow(self) -> None:
        """Refuse a request that did not arrive in time."""

    def abandon(self) -> None:
        """Cut it off."""


class ConnectedClient:
    """Who opens connections: one VM, one address that no VM owns, or all behind the proxies."""

    __slots__ = ("connections", "is_known", "name")

    def __init__(self, name: str, *, is_known: bool) -> None:
        """Start without a connection; who shares an address has no name."""
        self.name = name
        self.is_known = is_known
        self.connections: dict[OpenConnection, None] = {}

    @property
    def is_shared(self) -> bool:
        """Whether these are the connections of many VMs."""
        return self.is_known and not self.name


class OpenConnections:
    """The connections and their limits."""

    def __init__(self, settings: MetadataSettings, callers: Callers, *, fds_max: int) -> None:
        """Start empty.

        Args:
            settings: Whose limits hold.
            callers: Who owns which address.
            fds_max: How many file descriptors the process may have; 0: nobody knows.
        """
        reserved = min(fds_max // RESERVED_SHARE, RESERVED_FDS_MAX)
        limit = settings.max_connections
        self.limit = min(limit, max(fds_max - reserved, 1)) if fds_max else limit
        """Most connections at a time; the operator API uses the remaining descriptors."""
        self._unknown_limit = min(
            settings.max_unknown_connections, max(self.limit // UNKNOWN_SHARE, 1)
        )
        self._client_limit = settings.max_connections_per_client
        self._settings = settings
        self._callers = callers
        self._known: OrderedDict[OpenConnection, None] = OrderedDict()
        self._unknown: OrderedDict[OpenConnection, None] = OrderedDict()
        self._tick = 0
        self._vms: dict[str, ConnectedClient] = {}
        self._addresses: dict[str, ConnectedClient] = {}
        self._shared = ConnectedClient("", is_known=True)
        """Those behind the proxies, and in the emulator those who say who they are."""

    def __len__(self) -> int:
        """Return the number of open connections."""
        return len(self._known) + len(self._unknown)

    def __iter__(self) -> Iterator[OpenConnection]:
        """Go through a copy of them."""
        return iter((*self._known, *self._unknown))

    def admit(self, peer: Peer) -> ConnectedClient | None:
        """Return whose new connection this is, after another one made way if one must; or None."""
        client = self._client_of(peer)
        if client is self._shared:
            may = True
        elif client.is_known:  # a VM that has lost count may ask all the same
            connections = client.connections
            may = len(connections) < self._client_limit or self._one_makes_way(
                connections, worth_max=IDLE
            )
        else:  # nobody is owed anything: refusing is the least work
            is_free = len(self._unknown) < self._unknown_limit
            may = is_free and len(client.connections) < self._client_limit
        if may and len(self) >= self.limit:
            may = self.make_room()
        return client if may else None

    def add(self, connection: OpenConnection) -> None:
        """Count a connection whose client was admitted."""
        client = connection.client
        client.connections[connection] = None
        if client is not self._shared:
            (self._vms if client.is_known else self._addresses)[client.name] = client
        (self._known if client.is_known else self._unknown)[connection] = None

    def remove(self, connection: OpenConnection) -> None:
        """Strike a closed connection off; nothing where it is not here."""
        client = connection.client
        if client.connections.pop(connection, self) is self:
            return
        if not client.connections and client is not self._shared:
            del (self._vms if client.is_known else self._addresses)[client.name]
        del (self._known if client.is_known else self._unknown)[connection]

    def move(self, connection: OpenConnection) -> None:
        """Count a connection as that of the VM that has its address now."""
        client = self._client_of(connection.peer)
        if client is not connection.client:
            self.remove(connection)
            connection.client = client
            self.add(connection)

    def make_room(self) -> bool:
        """Close one connection, an unknown caller's first; return False if none can be closed."""
        return self._one_makes_way(self._unknown) or self._one_makes_way(self._known)

    def sweep(self, tick: int) -> None:
        """Close what has been silent, slow or unread for too long; its cost grows with all."""
        settings, self._tick = self._settings, tick
        idle_from = tick - settings.idle_timeout_s
        slow_from = tick - settings.request_timeout_s
        stall_from = tick - settings.stall_timeout_s
        for connection in tuple(self._known):
            if connection.ready and connection.stamp > idle_from:  # most are polled again and again
                continue
            if connection.over or connection.stalled:
                if connection.stamp <= stall_from:
                    connection.abandon()
            elif connection.unfinished:
                if connection.since <= slow_from:
                    connection.slow()
            elif connection.stamp <= idle_from and connection.idle:
                connection.stop()
        unknown_from = tick - min(UNKNOWN_REQUEST_S, settings.request_timeout_s)
        for connection in tuple(self._unknown):
            if connection.since <= unknown_from or connection.stamp <= unknown_from:
                connection.abandon()

    def _client_of(self, peer: Peer) -> ConnectedClient:
        if self._callers.is_shared(peer):
            return self._shared
        caller = self._callers.by_peer(peer)
        if caller is not None:
            return self._vms.get(caller.vm) or ConnectedClient(caller.vm, is_known=True)
        known = self._addresses.get(peer.address)
        return known or ConnectedClient(peer.address, is_known=False)

    def _one_makes_way(
        self, connections: dict[OpenConnection, None], *, worth_max: int = HELD
    ) -> bool:
        """Close one of the least recently examined connections; examine at most `LOOKS_MAX`."""
        looked = [each for each, _ in zip(connections, range(LOOKS_MAX), strict=False)]
        worths = {each: self._worth(each) for each in looked}
        ranked = sorted(looked, key=worths.__getitem__)
        for each in ranked:
            if worths[each] > worths[ranked[0]]:  # the others are looked at next time
                del connections[each]
                connections[each] = None
        return any(worths[each][0] <= worth_max and each.make_way() for each in ranked)

    def _worth(self, connection: OpenConnection) -> tuple[int, int]:
        """Return how much is lost with a connection; a request is here within milliseconds."""
        if connection.over:
            return OVER, connection.stamp
        if connection.unfinished:
            return (STUCK if connection.since < self._tick else FRESH), connection.stamp
        return (IDLE if connection.idle else HELD), connection.stamp
