"""Signal: sends a signal to programs that shut down by one, and waits until they have ended.

For torchrun, executors of Spark, and programs like them. A program that its service starts again
receives no second signal. Linux only. Source: J-3.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from forewarn.agent.json_fields import words
from forewarn.agent.preparations import step_state
from forewarn.agent.preparations.wait_until import seconds_left, until
from forewarn_base.errors import PeerError, reason_of

PROCESSES = Path("/proc")
START_FIELD = 19  # of /proc/PID/stat, after the command's name: the start in clock ticks


class SignalRefused(PeerError):
    """A process may not be signalled."""

    code = "signal-refused"
    message = "Process {pid} cannot receive SIG{name}: {reason}."
    advice = "Run the agent as root or as the user of the process."


def prepare(settings: dict[str, object], _hook: dict[str, object]) -> str:
    """Send the signal in time, and wait until the processes have ended."""
    argument, name = str(settings["argument"]), str(settings.get("signal") or "TERM")
    if "before_s" in settings:
        before_s = float(str(settings["before_s"]))
        until(lambda: seconds_left() <= before_s, f"the time for SIG{name} has come")
    if not step_state.read():
        step_state.write({"left": _processes(argument), "signalled": []})
    notes = step_state.read()
    left, signalled = words(notes, "left"), words(notes, "signalled")
    while left:
        process = left.pop()
        signalled.append(process)
        step_state.write({"left": left, "signalled": signalled})
        _send(process, name)
    until(lambda: not any(map(_is_running, signalled)), "the processes have ended")
    return f"{len(signalled)} processes have ended after SIG{name}"


def recover(_settings: dict[str, object], _hook: dict[str, object]) -> str:
    """Forget the processes: their service starts them again."""
    step_state.clear()
    return "the service of the processes starts them again"


def _processes(argument: str) -> list[str]:
    """Return the processes that have a word among their arguments, as `PID:START`."""
    processes = []
    for directory in PROCESSES.glob("[0-9]*"):
        try:
            arguments = (directory / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended meanwhile
        if argument.encode() in arguments and (start := _start(directory.name)):
            processes.append(f"{directory.name}:{start}")
    return processes


def _start(pid: str) -> str:
    """Return when a process has started, in clock ticks; empty if it has ended."""
    try:
        fields = (PROCESSES / pid / "stat").read_text("utf-8").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[START_FIELD]


def _is_running(process: str) -> bool:
    pid, _, start = process.partition(":")
    return _start(pid) == start


def _send(process: str, name: str) -> None:
    """Send the signal, unless the process has ended.

    Raises:
        SignalRefused: the process belongs to another user.
    """
    pid = int(process.partition(":")[0])
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if _is_running(process):
            signal.pidfd_send_signal(handle, signal.Signals[f"SIG{name}"])
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise SignalRefused(pid=pid, name=name, reason=reason_of(error)) from error
    finally:
        os.close(handle)
