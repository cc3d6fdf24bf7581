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

from forewarn.clock import SystemClock
from forewarn.garbage import freeze_garbage
from forewarn.metadata.server import MetadataServer, follow_clock_steps
from forewarn.replication.access import TlsFiles
from forewarn.replication.feed_client import FeedClient, NodeIdentity
from forewarn.replication.node_files import NodeDirectory
from forewarn.replication.node_store import NodeStore
from forewarn.replication.spool import Spool
from forewarn.service.process import notify, on_signals
from forewarn.service.settings_check import is_local, refuse

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn.api.server import OperatorServer
    from forewarn.replication.messages import DocumentChange
    from forewarn.settings import Settings

log = logging.getLogger("forewarn")

#: Maximum total length of host names, which are part of each request's URL.
HOSTS_LENGTH_MAX = 2048


class MetadataNode:
    """One node. Use it on one event loop."""

    def __init__(self, settings: Settings) -> None:
        """Lock the node's store; call it on the event loop.

        Raises:
            NodeStoreUnusable: the store's directory is unusable, or another node uses it.
            TlsFilesInvalid: the node's certificate or key cannot be used.
        """
        node = settings.node
        self._settings = settings
        self.clock = SystemClock()
        tls = None
        #: Expiry of the node's certificate, in seconds since the epoch UTC, by section.
        self._expiries: dict[str, float] = {}
        if node.ca:
            from forewarn.replication.tls import client_context, expiry_of  # noqa: PLC0415 - not on a socket

            tls = client_context(TlsFiles(node.certificate, node.key, node.ca))
            if node.certificate:
                self._expiries["node"] = expiry_of(node.certificate)
        self._store = NodeStore(NodeDirectory(Path(node.store)))
        identity = NodeIdentity(
            str(node.name) or socket.gethostname(),
            hosts=tuple(map(str, node.hosts)),
            token=str(node.token),  # errors about texts from the environment name the variable
            tls=tls,
        )
        self.feed_client = FeedClient(
            node.follow, self._apply, identity=identity, store=self._store
        )
        upstream: FeedClient | Spool = self.feed_client
        self._spool: Spool | None = None
        #: Address of the metrics; empty: none.
        self.metrics_address = ""
        if node.max_spooled_approvals:
            upstream = self._spool = Spool(
                self.feed_client, self._store.files, size_max=node.max_spooled_approvals
            )
        self.server = MetadataServer(settings.metadata, upstream, clock=self.clock)

    async def run(self, ended: asyncio.Event, started: Callable[[tuple[str, ...]], None]) -> int:
        """Serve until stopped, or until a change cannot be shown; return the exit status."""
        loop = asyncio.get_running_loop()
        client = self.feed_client
        served: OperatorServer | None = None
        kept = client.take_up()
        client.start()
        follow_clock_steps(self.clock)
        events = [ended, client.failed] if kept else [ended, client.failed, client.followed]
        first, *_ = waits = [loop.create_task(event.wait()) for event in events]
        try:
            if not kept:  # no VM is known yet, and every caller would get 404
                log.info(
                    "waiting for the feed: no documents are stored", extra={"action": "waiting"}
                )
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if self._settings.listen.metrics:
                from forewarn.telemetry.endpoint import start_node_metrics  # noqa: PLC0415 - if wanted

                served = await start_node_metrics(
                    self._settings.listen.metrics,
                    figures=self.server.figures,
                    status=self.status,
                    expiries=self._expiries,
                )
                self.metrics_address = served.address
            if kept or client.followed.is_set():
                started(await self.server.start(self._settings.listen.metadata))
                freeze_garbage()
            await asyncio.wait(waits[:2], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
            if served is not None:
                await served.stop()
            await self.server.stop()
            if self._spool is not None:
                await self._spool.stop()
            await client.stop()
            self._store.close()
        return int(not first.done() or first.cancelled())

    def status(self) -> dict[str, int]:
        """Return the node's state of the feed; on the event loop."""
        return {
            "feed_connected": int(self.feed_client.followed.is_set()),
            "feed_sequence": self.feed_client.sequence,
            "spooled_approvals": self._spool.waiting if self._spool else 0,
        }

    def _apply(self, change: DocumentChange) -> None:
        self.server.service.apply(change)


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
