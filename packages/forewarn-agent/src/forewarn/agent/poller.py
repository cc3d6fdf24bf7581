"""Poller: polls the service and sends approvals, without blocking.

The poller uses a separate connection for approvals, so that an approval never waits for a delayed
answer to a poll.
"""

from __future__ import annotations

from forewarn.agent.core.identity import is_name
from forewarn.agent.core.values import ApprovalEnded, DocumentPolled
from forewarn.agent.http_exchange import Line
from forewarn.agent.sdk.dialogue import (
    NAME_PATH,
    RequestRejected,
    TemporarilyUnavailable,
    pause_s,
    unreachable,
)
from forewarn.agent.sdk.http import ResponseInvalid
from forewarn_base.errors import PeerError, reason_of
from forewarn_base.protocol.documents import DocumentUnreadable

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from forewarn.agent.core.values import Stimulus
    from forewarn.agent.sdk.dialogue import Dialogue
    from forewarn.agent.sdk.http import HttpResponse
    from forewarn_base.ids import Ids

FIRST_ANSWER_MS = 130_000  # timeout of the first answer, which may take two minutes. Source: B-1
ANSWER_MS = 10_000  # timeout of later answers, which take milliseconds
APPROVAL_MS = 40_000  # timeout of approvals, which the service answers within 30 s. Source: A-6
SPACING_MS = 200  # interval of requests; the service allows five per second. Source: E-6
BURST = 5  # most requests in succession without an interval
APPROVALS_MAX = 256
UNNAMED_STATUSES = (400, 403, 404, 405)  # 410 is temporary: the cloud updates its service
UNNAMED_TRIES_MAX = 5  # refusals before the agent uses the hostname as the name
NAME_TRIES_MAX = 20  # failures before the agent uses the hostname: two minutes
NAME_AGAIN_MS = (1000, 600_000)  # first and longest interval of requests for the name after a guess
NAME_AGAIN_ANSWER_MS = 2000  # timeout of such a request, which delays polls


