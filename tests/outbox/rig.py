"""A far side that keeps what it is sent, and services that deliver to it. No test goes in here."""

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Iterable, Mapping
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from forewarn_base.clock import SystemClock
from forewarn_base.ids import Ids
from forewarn_base.settings import NamedTable, OutboxSettings, Settings, StoreSettings
from forewarn_server.service.daemon import Daemon
from tests.api.live import FLEET, SETTINGS, Json
from tests.asking import ask
from tests.serving import HttpServer, Request
from tests.waiting import LIMIT_S


class Receiver:
    """An HTTP server that keeps every request, and answers as it is told."""

    def __init__(self) -> None:
        """Listen on a free port."""
        #: What came and was answered well, and what was refused.
        self.taken: list[Request] = []
        self.refused: list[Request] = []
        #: Status of each answer.
        self.status = 200
        #: Answers to requests, by method: headers and body.
        self.answer: dict[str, tuple[dict[str, str], bytes]] = {}
        #: Makes the body of an answer; None: `answer` does.
        self.respond: Any = None
        self._server = HttpServer(self._take)
        self.close = self._server.close
        self.url = f"{self._server.url}/events"

    def _take(self, request: Request) -> tuple[int, bytes, Mapping[str, str]]:
        status = self.status
        (self.taken if status < 300 else self.refused).append(request)
        more, body = self.answer.get(request.method, ({}, b""))
        return status, body if self.respond is None else self.respond(request), more

    def events(self) -> list[Any]:
        """Return every CloudEvent that was taken, in the order in which they came."""
        found: list[Any] = []
        for request in list(self.taken):
            if request.method == "POST":
                told = request.json
                found += told if isinstance(told, list) else [told]
        return found

    def sequences(self) -> list[int]:
        """Return the numbers of those events."""
        return [int(each["sequence"]) for each in self.events()]


def delivering(
    tables: Mapping[str, Mapping[str, object]], settings: Settings = SETTINGS, *, store: str = ""
) -> Settings:
    """Return settings with these destinations."""
    named = tuple(NamedTable(name, values) for name, values in tables.items())
    if store:
        settings = replace(settings, store=StoreSettings(url=store))
    return replace(settings, outbox=OutboxSettings(named))


def is_complete(sequences: Iterable[int], last: int) -> bool:
    """Whether everything up to `last` came, each first in its order; fails where one was lost.

    What comes once more, behind what it came before, is what "at least once" allows: delivery
    went on from where it was noted last.
    """
    newest = 0
    for sequence in sequences:
        assert not newest or sequence <= newest + 1, f"{sequence} came behind {newest}"
        newest = max(newest, sequence)
    return newest >= last


def serve(settings: Settings, ready: Connection) -> None:
    """Run a service until it is killed; tell where operators find it."""

    async def run() -> None:
        daemon = Daemon(settings, clock=SystemClock(), ids=Ids())
        bound = await daemon.start()
        ready.send(bound.operator.removeprefix("http://"))
        await daemon.ended.wait()

    asyncio.run(run())


class Life:
    """A service in a process of its own, from its start until it is killed."""

    def __init__(self, settings: Settings) -> None:
        """Start it."""
        methods = multiprocessing.get_context("forkserver")
        methods.set_forkserver_preload(
            ["tests.outbox.rig", "forewarn_server.api.app", "forewarn_server.outbox.destinations"]
        )
        receiving, sending = methods.Pipe(duplex=False)
        self._process = methods.Process(target=serve, args=(settings, sending))
        self._process.start()
        sending.close()
        assert receiving.poll(LIMIT_S), "the service does not start"
        self.address: str = receiving.recv()

    def call(self, method: str, path: str, form: object = None) -> Json:
        """Send one request to its operator API."""
        return ask(self.address, method, path, form).json

    def fleet(self) -> None:
        """Apply a topology."""
        self.call("PUT", "/v1/topology", FLEET)

    def last(self) -> int:
        """Return the number of the last entry of history."""
        [told] = self.call("GET", "/v1/outbox")["destinations"]
        return int(told["sequence"]) + int(told["behind"])

    def kill(self) -> None:
        """End it by SIGKILL."""
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.join(LIMIT_S)
