"""Runs a daemon as a process: event loop, signals, readiness, and a clean stop.

`daemon.py` connects the parts of the service.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from forewarn_base.garbage import freeze_garbage
from forewarn_base.log_format import flush_logs

if TYPE_CHECKING:
    from forewarn_server.service.daemon import Daemon
    from forewarn_server.service.parts import BoundAddresses

log = logging.getLogger("forewarn")

#: Time limit for stopping a service, in seconds. A hanging database, or a client that never reads,
#: must not delay the end. All promises are durable, so a forced end is safe.
STOP_S_MAX = 5.0

#: Address for systemd's readiness notification (`Type=notify`).
NOTIFY_VARIABLE = "NOTIFY_SOCKET"


#: How long a busy thread may hold the interpreter, in seconds. Python's default of 5 ms exceeds the
#: whole budget of an operator's call. The threads mostly wait, so switching more often has no
#: measurable cost.
SWITCH_S = 0.0001


def run(
    main: Callable[[], Awaitable[int]],
    new_event_loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> int:
    """Run an asynchronous main on the fastest available event loop; return its exit status."""

    async def whole() -> int:
        return await main()

    sys.setswitchinterval(SWITCH_S)
    with asyncio.Runner(loop_factory=new_event_loop or _loop_factory()) as runner:
        status = runner.run(whole())
        watch = _end_by_force_after(STOP_S_MAX)  # closing waits for every working thread
    watch.cancel()
    return status


async def start_unless_stopped(daemon: Daemon) -> bool:
    """Start a service; return False if a signal stopped it during the start.

    After such a signal, all open parts are closed again, and the lease is released.
    """
    starting = asyncio.ensure_future(daemon.start())
    on_signals(starting.cancel)
    try:
        await starting
    except asyncio.CancelledError:
        return False
    return True


def on_signals(act: Callable[[], object]) -> None:
    """Call a function at SIGINT and at SIGTERM."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C raises instead
            loop.add_signal_handler(number, act)


async def run_until_stopped(daemon: Daemon, started: Callable[[BoundAddresses], None]) -> int:
    """Wait until a signal or a lost store ends a started service, then stop the service.

    Returns:
        0 after a signal, 1 if the service ended on its own; `daemon.failure` has the reason.
        The process ends with 1 if stopping takes longer than `STOP_S_MAX`.
    """
    on_signals(daemon.ended.set)
    with contextlib.suppress(NotImplementedError, AttributeError):  # Windows has no such signals
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, daemon.reload_soon)
    assert daemon.bound is not None
    started(daemon.bound)
    freeze_garbage()
    notify("READY=1\nSTATUS=serving")
    try:
        await daemon.ended.wait()
    finally:
        notify("STOPPING=1")
        watch = _end_by_force_after(STOP_S_MAX)
        try:
            await daemon.stop()
        finally:
            watch.cancel()
    return 1 if daemon.failure else 0


async def keep_watchdog(daemon: Daemon) -> None:
    """Notify systemd (`WatchdogSec=`) at intervals, while every part responds. Source: H-3."""
    interval_s = int(os.environ.get("WATCHDOG_USEC", "0")) / 1_000_000 / 3
    while interval_s:
        if not daemon.liveness.silent():
            notify("WATCHDOG=1")
        await asyncio.sleep(interval_s)


def notify(text: str) -> None:
    """Send our state to the service manager, if there is one."""
    path = os.environ.get(NOTIFY_VARIABLE, "")
    if not path or not hasattr(socket, "AF_UNIX"):
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.setblocking(False)  # noqa: FBT003 - a manager that hangs must not stop the service
        channel.sendto(text.encode(), address)


def _end_by_force_after(seconds: float) -> threading.Timer:
    """End the process after this time, even if threads hang, unless cancelled."""

    def end() -> None:
        log.error("stopping took longer than %g s; the process is killed", seconds)
        flush_logs()
        os._exit(1)

    watch = threading.Timer(seconds, end)
    watch.daemon = True
    watch.start()
    return watch


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - only where it exists: not on Windows
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
