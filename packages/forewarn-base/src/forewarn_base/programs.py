"""Runs a program in its own process group, with limits on time and output."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO

from forewarn_base.clock import SystemClock
from forewarn_base.errors import PeerError
from forewarn_base.values import value

#: Maximum standard output, in bytes; enough for an hour of one line per second.
OUTPUT_BYTES_MAX = 16 * 1024 * 1024
#: Longest line of output, in bytes.
LINE_BYTES_MAX = 64 * 1024
#: Stored end of standard error, in bytes, for the reason of a failure.
ERROR_BYTES_MAX = 4096
#: First character of a line with an answer; other lines are ignored.
ANSWER_BEGINS = b"{"
#: Seconds from SIGTERM to SIGKILL.
GRACE_S = 5.0
#: Exit status of a program that cannot answer now: EX_TEMPFAIL of sysexits.h.
LATER_STATUS = 75
#: Interval of checks while a program is silent, in seconds.
LOOK_S = 0.1
#: Environment variables for a program; these contain no settings or secrets.
ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "USER", "LOGNAME", "SSH_AUTH_SOCK")


class ProgramFailed(PeerError):
    """A program failed."""

    code = "driver-program-failed"
    message = "{program} {problem}."
    advice = "Run it by hand with the task on its standard input."


class ProgramUndecided(ProgramFailed):
    """A program took too long, or ended with status 75: its answer is unknown."""

    code = "driver-program-undecided"


@value
class ProgramLimits:
    """Limits of a program."""

    timeout_s: float
    output_bytes: int = OUTPUT_BYTES_MAX


@value
class Watch:
    """Callbacks while a program runs."""

    #: Receives each line of the program's standard output.
    line: Callable[[bytes], None] = lambda _: None
    #: Receives the process id, which is also the process group's, after the start.
    begun: Callable[[int], None] = lambda _: None
    #: Returns whether to end the program; called several times a second.
    stop: Callable[[], bool] = lambda: False
    #: Receives the program's raw standard output instead of lines.
    output: Callable[[bytes], object] | None = None


def program_output(words: Sequence[str], given: bytes, limits: ProgramLimits) -> bytes:
    """Run a program to its end and return its output.

    Raises:
        ProgramFailed: see `run_program`.
    """
    output = bytearray()
    with tempfile.TemporaryFile() as stdin:
        stdin.write(given)
        stdin.seek(0)
        run_program(words, stdin, limits, watch=Watch(output=output.extend))
    return bytes(output)


def run_program(
    words: Sequence[str], stdin: IO[bytes] | int, limits: ProgramLimits, *, watch: Watch
) -> None:
    """Run a program to its end; no process of its group remains.

    Args:
        words: the program and its arguments; no shell is involved.
        stdin: its standard input, as for `subprocess`.
        limits: its limits.
        watch: callbacks.

    Raises:
        ProgramFailed: the program cannot start, fails, prints too much, or was stopped.
        ProgramUndecided: the program takes too long, or ends with `LATER_STATUS`.
    """
    environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    try:
        process = subprocess.Popen(  # noqa: S603 - the operator's own program
            words,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=environment,
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ProgramFailed(program=words[0], problem=f"cannot be run: {reason}") from error
    with process:
        reader = _Reader(process, limits, watch)
        try:
            watch.begun(process.pid)
            problem = reader.follow(watch.stop)
        finally:
            _end(process)
    if not problem and process.returncode:
        problem = f"ended with status {process.returncode}"
        if process.returncode < 0:
            problem = f"was ended by signal {-process.returncode}"
    if problem:
        undecided = reader.is_late or process.returncode == LATER_STATUS
        kind = ProgramUndecided if undecided else ProgramFailed
        raise kind(program=words[0], problem=f"{problem}{reader.last_words()}")


class _Reader:
    """Reads a program's output until it ends or must be ended."""

    def __init__(
        self, process: subprocess.Popen[bytes], limits: ProgramLimits, watch: Watch
    ) -> None:
        self._process = process
        self._limits = limits
        self._watch = watch
        self._rest = b""
        self._left = limits.output_bytes
        self._error = b""
        #: Whether the program exceeded its time limit.
        self.is_late = False

    def follow(self, stop: Callable[[], bool]) -> str:
        """Read until the program ends; return the reason for ending it, or an empty text."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        clock = SystemClock()
        until_ms = clock.now_ms() + int(self._limits.timeout_s * 1000)
        with selectors.DefaultSelector() as selector:
            for stream in (self._process.stdout, self._process.stderr):
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ)
            while True:
                ended = self._ends_within(0 if selector.get_map() else LOOK_S)
                for key, _ in selector.select(0 if ended else LOOK_S):
                    body = os.read(key.fd, 65536)
                    if not body:
                        selector.unregister(key.fileobj)
                    elif key.fileobj is self._process.stderr:
                        self._error = (self._error + body)[-ERROR_BYTES_MAX:]
                    else:
                        problem = self._take(body)
                        if problem:
                            return problem
                    ended = ended and not body
                if ended:
                    return self._last_line()
                if stop():
                    return "was stopped"
                if clock.now_ms() >= until_ms:
                    self.is_late = True
                    return f"has not ended within {self._limits.timeout_s:g} s"

    def _ends_within(self, wait_s: float) -> bool:
        """Wait for the program's end; return whether it came in time."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(wait_s)
            return True
        return False

    def _take(self, body: bytes) -> str:
        """Pass output on, whole or in lines; return why the program must be stopped, or ""."""
        self._left -= len(body)
        if self._left < 0:
            return f"printed more than {self._limits.output_bytes} bytes"
        if self._watch.output:
            self._watch.output(body)
            return ""
        *lines, self._rest = (self._rest + body).split(b"\n")
        if len(self._rest) > LINE_BYTES_MAX or any(len(one) > LINE_BYTES_MAX for one in lines):
            return f"printed a line of more than {LINE_BYTES_MAX} bytes"
        for one in lines:
            if one.strip():
                self._watch.line(one)
        return ""

    def _last_line(self) -> str:
        return self._take(b"\n") if self._rest.strip() else ""

    def last_words(self) -> str:
        """Return the last line of its standard error, for a reason."""
        lines = self._error.decode("utf-8", "replace").strip().splitlines()
        return f": {lines[-1]}" if lines else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program and all of its process group: first by SIGTERM, then by SIGKILL."""
    if process.poll() is None:
        _signal(process, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    _signal(process, signal.SIGKILL)
    process.wait()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    # A group with members exists even after its leader's end, and its number is not reused. A group
    # without members has no process to signal.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
