"""Handler: calls an application's own functions for the events of its VM.

Theory of operation: the handler runs the agent's loop in a thread. Instead of starting a program
for a step, the handler calls a function in a second thread, or a coroutine function on the
application's event loop. The handler writes a file right before the call, and another file right
after the call. After SIGKILL, the next process learns from the journal and these files which calls
had ended, and repeats an interrupted call.
"""

from __future__ import annotations

import inspect
import logging
import os
import socket
import threading
import traceback
from typing import TYPE_CHECKING, Self

from forewarn.agent.child import OUTPUT_SHOWN_BYTES, Child, write_status_file
from forewarn.agent.child_processes import ChildProcesses, Running
from forewarn.agent.core.identity import Identity
from forewarn.agent.core.records import UNPREPARED
from forewarn.agent.core.rules import (
    FREEZE_TOLERATED_S,
    TIMEOUT_S,
    PreparationStep,
    default_rules,
)
from forewarn.agent.holdings import Holdings
from forewarn.agent.journal import newest
from forewarn.agent.log import Log
from forewarn.agent.runner import run_embedded
from forewarn.agent.sdk.dialogue import seconds
from forewarn.agent.sdk.discovery import endpoints
from forewarn.agent.sdk.http import target_of
from forewarn.agent.settings import AgentSettings
from forewarn_base.errors import ArgumentInvalid, reason_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine, Mapping
    from concurrent.futures import Future

    from forewarn.agent.core.values import HookIntent
    from forewarn.agent.hooks import HookRoom
    from forewarn_base.protocol.documents import ScheduledEvent

    Function = Callable[[ScheduledEvent], object]

STEP = "application"
STOP_S = 5.0  # longest wait of `stop` for the end of a call
CUT_OFF = "the handler asked the call to end early"


