"""The client's process in a story, and waits for the actions of the client.

`client_stories.py` defines the stories.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from forewarn_base.errors import CallerError, reason_of
from forewarn_base.protocol.documents import ScheduledEvent
from forewarn_base.values import value
from forewarn_conformance.checks import ConformanceFault
from forewarn_conformance.client_server import NAME, PlayedServer, replaced, started
from forewarn_conformance.marks import PREPARED, RECOVERED, ConformanceMarks

#: Longest wait for a client's first request after its start, in seconds.
START_S = 60.0
#: Interval of checking the client's actions, in seconds.
LOOK_EVERY_S = 0.02
#: Number of polls within which a client must act.
POLLS_ENOUGH = 5
#: Number of polls after which a missing action counts as omitted.
POLLS_QUIET = 3
#: Rate limit of the public service per second, and size of bursts. Source: E-6.
RATE_PER_S = 5
BURST = 10
#: Shortest duration of a fault, in seconds, and minimum number of affected requests.
TROUBLE_S = 1.5
TROUBLE_POLLS = 3


class ClientUnstartable(CallerError):
    """The client's command cannot be started."""

    code = "conformance-client-unstartable"
    message = "{program} cannot be started: {reason}."
    advice = "Write the client's command after `--`, with the path of the program."


@value
class ClientOptions:
    """Options of the client checks."""

    #: Command that starts the client; `marks.py` describes its environment.
    words: tuple[str, ...]
    #: Whether the client reports its preparations.
    marks: bool = True
    #: Longest wait for the client's actions, in seconds.
    patience_s: float = 20.0
    #: Number of stories that run in parallel.
    parallel: int = 8


