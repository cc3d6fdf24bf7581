"""A pytest plugin with an emulator and an agent for each test.

The emulator listens on free ports and has a stopped clock.

The plugin imports the emulator and the agent only when a test requests a fixture.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, TypeVar

import pytest

from forewarn_base.errors import ArgumentInvalid, CallerError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from pathlib import Path

    from forewarn.agent.holdings import Holdings
    from forewarn_base.protocol.documents import Document
    from forewarn_emulator.emulator import Emulator
    from forewarn_emulator.options import Options

T = TypeVar("T")

API_VERSION = "2020-07-01"
#: Time limit of an action of the emulator, in real seconds, after which a test fails.
ACT_S_MAX = 60.0
#: Interval of checks in `until`, in real seconds.
LOOK_S = 0.02


class EmulatorStopped(CallerError):
    """The called emulator is not running."""

    code = "emulator-stopped"
    message = "This emulator is not running."
    advice = "Call start() first, or use the fixture forewarn_emulator, which starts the emulator."


class EmulatorThread:
    """An emulator in a separate thread, called from the test's thread."""

    def __init__(self, options: Options | None = None, *, stopped: bool = True) -> None:
        """Store the arguments; start nothing yet.

        Args:
            options: options of the emulator; None: one VM, no operator API, in memory.
            stopped: whether the clock is stopped until `advance`.
        """
        self._options = options
        self._stopped = stopped
        self._emulator: Emulator | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        #: `http://HOST:PORT` of the metadata service, once started.
        self.url = ""
        #: `http://HOST:PORT` of the operator API; empty without one.
        self.operator_url = ""

    @property
    def emulator(self) -> Emulator:
        """The emulator; access its attributes only through `call`."""
        if self._emulator is None:
            raise EmulatorStopped
        return self._emulator

    @property
    def endpoint(self) -> str:
        """URL for polls and approvals, with the api-version."""
        return f"{self.url}/metadata/scheduledevents?api-version={API_VERSION}"

    def start(self) -> EmulatorThread:
        """Start the emulator; return when the emulator answers."""
        loop = self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=_run_loop, args=(loop,), name="emulator", daemon=True
        )
        self._thread.start()
        try:
            self.call(self._start)
        except BaseException:
            self._end_loop()
            raise
        return self

    def stop(self) -> None:
        """Stop the emulator and close its ports; do nothing if already stopped."""
        if self._loop is None:
            return
        try:
            if self._emulator is not None:
                self.call(self.emulator.stop)
        finally:
            self._end_loop()

    def call(self, act: Callable[[], Coroutine[object, object, T]]) -> T:
        """Run a function on the emulator's event loop and return the result."""
        if self._loop is None:
            raise EmulatorStopped
        return asyncio.run_coroutine_threadsafe(act(), self._loop).result(ACT_S_MAX)

    # --- clock ------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """The emulator's time, ms since the epoch UTC."""
        return self.emulator.clock.now_ms()

    def advance(self, by: str | float) -> None:
        """Advance the clock by seconds, `90s`, `15m` or `7d`, and wait for the effects."""
        from forewarn_base.validation.fields import Duration  # noqa: PLC0415 - with the emulator

        by_s = by if isinstance(by, int | float) else Duration().read(by, "the time to pass")
        self.call(lambda: self.emulator.pacing.advance(round(by_s * 1000)))

    def settle(self) -> None:
        """Wait until all due work is done."""
        self.call(self.emulator.pacing.settle)

    # --- actions of the cloud
    # -------------------------------------------------------------------------

    def ask(self, cause: str, *targets: str, duration_s: int | None = None) -> str:
        """Request work and return the operation's id, such as `op-1`.

        Args:
            cause: a name in docs/reference/causes.md, such as `reboot`.
            targets: VMs or hosts.
            duration_s: duration of the disturbance; None: the cause's default.

        Raises:
            CallerError: the cause or a target is unknown, or the work is not possible.
        """
        from forewarn_core.fleet.impact import Cause  # noqa: PLC0415 - with the emulator
        from forewarn_core.fleet.stimulus import RequestMaintenance  # noqa: PLC0415

        causes = [known.value for known in Cause]
        if cause not in causes:
            raise ArgumentInvalid(name="cause", wanted=f"one of {', '.join(causes)}", found=cause)
        ask = RequestMaintenance(cause=Cause(cause), targets=targets, duration_s=duration_s)
        submitted = self.emulator.control.submit(ask, "test")
        committed = submitted.result(ACT_S_MAX)
        self.settle()
        return committed.operations[0].id

    def cancel(self, operation: str, reason: str = "") -> None:
        """Cancel an operation that has not started; `operation` is an id from `ask`.

        Raises:
            CallerError: the operation is unknown or has started.
        """
        from forewarn_core.fleet.stimulus import Cancel  # noqa: PLC0415

        number = operation.removeprefix("op-")
        if not number.isdecimal():
            raise ArgumentInvalid(name="operation", wanted="an id from `ask`", found=operation)
        self.emulator.control.submit(Cancel(int(number), reason), "test").result(ACT_S_MAX)
        self.settle()

    def run_scenario(self, name: str, vm: str = "") -> None:
        """Run a built-in scenario, or a file that ends in .toml.

        Args:
            name: a name in docs/reference/scenarios.md, such as `host-reboot`.
            vm: the affected VM; empty: the default VM.

        Raises:
            CallerError: the scenario or VM is unknown; the message lists the built-in scenarios.
        """
        from forewarn_emulator.scenario_files import find_scenario  # noqa: PLC0415

        scenario = find_scenario(name)
        self.call(lambda: self.emulator.run_scenario(scenario, vm))
        self.settle()

    def stop_scenario(self, name: str) -> None:
        """Stop a scenario and undo its changes.

        Raises:
            CallerError: the scenario is not running.
        """
        self.call(lambda: self.emulator.stop_scenario(name))

    def set_fault(self, fault: str) -> None:
        """Set a fault, like `forewarn emulator fault set`. Source: E-10.

        Args:
            fault: such as `500=2x` or `slow=2s`; see docs/howto/emulator-faults.md.

        Raises:
            CallerError: the fault is unknown.
        """
        from forewarn_emulator.faults import read_fault  # noqa: PLC0415

        async def act() -> None:
            self.emulator.set_fault(read_fault(fault))

        self.call(act)

    def clear_faults(self) -> None:
        """Clear all faults."""

        async def act() -> None:
            self.emulator.faults.clear()
            self.emulator.faults_changed()

        self.call(act)

    # --- actions of a VM
    # ------------------------------------------------------------------------------

    def document(self, vm: str = "") -> Document:
        """Return the document of a VM, by default of the first VM.

        Raises:
            CallerError: no VM has this name.
            urllib.error.HTTPError: an injected fault; the error has a note with the answer.
        """
        from forewarn_base.protocol.documents import read_document  # noqa: PLC0415

        return read_document(self._http(vm, None))

    def until(
        self, true: Callable[[Document], object], vm: str = "", *, within_s: float = ACT_S_MAX
    ) -> Document:
        """Wait until a condition holds for the document of a VM, and return the document.

        The wait takes real time, in which your client can act. The emulator's clock remains
        stopped.

        Args:
            true: condition, such as `lambda document: document.events[0].status == "Started"`; an
                `IndexError` means false.
            vm: the VM; empty: the default VM.
            within_s: time limit, in seconds.

        Raises:
            CallerError: no VM has this name.
            TimeoutError: the condition did not become true; the message contains the last document.
        """
        from forewarn_base.clock import SystemClock  # noqa: PLC0415 - with the emulator

        clock, pause = SystemClock(), threading.Event()
        until_ms = clock.now_ms() + within_s * 1000
        while True:  # ends at `until_ms`
            document = self.document(vm)
            with contextlib.suppress(IndexError):
                if true(document):
                    return document
            if clock.now_ms() >= until_ms:
                shown = ", ".join(f"{each.event_type} {each.status}" for each in document.events)
                raise TimeoutError(
                    f"The condition was still false after {within_s} s;"
                    f" the VM reads: {shown or 'no events'}."
                )
            pause.wait(LOOK_S)

    def approve(self, *event_ids: str, vm: str = "") -> None:
        """Approve events as a VM; return after the effects of the approval.

        Raises:
            CallerError: no VM has this name.
            urllib.error.HTTPError: the service refused the approval; the error has a note with the
                reason.
        """
        from forewarn_base.protocol.approvals import render_approval  # noqa: PLC0415

        self._http(vm, render_approval(event_ids))
        self.settle()

    def _http(self, vm: str, body: bytes | None) -> bytes:
        from forewarn_core.fleet.refusals import Unknown  # noqa: PLC0415 - with the emulator

        name = vm or self.emulator.default_vm  # it may be evicted, and is then not answered
        if name and not self.emulator.metadata.service.group_of(name):
            raise Unknown(kind="vm", name=name)
        url = self.endpoint + (f"&vm={vm}" if vm else "")
        headers = {"Metadata": "true", "Connection": "close"}
        request = urllib.request.Request(url, data=body, headers=headers)  # noqa: S310 - our own
        try:
            with _plain_opener().open(request, timeout=ACT_S_MAX) as answer:
                read: bytes = answer.read()
        except urllib.error.HTTPError as refused:
            refused.add_note(f"The service answered: {refused.read().decode('utf-8', 'replace')}")
            refused.close()  # close the answer, because Python 3.14 would otherwise warn
            raise
        return read

    # --- the thread ---------------------------------------------------------------------------

    async def _start(self) -> None:
        from forewarn_emulator.launch import new_emulator  # noqa: PLC0415
        from forewarn_emulator.options import Options  # noqa: PLC0415

        options = self._options or Options(listen=("127.0.0.1:0",), operator="")
        self._emulator = emulator = new_emulator(options)
        if self._stopped:
            emulator.pace.stop()
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
        self._loop = self._emulator = None


