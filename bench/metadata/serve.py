"""Forewarn's metadata service without a control plane, one of the compared servers."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from forewarn_base.clock import SystemClock
from forewarn_base.garbage import freeze_garbage
from forewarn_base.protocol.documents import read_document
from forewarn_base.settings import MetadataSettings
from forewarn_core.requests import Request, RequestAnswer
from forewarn_metadata.endpoint.server import MetadataServer, new_event_loop
from forewarn_metadata.replication.messages import Caller, DocumentChange, PollReport, Publication


class Nobody:
    """Placeholder for the control plane."""

    def ask(self, request: Request) -> asyncio.Future[RequestAnswer]:
        """Never asked."""
        raise NotImplementedError(request)

    def tell(self, report: PollReport) -> None:
        """Ignore polls."""


async def main(listen: str, body: bytes, rate_per_s: float) -> None:
    """Serve one document until a signal stops the process."""
    settings = MetadataSettings(  # all load comes from one VM
        rate_per_s=rate_per_s, rate_burst=1_000_000, max_connections_per_client=20_000
    )
    server = MetadataServer(settings, Nobody(), clock=SystemClock())
    publication = Publication("group", enabled=True, document=read_document(body))
    caller = Caller("vm", "group", "group", addresses=("127.0.0.1",))
    server.service.apply(
        DocumentChange(1, whole=True, callers=(caller,), publications=(publication,))
    )
    await server.start([listen])
    freeze_garbage()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    await server.stop()


with asyncio.Runner(loop_factory=new_event_loop) as runner:
    runner.run(main(sys.argv[1], Path(sys.argv[2]).read_bytes(), float(sys.argv[3])))
