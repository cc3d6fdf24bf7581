"""A metadata worker: `python -m forewarn_metadata.endpoint.worker_process --feed … --listen …`.

The settings arrive as JSON on standard input: one object with the fields of `MetadataSettings` that
differ from their defaults. The worker serves requests once it has the first snapshot of the feed.
The worker prints one line of JSON with its addresses, and then its counters every few seconds. The
worker ends on SIGTERM or SIGINT, or when its standard input closes, so that it ends with its
parent. The worker exits with 1 after repeated failures to apply the feed, and the parent restarts
the worker.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Sequence

from forewarn_base.clock import SystemClock
from forewarn_base.errors import ForewarnError
from forewarn_base.garbage import freeze_garbage
from forewarn_base.log_format import configure_logs
from forewarn_base.settings import MetadataSettings
from forewarn_base.values import value
from forewarn_metadata.endpoint.fault import Outdated
from forewarn_metadata.endpoint.responder import BUSY
from forewarn_metadata.endpoint.server import MetadataServer, follow_clock_steps, new_event_loop
from forewarn_metadata.endpoint.shared_proof import SharedProof
from forewarn_metadata.replication.messages import DocumentChange
from forewarn_metadata.replication.worker_client import WorkerClient

SETTINGS_BYTES_MAX = 1024 * 1024
#: Interval at which a worker sends its counters to the service.
FIGURES_S = 5.0
#: Interval at which a worker checks that its service still proves its lease.
PROOF_LOOK_S = 0.1


class Worker:
    """A metadata server and the client of its feed."""

    def __init__(
        self,
        settings: MetadataSettings,
        feed: str,
        name: str,
        *,
        proof: SharedProof | None = None,
    ) -> None:
        """Create the parts; without a proof the service always decides."""
        self.feed_client = WorkerClient(feed, name, self._apply)
        self.clock = SystemClock()
        self._proof = proof
        self._outdated = False
        # After a pause this process itself may have been stopped.
        self.server = MetadataServer(
            settings, self.feed_client, clock=self.clock, on_pause=self._look
        )

    def _apply(self, change: DocumentChange) -> None:
        self.server.service.apply(change)

    def follow_proof(self) -> None:
        """Answer VMs with 503 while the service does not prove that it decides. Source: H-3."""
        self._look()
        self.server.service.loop.call_later(PROOF_LOOK_S, self.follow_proof)

    def _look(self) -> None:
        proof = self._proof
        if proof is not None and proof.holds(self.clock.elapsed_ms()) is self._outdated:
            self._outdated = not self._outdated
            self.server.service.set_fault(Outdated(BUSY) if self._outdated else None)


def read_settings(text: str) -> MetadataSettings:
    """Parse the settings of one worker; lists become tuples."""
    form = json.loads(text or "{}")
    fields: dict[str, object] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in form.items()
    }
    return MetadataSettings(**fields)  # type: ignore[arg-type]  # written by our own parent


@value
class WorkerPlace:
    """A worker's command line."""

    #: Path of the service's socket.
    feed: str
    #: The worker's name in the feed and the log.
    name: str
    listen: tuple[str, ...]
    #: Number of workers that share the addresses.
    processes: int
    #: Inherited descriptor of the service's `SharedProof`; -1: VMs are always answered.
    proof: int = -1


async def work(settings: MetadataSettings, place: WorkerPlace) -> int:
    """Serve until stopped or until the feed fails for good; return the exit status."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    with contextlib.suppress(
        ValueError, OSError
    ):  # a terminal or /dev/null as standard input never closes
        loop.add_reader(sys.stdin.fileno(), _parent_said, ended)
    proof = SharedProof(place.proof) if place.proof >= 0 else None
    worker = Worker(settings, place.feed, place.name, proof=proof)
    client = worker.feed_client
    client.start()
    if proof is not None:
        worker.follow_proof()
    follow_clock_steps(worker.clock)
    followed, stopped, failed = (
        loop.create_task(event.wait()) for event in (client.followed, ended, client.failed)
    )
    over = (stopped, failed)
    await asyncio.wait((followed, *over), return_when=asyncio.FIRST_COMPLETED)
    # Before the first snapshot, every caller would receive 404, because no VM is known.
    if followed.done():
        bound = await worker.server.start(place.listen, shared=place.processes)
        _say({"metadata": bound})
        _tell_figures(worker.server)
        freeze_garbage()
    await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED)
    for task in (followed, *over):
        task.cancel()
    await worker.server.stop()
    await client.stop()
    return int(client.failed.is_set() and not ended.is_set())


def _say(fact: object) -> None:
    sys.stdout.write(json.dumps(fact) + "\n")
    sys.stdout.flush()


def _tell_figures(server: MetadataServer) -> None:
    """Write the counters at an interval until the worker stops."""
    with contextlib.suppress(OSError):  # the parent has exited, so this process also ends
        _say(server.figures())
    asyncio.get_running_loop().call_later(FIGURES_S, _tell_figures, server)


def _parent_said(ended: asyncio.Event) -> None:
    """End when the parent closes standard input; other input is ignored."""
    if not os.read(sys.stdin.fileno(), 1):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        ended.set()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one worker."""
    parser = argparse.ArgumentParser(prog="python -m forewarn_metadata.endpoint.worker_process")
    parser.add_argument("--feed", required=True, help="path of the service's socket")
    parser.add_argument("--listen", required=True, action="append", help="an address to serve")
    parser.add_argument(
        "--of", type=int, default=1, help="number of processes that serve the addresses"
    )
    parser.add_argument("--proof", type=int, default=-1, help="descriptor of the service's proof")
    parser.add_argument("--log", default="warning text", help="level and format of the log")
    parser.add_argument("--name", default="worker", help="name in the feed and the log")
    options = parser.parse_args(arguments)
    configure_logs(*options.log.split())
    settings = read_settings(sys.stdin.readline(SETTINGS_BYTES_MAX))
    listen = tuple(options.listen)
    place = WorkerPlace(options.feed, options.name, listen, options.of, options.proof)
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(work(settings, place))
    except ForewarnError as error:  # the parent reports the failure
        sys.stderr.write(f"forewarn: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