class Handler:
    """Calls `prepare` before an event of this VM, approves the event, and then calls `recover`.

    `prepare` and `recover` are functions or coroutine functions with the `ScheduledEvent` as their
    argument. If `prepare` raises, the handler does not approve the event. If `recover` raises, the
    handler calls `recover` again later. The next process repeats a call that the end of a process
    interrupted. For overlapping events, the handler calls `prepare` once, and `recover` after the
    last event.

    Example:
        with forewarn.Handler(prepare=drain, recover=resume, state_dir="/var/lib/shop/events"):
            serve()
    """

    def __init__(
        self,
        prepare: Function,
        recover: Function,
        *,
        state_dir: str | os.PathLike[str],
        endpoint: str = "",
        name: str = "",
        timeout_s: float = TIMEOUT_S,
        freeze_tolerated_s: int = FREEZE_TOLERATED_S,
    ) -> None:
        """Create a handler; `start` or `run` follows the events.

        Args:
            prepare: Called for an announced event of this VM; the handler approves the event when
                the call returns.
            recover: Called when the event is over, or was cancelled; also without a call of
                `prepare` if the event had already started when the handler first saw it.
            state_dir: Directory of the journal, for this handler alone; created if missing.
            endpoint: See `Client`.
            name: This VM's name in Resources; empty to read it from the service.
            timeout_s: Seconds after which the handler asks a call to end.
            freeze_tolerated_s: Shorter freezes are approved without a call, in seconds; 0: none.

        Raises:
            ValueError: an argument is invalid; the error names it.
        """
        for argument, function in (("prepare", prepare), ("recover", recover)):
            if not _takes_event(function):
                wanted = "a function with the event as its only argument"
                raise ArgumentInvalid(name=argument, wanted=wanted, found=function)
        for place in endpoints(endpoint):
            target_of(place)
        if not isinstance(name, str):
            raise ArgumentInvalid(name="name", wanted="text", found=name)
        step = PreparationStep(STEP, timeout_s=seconds("timeout_s", timeout_s), repeatable=True)
        form: dict[str, object] = {"endpoint": endpoint, "name": name}
        self._settings = AgentSettings({**form, "state_dir": os.fspath(state_dir)})
        self._settings.rules = default_rules(((step,),), freeze_tolerated_s=freeze_tolerated_s)
        self._settings.coordination = None  # other coordinations would start processes
        self._functions = {"prepare": prepare, "recover": recover, "cancel": recover}
        self._holdings: _ApplicationHoldings | None = None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        #: Set when the running call should end, because the event is over, the time has passed, or
        #: the handler stops. Long functions should check this event; coroutines are cancelled
        #: instead.
        self.cancelled = threading.Event()

    @property
    def prepared(self) -> tuple[str, ...]:
        """Ids of the events whose preparation has begun, and whose recovery has not ended.

        After a restart, a process that finds ids here must stay drained.

        Raises:
            OSError: the journal cannot be read.
        """
        _, form = newest(self._settings.state_dir)
        steps = form.get("steps") if form is not None else None
        held = [step for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []
        begun = [step for step in held if step["status"] != UNPREPARED]
        return tuple(str(event_id) for step in begun for event_id in step["holders"])

    def start(self) -> Self:
        """Follow the events in a thread, and return at once; ignore repeated calls.

        Raises:
            ValueError: a coroutine function is used without `async with`.
            CallerError: another handler or agent uses `state_dir`, or other users can write to it.
            JournalLost: `state_dir` is unusable.
        """
        return self._start(None)

    def stop(self) -> None:
        """Stop the handler; ask a running call to end, which the next process repeats."""
        thread, holdings = self._thread, self._holdings
        if thread is None or holdings is None:
            return
        holdings.signals.stop()
        thread.join()
        holdings.functions.close()
        self._thread = self._holdings = None

    def run(self) -> None:
        """Follow the events until `stop` is called from another thread, or until Ctrl-C.

        Raises:
            CallerError, JournalLost: see `start`.
            Exception: the handler cannot continue; the logger `forewarn` has the reason, too.
        """
        with self:
            assert self._thread is not None
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        """Start the handler."""
        return self.start()

    def __exit__(self, *error: object) -> None:
        """Stop the handler."""
        self.stop()

    async def __aenter__(self) -> Self:
        """Start the handler; run coroutine functions on this event loop."""
        import asyncio  # noqa: PLC0415  not for those who have no event loop

        return self._start(asyncio.get_running_loop())

    async def __aexit__(self, *error: object) -> None:
        """Stop the handler without blocking the event loop."""
        import asyncio  # noqa: PLC0415  the same

        await asyncio.to_thread(self.stop)

    def _start(self, loop: asyncio.AbstractEventLoop | None) -> Self:
        for name, function in self._functions.items():
            if loop is None and inspect.iscoroutinefunction(function):
                wanted = "a plain function, or the handler in `async with`"
                raise ArgumentInvalid(name=name, wanted=wanted, found=function)
        if self._thread is None:
            self._holdings = _ApplicationHoldings(
                self._settings, self._functions, cancelled=self.cancelled, loop=loop
            )
            self._holdings.signals.listen()
            self._failure = None
            self._thread = threading.Thread(
                target=self._follow, args=(self._holdings,), name="forewarn", daemon=True
            )
            self._thread.start()
        return self

    def _follow(self, holdings: _ApplicationHoldings) -> None:
        """Follow the events; record why that ended early."""
        try:
            run_embedded(self._settings, holdings, _ApplicationLog())
        except BaseException as error:
            self._failure = error
            holdings.close()
            text = "The handler has ended, and follows no events any more: %s action=handler-failed"
            logging.getLogger("forewarn").critical(text, reason_of(error), exc_info=error)


def _takes_event(function: object) -> bool:
    """Return whether a function can be called with one argument, as far as its signature says."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # some functions written in C have no signature
        return True
    return True


class _ApplicationHoldings(Holdings):
    """Holdings in an application: without signals and service manager, with functions as steps."""

    def __init__(
        self,
        settings: AgentSettings,
        functions: dict[str, Function],
        *,
        cancelled: threading.Event,
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        super().__init__(settings, embedded=True)
        self.functions = _FunctionCalls(self.room, functions, cancelled=cancelled, loop=loop)

    def calls(self, identity: Identity, settings: AgentSettings) -> ChildProcesses:  # noqa: ARG002
        """Return the function calls, which survive a restart of the agent's loop."""
        return self.functions


class _ApplicationLog(Log):
    """Writes to the application's logger `forewarn`."""

    def _write(self, action: str, sentence: str, *, level: str, **ids: object) -> bool:
        tail = "".join(f" {name}={value}" for name, value in ids.items())
        number = getattr(logging, level.upper())
        logging.getLogger("forewarn").log(number, "%s action=%s%s", sentence, action, tail)
        return True


class _FunctionCalls(ChildProcesses):
    """The running function calls, by key."""

    def __init__(
        self,
        room: HookRoom,
        functions: dict[str, Function],
        *,
        cancelled: threading.Event,
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        super().__init__(room, Identity(STEP), AgentSettings({"stop_grace_s": STOP_S}))
        self._functions = functions
        self._cancelled = cancelled
        self._loop = loop

    def start(self, intent: HookIntent, *, ahead_ms: int = 0) -> None:  # noqa: ARG002  for programs
        """Call the function for a phase in a thread."""
        run = str(intent.run)
        self._room.forget(run)
        self._cancelled.clear()
        call = _FunctionCall(f"{self._room.directory}/{run}", self._cancelled, self._loop)
        call.begin(self._functions[intent.phase], intent.event)
        self._running[intent.key] = Running(call, run)

    def adopt(self, running: Mapping[str, int]) -> dict[str, str]:
        """Return the states of calls that an earlier process or loop started."""
        lost = {key: run for key, run in running.items() if key not in self._running}
        fates = {key: self._room.fate(str(run))[0] for key, run in lost.items()}
        self._room.sweep(tuple(str(run) for run in running.values()))
        return fates | dict.fromkeys(self._running, "running")

    def close(self) -> None:
        """Ask the running call to end, and wait for the end."""
        for running in self._running.values():
            assert isinstance(running.child, _FunctionCall)
            running.child.give_up()


class _FunctionCall(Child):
    """A running or ended function call, with the interface of `Child`."""

    def __init__(
        self, mark: str, cancelled: threading.Event, loop: asyncio.AbstractEventLoop | None
    ) -> None:
        self._ends = socket.socketpair()
        self.mark = mark
        self.pidfd = self._ends[0].fileno()
        self._cancelled = cancelled
        self._loop = loop
        self._future: Future[object] | None = None
        self._status: int | None = None
        self._trouble = ""
        self._given_up = False
        self._thread: threading.Thread | None = None

    def begin(self, function: Function, event: ScheduledEvent) -> None:
        """Call the function."""
        self._thread = threading.Thread(
            target=self._run, args=(function, event), name="forewarn-call", daemon=True
        )
        self._thread.start()

    def _run(self, function: Function, event: ScheduledEvent) -> None:
        write_status_file(f"{self.mark}.begun", os.getpid())
        status = 0
        try:
            result = function(event)
            if inspect.iscoroutine(result):
                self._wait(result)
        except BaseException:  # noqa: BLE001  the application's; it is logged
            status, self._trouble = 1, traceback.format_exc()
        if self._given_up:
            return
        if self._cancelled.is_set():
            status, self._trouble = 1, self._trouble or CUT_OFF
        write_status_file(f"{self.mark}.ended", status)
        self._status = status
        self._ends[1].send(b"\0")

    def _wait(self, result: Coroutine[object, object, object]) -> None:
        import asyncio  # noqa: PLC0415  there is an event loop

        assert self._loop is not None
        self._future = asyncio.run_coroutine_threadsafe(result, self._loop)
        if self._cancelled.is_set():  # another thread set the event meanwhile
            self._future.cancel()
        self._future.result()

    def poll(self) -> int | None:
        """Return 0, or 1 after a failure, or None while the call runs."""
        return self._status

    def terminate(self) -> None:
        """Ask the function to end."""
        self._cancelled.set()
        if self._future is not None:
            self._future.cancel()

    def escalate(self) -> None:
        """Ask the function again to end, because a thread cannot be killed."""
        self.terminate()

    def give_up(self) -> None:
        """Ask the function to end, so that the next process repeats the call."""
        self._given_up = True
        self.terminate()
        assert self._thread is not None
        self._thread.join(STOP_S)
        if not self._thread.is_alive():
            self.close()

    def close(self) -> None:
        """Release the resources of the call."""
        for end in self._ends:
            end.close()

    def output(self) -> str:
        """Return the reason of a failure."""
        return self._trouble[-OUTPUT_SHOWN_BYTES:]

    def trim(self) -> bool:
        """Return False, because functions write no output files."""
        return False
