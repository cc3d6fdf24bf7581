"""Supervises the processes that share the metadata addresses, and restarts them after crashes.

The processes serve the documents of the feed; the control plane stays in this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from forewarn_base.clock import SystemClock
from forewarn_base.errors import OurError
from forewarn_metadata.endpoint.shared_proof import SharedProof
from forewarn_server.control.standby import RENEWALS, TERM_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from forewarn_base.settings import Settings
    from forewarn_metadata.replication.server import FeedServer
    from forewarn_server.control.service_state import Liveness

log = logging.getLogger("forewarn")

#: Maximum workers on one port.
WORKERS_MAX = 64
#: How long a starting worker may be silent, in seconds.
START_S_MAX = 20.0
#: Maximum number of silent periods in a start with signs of progress, for large fleets.
START_SPANS_MAX = 30
#: Time limit for a worker to stop, in seconds; it finishes running answers, then it is killed. A
#: follower takes over once all have stopped. Source: H-2.
STOP_S_MAX = 1.0
#: Pause before a crashed worker is restarted, in seconds.
REVIVE_S = 0.5


#: Prefix of the temporary directory of the feed's socket, and the name of the socket in it.
FOLDER_PREFIX, FEED = "forewarn-feed-", "feed"


class WorkerFailed(OurError):
    """A metadata process ended before it listened."""

    code = "worker-failed"
    message = "A metadata worker could not start on {addresses}."
    advice = "See the worker's message above; often the address is in use or requires more rights."


class Workers:
    """A number of metadata processes and the feed that they follow."""

    def __init__(self, settings: Settings, feed: FeedServer) -> None:
        """Start without processes; the owner stops the feed."""
        self.feed = feed
        self.feed.workers.when_silent(self._kill)
        metadata = settings.metadata
        self._settings = json.dumps(asdict(metadata)).encode() + b"\n"
        self._log = f"{settings.log.level} {settings.log.format}"
        self._count = min(settings.listen.workers, WORKERS_MAX)
        self._clock = SystemClock()
        self._proof = None if metadata.serve_outdated else SharedProof()
        _remove_abandoned()
        self._folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
        # Locked before the feed exists: see `_remove_abandoned`.
        self._folder_lock = _lock_folder(self._folder)
        self._address = str(self._folder / FEED)
        self._restarters: list[asyncio.Task[None]] = []
        self._starting: asyncio.Task[None] | None = None
        #: The processes that serve now.
        self.processes: list[asyncio.subprocess.Process] = []
        #: The last counters of each worker, by name.
        self.figures: dict[str, dict[str, int]] = {}
        #: Set once a crashed worker has been replaced.
        self.replaced = asyncio.Event()

    async def start(self, addresses: Sequence[str]) -> tuple[str, ...]:
        """Start all workers on the same addresses; return the actual addresses.

        Raises:
            WorkerFailed: a worker did not begin to listen.
        """
        await self.feed.workers.start(self._address)
        bound: tuple[str, ...] = tuple(addresses)
        for place in range(self._count):  # the first worker determines the ports for the others
            process, bound = await self._spawn(place, bound)
            self.processes.append(process)
            restarter = self._restart_ended(place, bound)
            self._restarters.append(asyncio.create_task(restarter))
        return bound

    def start_soon(self, addresses: Sequence[str], then: Callable[[], object]) -> None:
        """Start all workers while this process answers at the addresses; then call `then`.

        If a worker cannot start, this process continues to answer.
        """

        async def start() -> None:
            try:
                await self.start([each for each in addresses if not each.startswith("unix:")])
            except WorkerFailed as error:
                text = "%s This process answers VMs, too."
                log.error(text, error, extra={"action": error.code})  # noqa: TRY400 - an own child
            else:
                then()

        self._starting = asyncio.create_task(start())

    async def stop(self) -> None:
        """Stop every worker, then the feed."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        for restarter in self._restarters:
            restarter.cancel()
        await asyncio.gather(*self._restarters, return_exceptions=True)
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._folder_lock is not None:
            os.close(self._folder_lock)
            self._folder_lock = None
        if self._proof is not None:
            proof, self._proof = self._proof, None
            proof.close()

    def prove(self, for_ms: int) -> None:
        """Permit the workers to answer VMs for this long; on any thread. Source: H-3."""
        if self._proof is not None:
            self._proof.extend(self._clock.elapsed_ms() + for_ms)

    async def prove_while_alive(self, liveness: Liveness) -> None:
        """Permit the workers to answer VMs while this process responds; its store has no lease."""
        while True:
            if not liveness.silent():
                self.prove(TERM_MS)
            await asyncio.sleep(TERM_MS / RENEWALS / 1000)

    def _kill(self, name: str) -> None:
        """Kill a hanging worker; its supervisor restarts it. Source: L-7."""
        for place, process in enumerate(self.processes):
            if _name(place) == name and process.returncode is None:
                text = "metadata %s (process %s) does not answer and is killed"
                log.error(text, name, process.pid, extra={"action": "worker.hung"})
                with contextlib.suppress(ProcessLookupError):
                    # `Process.kill` would collect a dead worker's status, for which
                    # `_restart_ended` waits.
                    os.kill(process.pid, signal.SIGKILL)

    async def _spawn(
        self, place: int, addresses: Sequence[str]
    ) -> tuple[asyncio.subprocess.Process, tuple[str, ...]]:
        listen = [word for address in addresses for word in ("--listen", address)]
        inherited = -1 if self._proof is None else self._proof.descriptor
        process = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                "forewarn_metadata.endpoint.worker_process",
                "--feed",
                self._address,
                *listen,
            ),
            *("--of", str(self._count), "--name", _name(place)),
            *("--proof", str(inherited), "--log", self._log),
            pass_fds=() if self._proof is None else (inherited,),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(self._settings)
        line = b""
        try:
            line = await self._first_line(process.stdout, _name(place))
        finally:
            if not line:
                await self._end(place, process)
        if not line:
            raise WorkerFailed(addresses=", ".join(addresses))
        return process, tuple(json.loads(line)["metadata"])

    async def _restart_ended(self, place: int, addresses: tuple[str, ...]) -> None:
        """Restart a worker whenever it ends, until cancelled; then stop the worker."""
        try:
            while True:
                await self._read_figures(place)
                status = await self.processes[place].wait()
                self.feed.nodes.dismiss(_name(place))
                # A service manager ends workers together with their parent, as planned.
                level = logging.ERROR if status else logging.INFO
                log.log(level, "a metadata worker ended (status %s)", status)
                await asyncio.sleep(REVIVE_S)
                with contextlib.suppress(WorkerFailed):
                    self.processes[place], _ = await self._spawn(place, addresses)
                    self.replaced.set()
        finally:
            await self._end(place, self.processes[place])

    async def _read_figures(self, place: int) -> None:
        """Read the status lines of a worker, one every few seconds, until the worker ends."""
        output = self.processes[place].stdout
        assert output is not None
        while line := await output.readline():
            self.figures[_name(place)] = json.loads(line)
        self.figures.pop(_name(place), None)

    async def _first_line(self, output: asyncio.StreamReader, name: str) -> bytes:
        """Return a worker's line with its addresses; empty if the worker ends before."""
        reading = asyncio.ensure_future(output.readline())
        for _ in range(START_SPANS_MAX):
            done, _ = await asyncio.wait((reading,), timeout=START_S_MAX)
            if done:
                return reading.result()
            if self.feed.nodes.silent(name):
                break
        reading.cancel()
        return b""

    async def _end(self, place: int, process: asyncio.subprocess.Process) -> None:
        """Ask a worker to stop, and kill it after the time limit; ignore one that has ended."""
        await _end(process)
        self.feed.nodes.dismiss(_name(place))


def _name(place: int) -> str:
    """Return a worker's name in the feed and in the log."""
    return f"worker {place}"


def _remove_abandoned() -> None:
    """Remove the directories of killed services of this user.

    A service locks its directory until it ends. So if a process can lock such a directory, the
    directory's service is dead.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, in use, or just removed
            (folder / FEED).lstat()
            held = _lock_folder(folder)
            try:
                if held is not None and os.fstat(held).st_uid == os.getuid():
                    (folder / FEED).unlink()
                    folder.rmdir()
            finally:
                if held is not None:
                    os.close(held)


def _lock_folder(folder: Path) -> int | None:
    """Lock a directory while its descriptor is open; None if the system cannot open directories."""
    try:
        import fcntl  # noqa: PLC0415 - not everywhere
    except ImportError:
        return None
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        raise
    return held


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ask a worker to stop, and kill it after the time limit; ignore one that has ended."""
    if process.stdin is not None:
        process.stdin.close()  # a worker ends when its standard input closes
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_S_MAX)
    except TimeoutError:
        process.kill()
        await process.wait()
