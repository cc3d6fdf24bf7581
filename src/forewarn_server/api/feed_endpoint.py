"""The feed for metadata nodes by HTTP: `GET` and `POST /feed/NODE`.

`replication/server.py` decides what a node is shown. A node proves its name by its certificate or
token, and names its process in a header; without that header a person reads the part, which
confirms nothing. Source: M-1, M-4, M-5.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import NamedTuple
from urllib.parse import parse_qs

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from forewarn_base.errors import CallerError, ForewarnError
from forewarn_base.host_port import host_and_port, joined_address
from forewarn_base.settings import OperatorSettings
from forewarn_metadata.connection_table import TrackedConnection, listeners_at
from forewarn_metadata.replication.access import NodeAccess, NodeProof, NodeRefused, names_of
from forewarn_metadata.replication.feed_tag import FeedTag, read_tag
from forewarn_metadata.replication.messages import FeedUnreadable, PollReport, read_request
from forewarn_metadata.replication.nodes import COST_BYTES
from forewarn_metadata.replication.pace import CLOCK, INSTANCE, PACE, SEQUENCE, WAIT_S_MAX
from forewarn_metadata.replication.server import NODES_MAX, FeedCaller, FeedServer
from forewarn_server.api.connections import ADMIT, ApiConnection
from forewarn_server.api.listener import FEED
from forewarn_server.api.responses import body_of, encoded, refusal
from forewarn_server.api.server import OperatorServer, start_operator
from forewarn_server.api.uvicorn_adapter import EmbeddedServer

PATH = "/feed/"
#: Member of `scope["state"]`: the connection of a request.
CONNECTION = "connection"

#: Maximum length of a POST; polls of a thousand groups with long names take 300 kB.
BODY_BYTES_MAX = 1024 * 1024

#: Maximum lengths of the id of a node's process, and of an idempotency key.
INSTANCE_LENGTH_MAX = KEY_LENGTH_MAX = 100

#: Maximum number of cached queries; most nodes send the same one.
QUERIES_MAX = 256

#: Time limit of a request until it has arrived, in seconds.
REQUEST_S_MAX = 5.0

#: Time limit of a connection without a request, in seconds. A node asks again at once, but a busy
#: machine delays it, and each new connection costs a handshake.
KEEP_ALIVE_S = 30

#: Maximum number of a source's connections without a proved name; less with few descriptors.
UNPROVED_MAX = 64


class FeedPathUnknown(CallerError):
    """The feed has no such path or method."""

    code = "feed-path-unknown"
    status = 404
    message = "The feed for metadata nodes has no {what}."
    advice = "Send GET /feed/NODE, where NODE is the name of a metadata node."


class NodeRequestUnreadable(CallerError):
    """A node's POST is malformed."""

    code = "node-request-unreadable"
    status = 400
    message = "A metadata node's request cannot be read: {reason}."
    advice = FeedUnreadable.advice