class Poller:
    """Polls and approves over two connections, and returns stimuli for the core."""

    def __init__(self, dialogue: Dialogue, ids: Ids, *, interval_s: float) -> None:
        self._dialogue = dialogue
        self._ids = ids
        self._interval_ms = int(interval_s * 1000)
        self.poll_line = Line()
        self.approve_line = Line()
        self._due_ms = 0
        self._begun_ms = 0
        self._until_ms = 0
        self._waited = False
        self._hurries = False
        self._hurried = 0
        self._credit = float(BURST)
        self._approving = ""
        self._approve_until_ms = 0
        self._approvals: dict[str, None] = {}
        #: This VM's name from the instance metadata; empty while it is unknown.
        self.name = ""
        #: Whether to request the name before the next poll.
        self.asks_name = False
        self._name_due_ms: int | None = None
        self._name_pause_ms = 0
        #: Failed polls since the last successful poll.
        self.failures = 0
        #: Reason why the last poll failed; empty after success.
        self.trouble = ""
        #: Remedy for `trouble`, as a sentence.
        self.advice = ""
        #: Time of the last successful poll, ms since the epoch; None before the first.
        self.good_ms: int | None = None
        #: Successful polls since the start.
        self.polls = 0
        #: Failed polls since the start.
        self.polls_failed = 0

    @property
    def endpoint(self) -> str:
        """Address of the service."""
        return str(self._dialogue.target)

    @property
    def version(self) -> str:
        """The api-version in use."""
        return self._dialogue.version

    @property
    def ahead_ms(self) -> int:
        """How far the service's clock is ahead of the agent's, in ms. Source: C-11."""
        return self._dialogue.ahead_ms

    # ---- for the runner's loop -----------------------------------------------------------------

    def next_ms(self) -> int:
        """Return the time of the next call of `begin` or `expire`, ms since the epoch; 0: now."""
        times = [self._until_ms if self.poll_line.busy else self._due_ms]
        if self.approve_line.busy:
            times.append(self._approve_until_ms)
        elif self._approvals:
            times.append(0)
        return min(times)

    def lines(self) -> tuple[Line, ...]:
        """Return the connections whose descriptors the caller must watch."""
        return tuple(line for line in (self.poll_line, self.approve_line) if line.busy)

    def approve(self, event_id: str) -> None:
        """Send an approval as soon as the approval connection is free."""
        if len(self._approvals) < APPROVALS_MAX:
            self._approvals[event_id] = None

    def poll_soon(self) -> None:
        """Poll again as soon as the rate limit allows, to confirm a document.

        The request asks for an immediate answer.
        """
        self._hurried += 1
        pause_ms = SPACING_MS if self._hurried <= BURST else self._interval_ms
        self._due_ms = min(self._due_ms, self._begun_ms + pause_ms)
        self._hurries = True

    # ---- the poll ------------------------------------------------------------------------------

    def begin(self, now_ms: int) -> tuple[Stimulus, ...]:
        """Send due requests; return the failures known at once."""
        if not self.poll_line.busy and now_ms >= self._due_ms:
            self._begin_poll(now_ms)
        if self._approvals and not self.approve_line.busy:
            return self._begin_approval(now_ms)
        return ()

    def _begin_poll(self, now_ms: int) -> None:
        dialogue = self._dialogue
        self._credit = min(BURST, self._credit + (now_ms - self._begun_ms) / SPACING_MS) - 1
        self._begun_ms = now_ms
        self._waited = dialogue.waits and not self.asks_name and not self._hurries
        first = dialogue.document is None
        held_ms = int(dialogue.wait_s * 1000) if self._waited else 0
        self._until_ms = now_ms + (FIRST_ANSWER_MS if first else ANSWER_MS) + held_ms
        if self._asks_name_again:
            self._until_ms = now_ms + NAME_AGAIN_ANSWER_MS
        if self.asks_name:
            path = dialogue.get_request(NAME_PATH)
        else:
            path = dialogue.poll_request(now_ms, hold=self._waited)
            self._hurried = self._hurried if self._hurries else 0
            self._hurries = False
        try:
            self.poll_line.begin(dialogue.target, "GET", request=path)
        except OSError as error:
            self._note_failure(unreachable(str(dialogue.target), error), now_ms)

    def poll_ready(self, now_ms: int) -> tuple[Stimulus, ...]:
        """Read from the poll connection; return the document once complete."""
        try:
            response = self.poll_line.advance()
            if response is None:
                return ()
            if self.asks_name:
                return self._take_name(response, now_ms)
            document = self._dialogue.take_poll(response, now_ms)
        except OSError as error:
            self._note_failure(unreachable(str(self._dialogue.target), error), now_ms)
            return ()
        except PeerError as error:
            self._note_failure(error, now_ms)
            return ()
        if document is None:
            self._due_ms = now_ms
            return ()
        self._note_success(now_ms)
        return (DocumentPolled(document, self.ahead_ms),)

    def _take_name(self, response: HttpResponse, now_ms: int) -> tuple[Stimulus, ...]:
        try:
            self.name = _checked_name(self._dialogue.take_text(response))
        except (TemporarilyUnavailable, RequestRejected):
            unknown = response.status in UNNAMED_STATUSES or not response.body.strip()
            tries_max = UNNAMED_TRIES_MAX if unknown else NAME_TRIES_MAX
            if not self._asks_name_again and self.failures + 1 < tries_max:
                raise
        self._postpone_name(now_ms)
        self.failures = 0
        return ()

    @property
    def _asks_name_again(self) -> bool:
        """Return whether to request the name again after a guess."""
        return self.asks_name and self._name_due_ms is not None

    def _postpone_name(self, now_ms: int) -> None:
        """Continue with polls; schedule another request for an unknown name."""
        self.asks_name = False
        self._due_ms = now_ms
        least_ms, most_ms = NAME_AGAIN_MS
        self._name_pause_ms = min(max(least_ms, 2 * self._name_pause_ms), most_ms)
        self._name_due_ms = None if self.name else now_ms + self._name_pause_ms

    def _note_success(self, now_ms: int) -> None:
        self.failures = 0
        self.trouble = ""
        self.good_ms = now_ms
        self.polls += 1
        self.asks_name = self._name_due_ms is not None and now_ms >= self._name_due_ms
        if not self._dialogue.waits:
            self._due_ms = self._begun_ms + self._interval_ms
        elif self._credit >= 1:
            self._due_ms = now_ms
        else:
            self._due_ms = self._begun_ms + SPACING_MS

    def _note_failure(self, error: PeerError, now_ms: int) -> None:
        self.poll_line.close()
        if self._asks_name_again:
            self._postpone_name(now_ms)
            return
        self.failures += 1
        self.polls_failed += 1
        self.trouble, self.advice = str(error), error.advice_text()
        if isinstance(error, TemporarilyUnavailable):
            self._dialogue.switch_endpoint()
        asked_s = error.retry_after_s if isinstance(error, TemporarilyUnavailable) else 0.0
        jitter = self._ids.fraction("jitter")
        self._due_ms = now_ms + int(pause_s(self.failures, asked_s=asked_s, jitter=jitter) * 1000)

    # ---- approvals -----------------------------------------------------------------------------

    def _begin_approval(self, now_ms: int) -> tuple[Stimulus, ...]:
        event_id = next(iter(self._approvals))
        del self._approvals[event_id]
        self._approving = event_id
        self._approve_until_ms = now_ms + APPROVAL_MS
        request = self._dialogue.approval_request((event_id,))
        try:
            self.approve_line.begin(self._dialogue.target, "POST", request=request)
        except OSError as error:
            return (ApprovalEnded(event_id, accepted=False, reason=reason_of(error)),)
        return ()

    def approval_ready(self) -> tuple[Stimulus, ...]:
        """Read from the approval connection; return the approval's result once known."""
        try:
            response = self.approve_line.advance()
            if response is None:
                return ()
            self._dialogue.take_approval(response)
        except (
            OSError,
            ResponseInvalid,
            TemporarilyUnavailable,
            RequestRejected,
            DocumentUnreadable,
        ) as error:
            return (ApprovalEnded(self._approving, accepted=False, reason=reason_of(error)),)
        return (ApprovalEnded(self._approving, accepted=True),)

    def expire(self, now_ms: int) -> tuple[Stimulus, ...]:
        """Abandon requests that have timed out."""
        if self.poll_line.busy and now_ms >= self._until_ms:
            self._note_failure(TemporarilyUnavailable(reason="no answer in time"), now_ms)
        if self.approve_line.busy and now_ms >= self._approve_until_ms:
            self.approve_line.close()
            return (ApprovalEnded(self._approving, accepted=False, reason="no answer in time"),)
        return ()


def _checked_name(text: str) -> str:
    """Return a valid name; other servers may answer with a page instead.

    Raises:
        TemporarilyUnavailable: the text is not a name; a later answer may be a name.
    """
    if not is_name(text):
        raise TemporarilyUnavailable(reason=f"{text[:40]!r} is not a VM name")
    return text
