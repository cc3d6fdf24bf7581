"""A pytest plugin: an emulator of your own in each test, on free ports, with a clock that stands.

Nothing of Forewarn is imported before a test asks for the fixture.
"""

from __future__ import annotations

import asyncio
import threading
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from forewarn.emulator.emulator import Emulator
    from forewarn.emulator.options import Options
    from forewarn.protocol.documents import Document

T = TypeVar("T")

API_VERSION = "2020-07-01"
#: Real seconds an act on the emulator may take; a hanging test says where it hangs.
ACT_S_MAX = 60.0


class EmulatorThread:
    """An emulator in a thread of its own, used from the test's thread."""

    def __init__(self, options: Options | None = None, *, paused: bool = True) -> None:
        """Prepare; `start` begins.

        Args:
            options: how to emulate; None: one VM, no operator API, in memory.
            paused: whether the clock stands until `advance`.
        """
        self._options = options
        self._paused = paused
        self._emulator: Emulator | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        #: `http://HOST:PORT` of the metadata service, once started.
        self.url = ""
        #: The same of the operator API; empty if there is none.
        self.operator_url = ""

    @property
    def emulator(self) -> Emulator:
        """The emulator itself; touch it only by `call`."""
        assert self._emulator is not None, "start it first"
        return self._emulator

    @property
    def endpoint(self) -> str:
        """Where clients poll and approve, api-version included."""
        return f"{self.url}/metadata/scheduledevents?api-version={API_VERSION}"

    def start(self) -> EmulatorThread:
        """Start; returns when it answers."""
        loop = self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run_loop, args=(loop,), name="emulator")
        self._thread.start()
        try:
            self.call(self._start)
        except BaseException:
            self._end_loop()
            raise
        return self

    def stop(self) -> None:
        """Stop; returns when every port is closed."""
        try:
            if self._emulator is not None:
                self.call(self.emulator.stop)
        finally:
            self._end_loop()

    def call(self, act: Callable[[], Coroutine[object, object, T]]) -> T:
        """Do something on the emulator's event loop and return what it returns."""
        assert self._loop is not None, "start it first"
        return asyncio.run_coroutine_threadsafe(act(), self._loop).result(ACT_S_MAX)

    # --- as the one who watches the time ------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """The emulator's time, ms since the epoch UTC."""
        return self.emulator.clock.now_ms()

    def advance(self, by: str | float) -> None:
        """Let seconds, `90s`, `15m` or `7d` pass at once; returns when that has had its effect."""
        from forewarn.validation.fields import Duration  # noqa: PLC0415 - with the emulator

        by_s = by if isinstance(by, int | float) else Duration().read(by, "the time to pass")
        self.call(lambda: self.emulator.pacing.advance(round(by_s * 1000)))

    def settle(self) -> None:
        """Wait until everything that is due now has had its effect."""
        self.call(self.emulator.pacing.settle)

    # --- as the cloud -------------------------------------------------------------------------

    def ask(self, cause: str, *targets: str, duration_s: int | None = None) -> str:
        """Ask for maintenance, as docs/reference/causes.md names it; return the operation's id."""
        from forewarn.core.impact import Cause  # noqa: PLC0415 - with the emulator
        from forewarn.core.stimulus import RequestMaintenance  # noqa: PLC0415

        ask = RequestMaintenance(cause=Cause(cause), targets=targets, duration_s=duration_s)
        submitted = self.emulator.control.submit(ask, "test")
        committed = submitted.result(ACT_S_MAX)
        self.settle()
        return committed.operations[0].id

    def cancel(self, operation: str, reason: str = "") -> None:
        """Withdraw an operation that has not started."""
        from forewarn.core.stimulus import Cancel  # noqa: PLC0415

        number = int(operation.removeprefix("op-"))
        self.emulator.control.submit(Cancel(number, reason), "test").result(ACT_S_MAX)
        self.settle()

    def run_scenario(self, name: str, vm: str = "") -> None:
        """Begin a scenario: a shipped one, or a file that ends in .toml."""
        from forewarn.emulator.scenario_files import find_scenario  # noqa: PLC0415

        scenario = find_scenario(name)
        self.call(lambda: self.emulator.run_scenario(scenario, vm))
        self.settle()

    def stop_scenario(self, name: str) -> None:
        """Stop a scenario; what it brought is taken back."""
        self.call(lambda: self.emulator.stop_scenario(name))

    def set_fault(self, fault: str) -> None:
        """Disturb answers from now on, as `forewarn fault set` does. Source: E-10."""
        from forewarn.emulator.faults import read_fault  # noqa: PLC0415

        async def act() -> None:
            self.emulator.set_fault(read_fault(fault))

        self.call(act)

    def clear_faults(self) -> None:
        """Disturb nothing any more."""

        async def act() -> None:
            self.emulator.faults.clear()
            self.emulator.faults_changed()

        self.call(act)

    # --- as a VM ------------------------------------------------------------------------------

    def document(self, vm: str = "") -> Document:
        """Return what a VM reads, the default one if none is named."""
        from forewarn.protocol.documents import read_document  # noqa: PLC0415

        return read_document(self._http(vm, None))

    def approve(self, *event_ids: str, vm: str = "") -> None:
        """Approve events as a VM; returns when that is durable and has had its effect."""
        from forewarn.protocol.approvals import render_approval  # noqa: PLC0415

        self._http(vm, render_approval(event_ids))
        self.settle()

    def _http(self, vm: str, body: bytes | None) -> bytes:
        url = self.endpoint + (f"&vm={vm}" if vm else "")
        headers = {"Metadata": "true", "Connection": "close"}
        request = urllib.request.Request(url, data=body, headers=headers)  # noqa: S310 - our own
        try:
            with _plain_opener().open(request, timeout=ACT_S_MAX) as answer:
                read: bytes = answer.read()
        except urllib.error.HTTPError as refused:
            refused.close()  # or Python 3.14 warns of it, in a test that expected the refusal
            raise
        return read

    # --- the thread ---------------------------------------------------------------------------

    async def _start(self) -> None:
        from forewarn.emulator.launch import new_emulator  # noqa: PLC0415
        from forewarn.emulator.options import Options  # noqa: PLC0415

        options = self._options or Options(listen=("127.0.0.1:0",), operator="")
        self._emulator = emulator = new_emulator(options)
        if self._paused:
            emulator.pace.pause()
        bound = await emulator.start()
        self.url = f"http://{bound.metadata[0]}"
        self.operator_url = bound.operator
        await emulator.pacing.settle()

    def _end_loop(self) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(ACT_S_MAX)
        self._loop.close()


def _plain_opener() -> urllib.request.OpenerDirector:
    """Return what speaks plain HTTP and nothing else: no proxy, no redirect, and no TLS.

    `build_opener` would read the system's certificates again for each request.
    """
    opener = urllib.request.OpenerDirector()
    for kind in (
        urllib.request.HTTPHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPErrorProcessor,
    ):
        opener.add_handler(kind())
    return opener


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        asyncio.set_event_loop(None)


@pytest.fixture
def forewarn_options() -> Options | None:
    """How the emulator of `forewarn_emulator` is to be; override it to have another."""
    return None


@pytest.fixture
def forewarn_emulator(forewarn_options: Options | None) -> Iterator[EmulatorThread]:
    """An emulator with one VM, `vm-1`, on a free port; its clock stands until it is advanced."""
    emulator = EmulatorThread(forewarn_options).start()
    yield emulator
    emulator.stop()
