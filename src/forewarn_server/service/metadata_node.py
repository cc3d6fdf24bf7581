"""A metadata node on another machine, as a process: `forewarn node run`.

This module only connects parts in order. The node serves as soon as it has documents, from its
store or from the first whole of the feed. The control plane may be unreachable for any length of
time.
Source:
M-2.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from forewarn_base.clock import SystemClock
from forewarn_base.garbage import freeze_garbage
from forewarn_base.values import value
from forewarn_metadata.endpoint.server import MetadataServer, follow_clock_steps
from forewarn_metadata.replication.access import TlsFiles
from forewarn_metadata.replication.feed_client import FeedClient, NodeIdentity
from forewarn_metadata.replication.node_files import NodeDirectory
from forewarn_metadata.replication.node_store import NodeStore
from forewarn_metadata.replication.spool import Spool
from forewarn_server.service.process import notify, on_signals
from forewarn_server.service.settings_check import is_local, refuse

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn_base.settings import NodeSettings, Settings
    from forewarn_metadata.replication.messages import DocumentChange
    from forewarn_server.api.server import OperatorServer

log = logging.getLogger("forewarn")

#: Maximum total length of host names, which are part of each request's URL.
HOSTS_LENGTH_MAX = 2048


@value
class NodeParts:
    """The parts of a node."""

    clock: SystemClock
    store: NodeStore
    feed_client: FeedClient
    #: Accepts approvals while the control plane is unreachable; None: not configured.
    spool: Spool | None
    server: MetadataServer


class MetadataNode:
    """One node. Use it on one event loop."""

    def __init__(self, settings: Settings) -> None:
        """Lock the node's store; call it on the event loop.

        Raises:
            NodeStoreUnusable: the store's directory is unusable, or another node uses it.
            TlsFilesInvalid: the node's certificate or key cannot be used.
        """
        self._settings = settings
        self.parts = _build(settings)
        #: Expiry of the node's certificate, in seconds since the epoch UTC, by section.
        self._expiries = _expiries(settings.node)
        #: Address of the metrics; empty: none.
        self.metrics_address = ""

    async def run(self, ended: asyncio.Event, started: Callable[[tuple[str, ...]], None]) -> int:
        """Serve until stopped, or until a change cannot be shown; return the exit status."""
        loop = asyncio.get_running_loop()
        parts = self.parts
        client, server = parts.feed_client, parts.server
        served: OperatorServer | None = None
        kept = client.take_up()
        client.start()
        follow_clock_steps(parts.clock)
        events = [ended, client.failed] if kept else [ended, client.failed, client.followed]
        first, *_ = waits = [loop.create_task(event.wait()) for event in events]
        try:
            if not kept:  # no VM is known yet, and every caller would get 404
                log.info(
                    "waiting for the feed: no documents are stored", extra={"action": "waiting"}
                )
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if self._settings.listen.metrics:
                from forewarn_server.telemetry.endpoint import start_node_metrics  # noqa: PLC0415 - if wanted

                served = await start_node_metrics(
                    self._settings.listen.metrics,
                    figures=server.figures,
                    status=self.status,
                    expiries=self._expiries,
                )
                self.metrics_address = served.address
            if kept or client.followed.is_set():
                started(await server.start(self._settings.listen.metadata))
                freeze_garbage()
            await asyncio.wait(waits[:2], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
            if served is not None:
                await served.stop()
            await server.stop()
            if parts.spool is not None:
                await parts.spool.stop()
            await client.stop()
            parts.store.close()
        return int(not first.done() or first.cancelled())

    def status(self) -> dict[str, int]:
        """Return the node's state of the feed; on the event loop."""
        client, spool = self.parts.feed_client, self.parts.spool
        return {
            "feed_connected": int(client.followed.is_set()),
            "feed_sequence": client.sequence,
            "spooled_approvals": spool.waiting if spool else 0,
        }


def _build(settings: Settings) -> NodeParts:
    """Build the parts of a node, in the order of their needs."""
    node = settings.node
    tls = None
    if node.ca:
        from forewarn_metadata.replication.tls import client_context  # noqa: PLC0415 - not on a socket

        tls = client_context(TlsFiles(node.certificate, node.key, node.ca))
    identity = NodeIdentity(
        str(node.name) or socket.gethostname(),
        hosts=tuple(map(str, node.hosts)),
        token=str(node.token),  # errors about texts from the environment name the variable
        tls=tls,
    )

    def apply(change: DocumentChange) -> None:
        server.service.apply(change)

    clock, store = SystemClock(), NodeStore(NodeDirectory(Path(node.store)))
    client = FeedClient(node.follow, apply, identity=identity, store=store)
    spool = None
    if node.max_spooled_approvals:
        spool = Spool(client, store.files, size_max=node.max_spooled_approvals)
    server = MetadataServer(settings.metadata, spool or client, clock=clock)
    return NodeParts(clock, store, client, spool, server)


def _expiries(node: NodeSettings) -> dict[str, float]:
    if not (node.ca and node.certificate):
        return {}
    from forewarn_metadata.replication.tls import expiry_of  # noqa: PLC0415 - not on a socket

    return {"node": expiry_of(node.certificate)}


async def run_node(settings: Settings) -> int:
    """Run a node until a signal ends it; return its exit status."""
    ended = asyncio.Event()
    on_signals(ended.set)

    def started(bound: tuple[str, ...]) -> None:
        log.info("serving VMs at %s", ", ".join(bound), extra={"action": "started"})
        notify("STATUS=serving")

    node = MetadataNode(settings)
    # A node without documents waits for the control plane; systemd must not count this as a failed
    # start.
    notify("READY=1\nSTATUS=waiting for the feed")
    try:
        return await node.run(ended, started)
    finally:
        notify("STOPPING=1")


def check_node(settings: Settings) -> None:
    """Refuse settings that a node cannot run with.

    Raises:
        SettingInvalid: a setting is missing, or the feed would not be protected.
    """
    node = settings.node
    for name in ("follow", "store"):
        if not getattr(node, name):
            refuse(f"node.{name}", f"is required (--{name})")
    addresses = [each.strip() for each in node.follow.split(",")]
    for each in addresses:
        if each.startswith(("unix:", "nats://")):
            refuse("node.follow", f"has {each!r}, which is not HOST:PORT")
    if not node.ca and not all(map(is_local, addresses)):
        refuse("node.ca", "is required (--ca) unless the feed is on a loopback address")
    if bool(node.certificate) != bool(node.key):
        refuse("node.key", "must be set together with node.certificate")
    if not (node.certificate or node.token):
        refuse("node.certificate", "or a token is required, to prove the node's name")
    if len(",".join(node.hosts)) > HOSTS_LENGTH_MAX:
        problem = f"are longer than {HOSTS_LENGTH_MAX} characters together; leave them empty"
        refuse("node.hosts", f"{problem}: the control plane knows which hosts a node serves")