class ClientTrial:
    """A client, and the service for this client."""

    def __init__(
        self, options: ClientOptions, directory: Path, ended: threading.Event | None = None
    ) -> None:
        """Serve; `ended` is set to end the trial at once."""
        self._ended = ended or threading.Event()
        self.options = options
        self.marks = ConformanceMarks(directory)
        self.server = PlayedServer(self._is_prepared)
        self.environment = self.marks.environment(self.server.endpoint, NAME)
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    # --- the process --------------------------------------------------------------------------

    def start(self) -> None:
        """Start the client and wait for its first request."""
        if self._ended.is_set():
            raise ConformanceFault("the suite was ended")
        known = {
            "{endpoint}": self.server.endpoint,
            "{name}": NAME,
            "{state}": str(self._directory),
            "{mark}": str(self.marks.program),
        }
        words = list(self.options.words)
        for placeholder, text in known.items():
            words = [word.replace(placeholder, text) for word in words]
        polls = self.polls()
        with Path(self._directory, "log").open("ab") as log:
            try:
                self._process = subprocess.Popen(  # noqa: S603 - the caller's own command
                    words,
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            except OSError as error:
                raise ClientUnstartable(program=words[0], reason=reason_of(error)) from error
        self.wait(lambda: self.polls() > polls, "the client sent no request", START_S)

    def kill(self) -> None:
        """Kill the client and all its child processes with SIGKILL."""
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait()
        self._process = None

    def close(self) -> None:
        """Stop the client and the service."""
        self.kill()
        self.server.close()

    def last_line(self) -> str:
        """Return the last line that the client printed."""
        log = Path(self._directory, "log")
        lines = log.read_text("utf-8", "replace").strip().splitlines() if log.exists() else []
        return lines[-1][:200] if lines else ""

    # --- actions of the client ----------------------------------------------------------------

    def polls(self) -> int:
        """Return the number of the client's requests."""
        return len(self.server.seen.polls_ms)

    def approvals(self, event: ScheduledEvent) -> int:
        """Return the number of approvals of an event that were answered 200."""
        return self.server.seen.approved.get(event.event_id, 0)

    def posts(self, event: ScheduledEvent) -> int:
        """Return the number of approvals of an event that the client sent."""
        return self.server.seen.posted.get(event.event_id, 0)

    def prepared(self, event: ScheduledEvent) -> int:
        """Return the number of the client's preparations for an event."""
        return self.marks.count(PREPARED, event.event_id)

    # --- expected actions ---------------------------------------------------------------------

    def wait_polls(self, number: int) -> None:
        """Wait until the client has read the current document `number` times."""
        wanted = self.server.seen
        self.wait(lambda: wanted.shown >= number, "the client stopped polling", START_S)

    def wait_next_poll(self, number: int, limit_s: float) -> None:
        """Wait until the client has sent more than `number` requests."""
        self.wait(lambda: self.polls() > number, "the client polls too rarely: no request", limit_s)

    def wait_approved(self, event: ScheduledEvent) -> None:
        """Wait until an approval of the event is answered 200."""
        self.wait(lambda: self.approvals(event), "the client has not approved its event")

    def wait_posted(self, event: ScheduledEvent, times: int = 1) -> None:
        """Wait until the client has sent `times` approvals of an event, with any answers."""
        fault = (
            "the client did not repeat an approval"
            if times > 1
            else "the client has not approved its event"
        )
        self.wait(lambda: self.posts(event) >= times, fault)

    def wait_recovered(self, event: ScheduledEvent) -> None:
        """Wait until the client has recovered from an event that is over."""
        if self.options.marks:
            recovered = lambda: self.marks.count(RECOVERED, event.event_id)  # noqa: E731
            self.wait(recovered, "the client has not recovered from an event that is over")

    def refuse_recovered(self, event: ScheduledEvent) -> None:
        """Check that the client has not recovered from a live event."""
        if self.marks.count(RECOVERED, event.event_id):
            raise ConformanceFault("the client recovered from an event that is not over")

    def refuse_second_preparation(self, event: ScheduledEvent) -> None:
        """Check that the client has prepared only once for an event."""
        times = self.prepared(event)
        if times > 1:
            raise ConformanceFault(f"the client prepared {times} times for one event")

    def refuse_second_recovery(self, event: ScheduledEvent) -> None:
        """Check that the client has recovered only once from an event."""
        times = self.marks.count(RECOVERED, event.event_id)
        if times > 1:
            raise ConformanceFault(f"the client recovered {times} times from one event")

    # --- actions of the service ---------------------------------------------------------------

    def announce(self, *more: ScheduledEvent) -> ScheduledEvent:
        """Add a new event of this VM to the document, after other events."""
        event = self.server.event()
        self.server.show(*more, event)
        return event

    def begin(self, event: ScheduledEvent) -> ScheduledEvent:
        """Start an event; return the started event."""
        now = started(event)
        self.server.show(now)
        return now

    def postpone(self, event: ScheduledEvent) -> None:
        """Move the NotBefore of an event by an hour."""
        assert event.not_before_ms is not None, "only a scheduled event is postponed"
        self.server.show(replaced(event, not_before_ms=event.not_before_ms + 3_600_000))

    def trouble(self, fault: str) -> None:
        """Answer with a fault for a while; check that the client retries not too often."""
        first, begun_ms = self.polls(), self.server.clock.now_ms()
        self.server.set_fault("GET", fault)

        def fault_lasted() -> bool:
            lasted_ms = self.server.clock.now_ms() - begun_ms
            return lasted_ms >= TROUBLE_S * 1000 and self.polls() - first >= TROUBLE_POLLS

        self.wait(
            fault_lasted,
            f"the client did not recover from {fault}: the client stopped polling",
            START_S,
        )
        self.server.set_fault("GET", "")
        lasted_s = (self.server.clock.now_ms() - begun_ms) / 1000
        number = self.polls() - first
        if number > BURST + RATE_PER_S * lasted_s:
            raise ConformanceFault(
                f"the client polled too often: {number} times in {lasted_s:.1f} s of {fault}"
            )

    def _is_prepared(self, event_id: str) -> bool:
        return not self.options.marks or self.marks.count(PREPARED, event_id) > 0

    def wait(self, until: Callable[[], object], fault: str, limit_s: float = 0.0) -> None:
        """Wait for a condition; extend the timeout until the client has polled often enough."""
        clock, shown = self.server.clock, self.server.seen.shown
        begun_ms, limit_ms = clock.now_ms(), (limit_s or self.options.patience_s) * 1000
        while not until():
            if self._ended.is_set():
                raise ConformanceFault("the suite was ended")
            if self._process is not None and self._process.poll() is not None:
                status = self._process.returncode
                raise ConformanceFault(f"the client ended with status {status}: {self.last_line()}")
            lasted_ms = clock.now_ms() - begun_ms
            polled = limit_s or self.server.seen.shown - shown >= POLLS_ENOUGH
            if lasted_ms > limit_ms and (polled or lasted_ms > 3 * limit_ms):
                raise ConformanceFault(f"{fault} within {lasted_ms / 1000:.0f} s")
            self._ended.wait(LOOK_EVERY_S)
