"""Counts what an approval passes, from the bytes on a VM's connection to its 200 and to the driver.

    python -m tools.approval_trace [--names]

A whole service runs in this process. A VM approves the only event of a reboot while every call of a
function of the product is recorded, up to the answer and then up to the call of the driver. To the
answer counts what each thread does until its part of it is done: the control plane's thread until
it has answered the request, and the event loop until the connection has written the 200.

- A *function* counts once, however often it runs; a *file* is the file of such a function.
- A *shape* is a type of value that carries the fact: an argument or a result of such a function
  that holds the event's id, itself or in values made since the request. What existed before the
  request, such as the state, does not count. A container of one type counts as that type, a tuple
  of several types as one shape, text and bytes as one each.

Before, another approval runs, so that nothing is counted that only a first one needs.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import http.client
import inspect
import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import FrameType
from typing import Any, TypeAlias

from forewarn_base.clock import SystemClock
from forewarn_base.ids import Ids
from forewarn_base.settings import (
    DriverSettings,
    ListenSettings,
    MetadataSettings,
    OperatorSettings,
    Settings,
    StoreSettings,
)
from forewarn_drivers import simulated
from forewarn_server.service.daemon import Daemon
from tools.product import SOURCES

#: Directories with the packages of the product.
ROOTS = tuple(f"{each}/" for each in SOURCES)
LIMIT_S = 60.0
#: Functions that end a thread's part of the answer.
ANSWERED = frozenset(("Submission.accept", "Connection._complete_held"))
DEPTH_MAX, ITEMS_MAX = 6, 16
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01&vm="
FLEET = {
    "hosts": {"h1": {}, "h2": {}},
    "groups": {"web": {}, "db": {}},
    "vms": {"web_0": {"host": "h1", "group": "web"}, "db_0": {"host": "h2", "group": "db"}},
}
SETTINGS = Settings(
    listen=ListenSettings(metadata=("127.0.0.1:0",), operator="127.0.0.1:0"),
    metadata=MetadataSettings(rate_per_s=0.0, vm_by_query=True),
    operator=OperatorSettings(open_on_loopback=True),
    store=StoreSettings(url="sqlite::memory:"),
    drivers=DriverSettings(default="simulated"),
)

Json: TypeAlias = Any


class Passed:
    """What an approval has passed up to a point."""

    def __init__(self, *others: Passed) -> None:
        """Begin with what the others have."""
        self.functions: set[str] = set().union(*[each.functions for each in others])
        self.shapes: set[str] = set().union(*[each.shapes for each in others])

    def counts(self) -> tuple[int, int, int]:
        """Return the numbers of functions, files and shapes."""
        files = {each.split()[0] for each in self.functions}
        return len(self.functions), len(files), len(self.shapes)


class Trace:
    """The functions and shapes of one approval."""

    def __init__(self) -> None:
        """Record nothing yet."""
        self.recording = False
        #: Set once the driver is called.
        self.begun = threading.Event()
        self.to_answer, self.to_driver = Passed(), Passed()
        #: Threads that still have a part in the answer.
        self._answering: set[int] = set()
        self._words: tuple[str, ...] = ()
        self._older: set[int] = set()
        self._kept: list[object] = []

    def begin(self, event_id: str, *threads: int) -> None:
        """Record from now on; what exists now carries nothing. These threads make the answer."""
        self._answering = {*threads}
        self._words = (event_id, event_id.lower())
        gc.collect()
        self._kept = gc.get_objects()  # so that no new value has the id of an older one
        self._older = {id(each) for each in self._kept}
        gc.disable()
        self.recording = True

    def look(self, frame: FrameType, event: str, result: object) -> None:
        """Record a call or a return; this is the profile function of every thread."""
        code = frame.f_code
        if code is simulated.SimulatedDriver.begin.__code__:
            self.begun.set()
        if not self.recording or event not in {"call", "return"}:
            return
        root = next((each for each in ROOTS if code.co_filename.startswith(each)), None)
        if root is None:
            return
        for passed in self._stages():
            if event == "call":
                function = f"{code.co_filename.removeprefix(root)} {code.co_qualname}"
                passed.functions.add(function)
                names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
                for name in names:
                    self._note(frame.f_locals.get(name), passed)
            else:
                self._note(result, passed)
        if event == "return" and code.co_qualname in ANSWERED:
            self._answering.discard(threading.get_ident())

    def _stages(self) -> Iterator[Passed]:
        if threading.get_ident() in self._answering:
            yield self.to_answer
        if not self.begun.is_set():
            yield self.to_driver

    def _note(self, found: object, passed: Passed) -> None:
        if isinstance(found, list | set | frozenset | Mapping):
            for part in parts(found):
                self._note(part, passed)
        elif isinstance(found, tuple) and len({type(part) for part in found}) == 1:
            self._note(found[0], passed)
        elif self._carries(found, DEPTH_MAX):
            passed.shapes.add(shape(found))

    def _carries(self, found: object, depth: int) -> bool:
        """Whether a value made since the request holds the event's id."""
        if isinstance(found, str):
            return any(word in found for word in self._words)
        if isinstance(found, bytes | bytearray):
            return any(word.encode() in found for word in self._words)
        if not depth or id(found) in self._older or inspect.isroutine(found):
            return False
        return any(self._carries(part, depth - 1) for part in parts(found))


