"""All open connections of one service, with limits per caller, and an order of closing.

Admission has a constant cost, because it compares only the few connections that were examined
longest ago.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Protocol

from forewarn_base.settings import MetadataSettings
from forewarn_metadata.endpoint.identity import Callers, Peer

#: Number of connections that are compared to choose the connection to close.
LOOKS_MAX = 8

#: Divisor of the maximum number of connections; the quotient is unknown callers' limit.
UNKNOWN_SHARE = 4

#: Maximum age of an unknown caller's request, in whole seconds of the service: 1 to 2 s.
UNKNOWN_CALLER_REQUEST_S_MAX = 2

#: Cost of closing a connection, in ascending order: already ending; request began in an earlier
#: second; idle; request began in this second; waiting for an answer.
OVER, STUCK, IDLE, FRESH, HELD = range(5)

#: File descriptors reserved for the operator API and the store: a quarter, at most 1024.
RESERVED_SHARE, RESERVED_FDS_MAX = 4, 1024


class OpenConnection(Protocol):
    """The part of a connection that this module uses."""

    peer: Peer
    client: ConnectedClient
    #: Second of the connection's last activity.
    stamp: int
    #: Second in which the unfinished request began.
    since: int
    over: bool
    stalled: bool

    @property
    def ready(self) -> Mapping[bytes, object]:
        """Cached answers of the connection; empty while a request is in progress."""

    @property
    def idle(self) -> bool:
        """Whether no request is in progress."""

    @property
    def unfinished(self) -> bool:
        """Whether a request has arrived in part."""

    def identity_moved(self) -> bool:
        """Identify the caller again; return whether a held request has another caller now."""

    def answer_again(self) -> None:
        """Answer a held request now, for the current caller."""

    def make_way(self) -> bool:
        """Close to free a slot for a new connection; return False if an approval forbids it."""

    def stop(self) -> None:
        """Close now if idle, otherwise after the current answer."""

    def slow(self) -> None:
        """Refuse a request that has not arrived in time."""

    def abandon(self) -> None:
        """Close the connection without waiting."""


class ConnectedClient:
    """A client with connections: a VM, an address without a VM, or all callers behind proxies."""

    __slots__ = ("connections", "is_known", "name")

    def __init__(self, name: str, *, is_known: bool) -> None:
        """Start without a connection; an empty name stands for all callers behind proxies."""
        self.name = name
        self.is_known = is_known
        self.connections: dict[OpenConnection, None] = {}

    @property
    def is_shared(self) -> bool:
        """Whether the connections belong to many VMs."""
        return self.is_known and not self.name


class OpenConnections:
    """The connections and their limits."""

    def __init__(self, settings: MetadataSettings, callers: Callers, *, fds_max: int) -> None:
        """`fds_max` is the maximum number of file descriptors of the process; 0: unknown."""
        reserved = min(fds_max // RESERVED_SHARE, RESERVED_FDS_MAX)
        limit = settings.max_connections
        #: Maximum connections; the operator API uses the remaining descriptors.
        self.limit = min(limit, max(fds_max - reserved, 1)) if fds_max else limit
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
        #: Client for callers behind proxies, and for the emulator's callers that send VM names.
        self._shared = ConnectedClient("", is_known=True)

    def __len__(self) -> int:
        """Return the number of open connections."""
        return len(self._known) + len(self._unknown)

    def __iter__(self) -> Iterator[OpenConnection]:
        """Iterate over a copy of the connections."""
        return iter((*self._known, *self._unknown))

    def admit(self, peer: Peer) -> ConnectedClient | None:
        """Return the client of a new connection; close another connection if necessary.

        None: refuse.
        """
        client = self._client_of(peer)
        if client is self._shared:
            may = True
        elif client.is_known:  # at its limit, a VM's new connection replaces an old connection
            connections = client.connections
            may = len(connections) < self._client_limit or self._one_makes_way(
                connections, worth_max=IDLE
            )
        else:  # refuse unknown callers at their limit, because a refusal costs least
            is_free = len(self._unknown) < self._unknown_limit
            may = is_free and len(client.connections) < self._client_limit
        if may and len(self) >= self.limit:
            may = self.make_room()
        return client if may else None

    def add(self, connection: OpenConnection) -> None:
        """Count an admitted connection."""
        client = connection.client
        client.connections[connection] = None
        if client is not self._shared:
            (self._vms if client.is_known else self._addresses)[client.name] = client
        (self._known if client.is_known else self._unknown)[connection] = None

    def remove(self, connection: OpenConnection) -> None:
        """Remove a closed connection from the count."""
        client = connection.client
        if client.connections.pop(connection, self) is self:
            return
        if not client.connections and client is not self._shared:
            del (self._vms if client.is_known else self._addresses)[client.name]
        del (self._known if client.is_known else self._unknown)[connection]

    def move(self, connection: OpenConnection) -> None:
        """Count a connection for the VM that now has the connection's address."""
        client = self._client_of(connection.peer)
        if client is not connection.client:
            self.remove(connection)
            connection.client = client
            self.add(connection)

    def make_room(self) -> bool:
        """Close one connection, preferably of an unknown caller; return False if none can close."""
        return self._one_makes_way(self._unknown) or self._one_makes_way(self._known)

    def sweep(self, tick: int) -> None:
        """Close connections that are idle, slow or stalled for too long; O(connections)."""
        settings, self._tick = self._settings, tick
        idle_from = tick - settings.idle_timeout_s
        slow_from = tick - settings.request_timeout_s
        stall_from = tick - settings.stall_timeout_s
        for connection in tuple(self._known):
            if (
                connection.ready and connection.stamp > idle_from
            ):  # most connections poll repeatedly
                continue
            if connection.over or connection.stalled:
                if connection.stamp <= stall_from:
                    connection.abandon()
            elif connection.unfinished:
                if connection.since <= slow_from:
                    connection.slow()
            elif connection.stamp <= idle_from and connection.idle:
                connection.stop()
        unknown_from = tick - min(UNKNOWN_CALLER_REQUEST_S_MAX, settings.request_timeout_s)
        for connection in tuple(self._unknown):
            if connection.since <= unknown_from or connection.stamp <= unknown_from:
                connection.abandon()

    def _client_of(self, peer: Peer) -> ConnectedClient:
        if self._callers.is_shared(peer):
            return self._shared
        caller = self._callers.by_peer(peer)
        if caller is not None:
            return self._vms.get(caller.vm) or ConnectedClient(caller.vm, is_known=True)
        client = self._addresses.get(peer.address)
        return client or ConnectedClient(peer.address, is_known=False)

    def _one_makes_way(
        self, connections: dict[OpenConnection, None], *, worth_max: int = HELD
    ) -> bool:
        """Close one of the least recently examined connections; examine at most `LOOKS_MAX`."""
        looked = [each for each, _ in zip(connections, range(LOOKS_MAX), strict=False)]
        worths = {each: self._worth(each) for each in looked}
        ranked = sorted(looked, key=worths.__getitem__)
        for each in ranked:
            if worths[each] > worths[ranked[0]]:  # a later call examines the other connections
                del connections[each]
                connections[each] = None
        return any(worths[each][0] <= worth_max and each.make_way() for each in ranked)

    def _worth(self, connection: OpenConnection) -> tuple[int, int]:
        """Return the cost of closing a connection; valid requests arrive within milliseconds."""
        if connection.over:
            return OVER, connection.stamp
        if connection.unfinished:
            return (STUCK if connection.since < self._tick else FRESH), connection.stamp
        return (IDLE if connection.idle else HELD), connection.stamp