class FeedConnection(ApiConnection):
    """A connection of a node; once its name is proved, no newcomer ends it."""

    __slots__ = ("_on_lost", "certificate_names")
    keep_alive_s = KEEP_ALIVE_S

    def __init__(
        self, server: EmbeddedServer, tracked: TrackedConnection, request_timeout_s: float
    ) -> None:
        super().__init__(server, tracked, request_timeout_s)
        #: The names in the node's certificate; empty: none.
        self.certificate_names: frozenset[str] = frozenset()
        self._on_lost: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Keep the names of the node's certificate, and not the rest, which takes 1.5 KiB."""
        super().connection_made(transport)
        certificate = transport.get_extra_info("peercert")
        if certificate:
            self.certificate_names = names_of(certificate)
            certificate.clear()

    @property
    def source(self) -> str:
        """The node's address, for limits."""
        return self._tracked.source

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self.set_state(CONNECTION, self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end to the node's request."""
        if self._on_lost is not None:
            self._on_lost()
        super().connection_lost(exc)

    def when_lost(self, call: Callable[[], None]) -> None:
        """Call a function when the connection has ended."""
        self._on_lost = call

    def answered(self) -> None:
        """Stay protected between two requests of a node."""
        self._tracked.expose_stranger()


class _Query(NamedTuple):
    """The query of a request."""

    wait_s: float
    hosts: frozenset[str]


@lru_cache(QUERIES_MAX)
def _query_of(text: bytes) -> _Query:
    query = parse_qs(text.decode("latin-1"))
    wait, hosts = (query.get(name, [""])[0] for name in ("wait", "hosts"))
    wait_s = min(float(wait), WAIT_S_MAX) if wait.replace(".", "", 1).isdecimal() else 0.0
    return _Query(wait_s, frozenset(each for each in hosts.split(",") if each))


class FeedEndpoint:
    """The ASGI application of a feed."""

    #: Class of its connections.
    connection_class = FeedConnection

    def __init__(self, server: FeedServer) -> None:
        assert server.access is not None
        self._server = server
        self._access: NodeAccess = server.access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        source = scope["state"][CONNECTION].source
        try:
            response = await self._answer(scope, receive, source)
        except ClientDisconnect:
            return
        except NodeRefused as refused:
            self._server.refuse(source, refused)
            response = refusal(refused)
        except ForewarnError as error:
            response = refusal(error)
        with suppress(OSError):
            await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, source: str) -> Response:
        path, headers = str(scope["path"]), dict(scope["headers"])
        name, method = path.removeprefix(PATH), scope["method"]
        if not path.startswith(PATH) or not name or "/" in name:
            raise FeedPathUnknown(what=f"path {path[:80]!r}")
        query = _query_of(scope["query_string"])
        caller = self._caller(name, scope, headers, hosts=query.hosts, source=source)
        if method == "GET":
            return await self._follow(caller, scope, headers, wait_s=query.wait_s)
        if method != "POST" or not caller.instance:
            raise FeedPathUnknown(what=f"method {method[:20]} without a node's process")
        body = await body_of(receive, BODY_BYTES_MAX)
        self._server.charge(name, 1 + len(body) // COST_BYTES)
        try:
            message = read_request(body)
        except FeedUnreadable as error:
            raise NodeRequestUnreadable(reason=error.facts["reason"]) from error
        if isinstance(message, PollReport):
            clock = headers.get(CLOCK.encode(), b"").decode("latin-1")
            await self._server.tell(caller, message, clock)
            return Response(status_code=204)
        key = headers.get(b"idempotency-key", b"").decode("latin-1")[:KEY_LENGTH_MAX]
        reply = await self._server.ask(caller, message, key)
        sequence = {SEQUENCE: str(self._server.sequence_for(name))}
        return Response(encoded(reply), headers=sequence, media_type="application/json")

    def _caller(
        self,
        name: str,
        scope: Scope,
        headers: Mapping[bytes, bytes],
        *,
        hosts: frozenset[str],
        source: str,
    ) -> FeedCaller:
        """Return the node that proves its name, or a person who may read its part."""
        token = headers.get(b"authorization", b"").decode("latin-1").removeprefix("Bearer ")
        instance = headers.get(INSTANCE.encode(), b"").decode("latin-1")[:INSTANCE_LENGTH_MAX]
        if not instance and token and self._access.may_read(token):
            permitted = self._access.permitted(name)
            if name not in self._access.hosts and not self._server.has_host(name):
                raise NodeRefused(name=repr(name[:80]), reason="no such node is expected")
            scope["state"][ADMIT]()
            return FeedCaller(name, permitted, "")
        proof = NodeProof(scope["state"][CONNECTION].certificate_names, token)
        hosts = self._access.admit(name, hosts, proof, address=source)
        scope["state"][ADMIT]()
        return FeedCaller(name, hosts, instance, source, proof)

    async def _follow(
        self,
        caller: FeedCaller,
        scope: Scope,
        headers: Mapping[bytes, bytes],
        *,
        wait_s: float,
    ) -> Response:
        tag_text = headers.get(b"if-none-match", b"").decode("latin-1")
        tag, connection = read_tag(tag_text) if tag_text else FeedTag(), scope["state"][CONNECTION]
        if caller.instance:
            self._server.charge(caller.name, 1)
            connection.when_lost(partial(self._server.lost, caller, connection))
        update = await self._server.follow(caller, tag, wait_s, connection=connection)
        about = {
            "ETag": update.tag.text(),
            "Age": str(update.age_ms // 1000),
            "Cache-Control": "no-store",
            PACE: update.pace.text(),
            CLOCK: self._server.clock(),
        }
        if update.body is None:
            return Response(status_code=304, headers=about)
        return Response(update.body, headers=about, media_type="application/json")


class FeedPort:
    """The open addresses of a feed."""

    def __init__(self) -> None:
        #: `HOST:PORT`.
        self.address = ""
        self._servers: list[OperatorServer] = []

    async def start(
        self, server: FeedServer, address: str, tls: ssl.SSLContext | None = None
    ) -> None:
        """Serve a feed at every address of a host; port 0: a free port.

        Raises:
            OSError, ValueError, OperatorAddressUnusable: the address is malformed or in use.
        """
        limits = OperatorSettings(
            max_connections=4 * NODES_MAX,
            max_connections_per_source=UNPROVED_MAX,
            request_timeout_s=REQUEST_S_MAX,
        )
        host, port = host_and_port(address)
        for listener in await listeners_at(host, port):
            self.address = self.address or joined_address(host, listener.getsockname()[1])
            started = await start_operator(
                FeedEndpoint(server), listener, limits, tls=tls, purpose=FEED
            )
            self._servers.append(started)

    async def stop(self) -> None:
        """Close the addresses, after the end of waiting requests."""
        for each in self._servers:
            await each.stop()