def parts(found: object) -> Iterator[object]:
    """Yield what a container or an object of the product holds."""
    if isinstance(found, tuple | list | set | frozenset):
        yield from list(found)[:ITEMS_MAX]
    elif isinstance(found, Mapping):
        for key in list(found)[:ITEMS_MAX]:
            yield key
            yield found[key]
    elif type(found).__module__.startswith("forewarn") and not isinstance(found, type):
        names = set(getattr(found, "__dict__", ())) | set(getattr(found, "__struct_fields__", ()))
        for kind in type(found).__mro__:
            slots = kind.__dict__.get("__slots__", ())
            names.update([slots] if isinstance(slots, str) else slots)
        for name in names:
            yield getattr(found, name, None)


def shape(found: object) -> str:
    """Return the name of a value's type; of a tuple, the types that it holds."""
    kind = type(found)
    if kind is not tuple:
        return kind.__qualname__
    return f"({', '.join(sorted({type(part).__qualname__ for part in parts(found)}))})"


class Service:
    """A service in a thread of this process."""

    def __init__(self) -> None:
        """Start it."""
        self._started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        if not self._started.wait(LIMIT_S):
            raise SystemExit("The service does not start.")
        bound = self.daemon.bound
        assert bound is not None
        self.operator = http.client.HTTPConnection(bound.operator.removeprefix("http://"))
        self.vm = http.client.HTTPConnection(bound.metadata[0].removeprefix("http://"))

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self.daemon = Daemon(SETTINGS, clock=SystemClock(), ids=Ids(seed=1))
        await self.daemon.start()
        self._started.set()
        await self.daemon.ended.wait()
        await self.daemon.stop()

    def while_idle(self, act: Callable[[int, int], object]) -> None:
        """Call a function while the event loop and the control plane wait, with both threads."""

        async def wait() -> None:
            loop = threading.get_ident()
            self.daemon.control.read(lambda _: act(loop, threading.get_ident())).result(LIMIT_S)

        asyncio.run_coroutine_threadsafe(wait(), self._loop).result(LIMIT_S)

    def stop(self) -> None:
        """Stop it."""
        self._loop.call_soon_threadsafe(self.daemon.ended.set)
        self._thread.join(LIMIT_S)


def ask(
    connection: http.client.HTTPConnection, method: str, path: str, body: object = None
) -> Json:
    """Return the JSON of an answer."""
    headers = {"Metadata": "true", "Content-Type": "application/json"}
    connection.request(method, path, json.dumps(body) if body is not None else None, headers)
    answer = connection.getresponse()
    read = answer.read()
    if answer.status >= 300:
        raise SystemExit(f"{method} {path}: {answer.status} {read.decode()}")
    return json.loads(read) if read else None


def measured(*, names: bool) -> dict[str, tuple[int, int, int]]:
    """Return functions, files and shapes up to the answer, and up to the driver."""
    trace = Trace()
    threading.setprofile(trace.look)
    service = Service()
    try:
        ask(service.operator, "PUT", "/v1/topology", FLEET)
        approve(service, "db_0")
        trace.begun.wait(LIMIT_S)
        trace.begun.clear()
        approve(service, "web_0", trace)
        if not trace.begun.wait(LIMIT_S):
            raise SystemExit("The driver was not called.")
    finally:
        trace.recording = False
        threading.setprofile(None)
        gc.enable()
        service.stop()
    passed = Passed(trace.to_answer, trace.to_driver)
    if names:
        print("\n".join(sorted(passed.functions)), "\n".join(sorted(passed.shapes)), sep="\n\n")
    return {"to the 200": trace.to_answer.counts(), "to the driver": passed.counts()}


def approve(service: Service, vm: str, trace: Trace | None = None) -> None:
    """Request the reboot of a VM, and approve it as the VM."""
    ask(service.vm, "GET", EVENTS + vm)
    ask(service.operator, "POST", f"/v1/vms/{vm}/reboot", {})
    [event] = ask(service.vm, "GET", EVENTS + vm)["Events"]
    if trace:
        service.while_idle(partial(trace.begin, event["EventId"]))
    ask(service.vm, "POST", EVENTS + vm, {"StartRequests": [{"EventId": event["EventId"]}]})


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--names", action="store_true", help="print every function and shape")
    figures = measured(names=parser.parse_args().names)
    print(f"{'an approval':14}{'functions':>11}{'files':>7}{'shapes':>8}")
    for name, (functions, files, shapes) in figures.items():
        print(f"{name:14}{functions:11}{files:7}{shapes:8}")


if __name__ == "__main__":
    main()
    sys.exit()
