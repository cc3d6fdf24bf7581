"""`forewarn agent run -- COMMAND`: lets a program that cannot be changed take part in a job.

The program receives a signal some time before the deadline. Its end, or a fresh checkpoint file, is
the job's acknowledgement. Source: J-1.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from forewarn.agent.jobs.client import Job, NotAcknowledged
from forewarn_base.clock import SystemClock

if TYPE_CHECKING:
    import argparse

LOOK_S = 0.1
SIGNALS = ("TERM", "USR1")
BEFORE_S = 60.0  # time that a program has for its checkpoint, unless `--before` sets another


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that describe the job of a wrapped program."""
    parser.add_argument("--job", default="", metavar="NAME", help="name of the job")
    parser.add_argument("--rank", type=int, default=0, help="number of this program in the job")
    parser.add_argument("--world", type=int, default=1, help="number of the job's programs")
    parser.add_argument("--vms", type=int, default=1, help="number of the job's VMs")
    parser.add_argument("--address", default="", help="[jobs] listen of the agent")
    parser.add_argument("--token-file", default="", metavar="FILE", help="token for ADDRESS:PORT")
    parser.add_argument("--signal", choices=SIGNALS, default="TERM", help="signal of a notice")
    parser.add_argument(
        "--before",
        type=float,
        default=BEFORE_S,
        metavar="SECONDS",
        help="how long before the deadline the program receives the signal",
    )
    parser.add_argument(
        "--checkpoint",
        default="",
        metavar="FILE",
        help="file that the program replaces at the signal; the fresh file is the consent",
    )
    parser.add_argument("command", nargs="*", metavar="-- COMMAND", help="program to run as a job")


def run_wrapped(options: argparse.Namespace) -> int:
    """Run a program until its end, and return its exit status.

    Raises:
        JobRefused: the agent refuses the job.
        OSError: the program cannot be started.
    """
    command: list[str] = options.command
    name = options.job or os.environ.get("FOREWARN_JOB") or Path(command[0]).name
    job = Job(
        name,
        rank=options.rank,
        world=options.world,
        vms=options.vms,
        address=options.address,
        token_file=options.token_file,
    )
    with job:
        program = subprocess.Popen(command)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: program.send_signal(number))
        status = _Wrapped(job, program, options).follow()
    return status if status >= 0 else 128 - status


class _Wrapped:
    """A program that takes part in a job."""

    def __init__(
        self, job: Job, program: subprocess.Popen[bytes], options: argparse.Namespace
    ) -> None:
        self._job = job
        self._program = program
        self._number = signal.Signals[f"SIG{options.signal}"]
        self._before_s: float = options.before
        self._checkpoint: str = options.checkpoint
        self._speaks = options.rank == 0
        self._clock = SystemClock()
        self._pause = threading.Event()
        self._step = 0
        self._signalled = False
        #: The checkpoint file before the signal.
        self._version: tuple[int, int] | None = None

    def follow(self) -> int:
        """Handle notices until the program ends; return its exit status."""
        while True:  # ends with the program
            status = self._program.poll()
            if not self._job.notified:
                self._signalled = False
            elif self._job.state != "stopped":
                self._prepare(status)
            if status is not None:
                return status
            self._pause.wait(LOOK_S)

    def _prepare(self, status: int | None) -> None:
        """Send the signal in time; consent to the program's end or its fresh checkpoint."""
        due = self._now_s() >= self._job.deadline - self._before_s
        if status is None and due and not self._signalled:
            self._version = self._file_version()
            self._program.send_signal(self._number)
            self._signalled = True
        fresh = self._signalled and self._file_version() not in (self._version, None)
        if status is None and not fresh:
            return
        self._step += 1
        if self._job.poll(self._step) is None:
            return
        if self._speaks:
            self._acknowledge(self._checkpoint if fresh else f"exit status {status}")

    def _acknowledge(self, checkpoint: str) -> None:
        try:
            self._job.acknowledge(checkpoint)
        except NotAcknowledged as error:
            sys.stderr.write(f"{error}\n")

    def _file_version(self) -> tuple[int, int] | None:
        """Return what identifies the content of the checkpoint file; None without a file."""
        if not self._checkpoint:
            return None
        try:
            status = Path(self._checkpoint).stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    def _now_s(self) -> float:
        return (self._clock.now_ms() + self._clock.off_ms()) / 1000