class AgentThread:
    """Forewarn's agent in a thread, with your configuration, as the VM of an emulator."""

    def __init__(self, endpoint: str, directory: Path) -> None:
        """Store the arguments; start nothing yet.

        Args:
            endpoint: URL of the emulator.
            directory: directory of the agent's journal, instead of its `state_dir`.
        """
        self._endpoint = endpoint
        self._directory = directory
        self._holdings: Holdings | None = None
        self._thread: threading.Thread | None = None

    def start(self, config: Path | str) -> AgentThread:
        """Start the agent; `config` has the format of a configuration file.

        After `stop`, a further start continues with the agent's journal.

        Raises:
            CallerError: the configuration is invalid, or the agent is running already.
        """
        from forewarn.agent.config import read_config  # noqa: PLC0415 - when asked for
        from forewarn.agent.holdings import Holdings  # noqa: PLC0415
        from forewarn.agent.log import Log  # noqa: PLC0415
        from forewarn.agent.runner import run_embedded  # noqa: PLC0415
        from forewarn.agent.settings import AgentSettings  # noqa: PLC0415

        place = {"endpoint": self._endpoint, "state_dir": str(self._directory)}
        settings = AgentSettings({**read_config(str(config)), **place})
        self._holdings = Holdings(settings, embedded=True)
        self._holdings.signals.listen()
        self._thread = threading.Thread(
            target=run_embedded, args=(settings, self._holdings, Log()), name="agent", daemon=True
        )
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop the agent, but not its running hooks; do nothing if already stopped."""
        if self._holdings is not None and self._thread is not None:
            self._holdings.signals.stop()
            self._thread.join(ACT_S_MAX)
            self._holdings = self._thread = None


def _plain_opener() -> urllib.request.OpenerDirector:
    """Return an opener for plain HTTP, without proxies, redirects and TLS.

    `build_opener` would read the system's certificates for each request.
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
    """The options of the emulator in `forewarn_emulator`; override this fixture for others."""
    return None


@pytest.fixture
def forewarn_emulator(forewarn_options: Options | None) -> Iterator[EmulatorThread]:
    """An emulator with one VM, `vm-1`, a free port, and a stopped clock."""
    emulator = EmulatorThread(forewarn_options).start()
    yield emulator
    emulator.stop()


@pytest.fixture
def forewarn_agent(forewarn_emulator: EmulatorThread, tmp_path: Path) -> Iterator[AgentThread]:
    """An agent in `vm-1` of `forewarn_emulator`; a test starts it with a configuration file."""
    agent = AgentThread(forewarn_emulator.endpoint, tmp_path / "forewarn-agent")
    yield agent
    agent.stop()
