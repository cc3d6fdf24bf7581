"""The dialogue with a metadata service: what is asked, and what an answer means; no socket here.

The sync client, the async one and the agent's runner speak through it, so that all three have the
same manners: versions are negotiated downwards, `wait` is dropped in silence where it is not
offered, and what is known to pass is told apart from what is not. Source: C-7, E-3, E-9.
"""

from __future__ import annotations

import json

from forewarn.agent.sdk.http import HttpResponse, request_bytes, target_of
from forewarn.errors import PeerError
from forewarn.protocol.approvals import render_approval
from forewarn.protocol.documents import Document, ScheduledEvent, read_document
from forewarn.protocol.versions import VERSIONS

TYPE_CHECKING = False  # `typing` is too heavy for the agent
if TYPE_CHECKING:
    from forewarn.agent.sdk.http import Endpoint

FIXED_ENDPOINT = "http://169.254.169.254"
"""Where the service is found in production. Source: E-1."""

PATH = "/metadata/scheduledevents"
NAME_PATH = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
INSTANCE_PATH = "/metadata/instance?api-version=2021-02-01"
HEADERS = (("Metadata", "true"), ("User-Agent", "forewarn"), ("Accept", "application/json"))

RETRY_STATUSES = (404, 410, 429, 500, 502, 503, 504)
"""What passes by itself. Source: C-7."""

PAUSE_S_MAX = 10.0  # the longest pause between two tries; an event must not wait for us
RETRY_AFTER_S_MAX = 60.0  # what a throttling service may ask for at most
EARLY_S = 0.5  # a service that knows `wait` does not answer an unchanged document sooner
EARLY_ANSWERS_MAX = 2  # one may be a restart; two in a row is a service that knows no `wait`
INCARNATION_VERSION = VERSIONS[0]  # its approvals may carry the incarnation


class TemporarilyUnavailable(PeerError):
    """The service cannot answer at this moment; asking again later is right."""

    code = "temporarily-unavailable"
    message = "The metadata service does not answer as it should: {reason}."
    advice = "It is asked again by itself; if this stays, look at the service and the network."

    def __init__(self, *, reason: str, retry_after_s: float = 0.0) -> None:
        """Carry the reason, and the seconds the service asked to wait (0: it did not say)."""
        super().__init__(reason=reason)
        self.retry_after_s = retry_after_s


class RequestRejected(PeerError):
    """The service refuses the request; the same request will be refused again."""

    code = "request-rejected"
    message = "The metadata service refuses with status {answered}: {reason}."
    advice = "Check that this is a metadata service and that this VM is known to it."


class UnsupportedApiVersion(PeerError):
    """The service knows no api-version that this client knows."""

    code = "unsupported-api-version"
    message = "The metadata service accepts no api-version known here; it named {named}."
    advice = "Update forewarn, or set the api-version that the service accepts."


class Dialogue:
    """Builds requests and understands answers; remembers version, document and manners."""

    def __init__(
        self, endpoints: tuple[str, ...], *, api_version: str = "", wait_s: float = 0.0
    ) -> None:
        """Address the first of some endpoints, with the newest version or the given one.

        Args:
            endpoints: Where the service may be, in the order of preference; see `move_on`.
            api_version: The only version to use; empty to negotiate downwards.
            wait_s: Seconds the service may hold an answer; 0 to be answered at once. Source: E-9.
        """
        self._targets = tuple(target_of(endpoint) for endpoint in endpoints)
        self._fixed_version = api_version
        self._wait_s = wait_s
        self._early = 0
        self._body = b""
        self._place = 0
        self.version = api_version or VERSIONS[-1]
        """The api-version in use."""
        self.document: Document | None = None
        """The document read last."""

    @property
    def target(self) -> Endpoint:
        """Where to connect."""
        return self._targets[self._place]

    @property
    def waits(self) -> bool:
        """Whether the next poll may be held by the service."""
        known = self.document is not None and self.document.incarnation >= 0
        return known and self._wait_s > 0 and self._early < EARLY_ANSWERS_MAX

    @property
    def wait_s(self) -> float:
        """How long the next poll may be held, in seconds."""
        return self._wait_s if self.waits else 0.0

    def move_on(self) -> None:
        """Try the next endpoint; for when the present one cannot be reached."""
        if self.document is None:  # once one has answered it is the right one
            self._place = (self._place + 1) % len(self._targets)

    # ---- what is asked -------------------------------------------------------------------------

    def poll_request(self, *, hold: bool = True) -> bytes:
        """Return the request for the document; with `hold` one that may be held if `waits`."""
        path = f"{PATH}?api-version={self.version}"
        if hold and self.waits and self.document is not None:
            path += f"&wait={self._wait_s:g}&incarnation={self.document.incarnation}"
        return request_bytes("GET", self.target, path=path, headers=HEADERS)

    def approval_request(self, event_ids: tuple[str, ...]) -> bytes:
        """Return the request that approves some events. Source: A-1."""
        incarnation = None
        if self.version == INCARNATION_VERSION and self.document is not None:
            incarnation = self.document.incarnation
        path = f"{PATH}?api-version={self.version}"
        headers = (*HEADERS, ("Content-Type", "application/json"))
        body = render_approval(event_ids, incarnation)
        return request_bytes("POST", self.target, path=path, headers=headers, body=body)

    def get_request(self, path: str) -> bytes:
        """Return the request for another page of the metadata, such as `NAME_PATH`."""
        return request_bytes("GET", self.target, path=path, headers=HEADERS)

    # ---- what is answered ----------------------------------------------------------------------

    def take_poll(self, answer: HttpResponse, *, elapsed_s: float, waited: bool) -> Document | None:
        """Return the document, or None where the same question must be asked anew at once.

        Args:
            answer: The answer to `poll_request`.
            elapsed_s: How long it took, in seconds.
            waited: Whether the request had asked the service to wait.

        Raises:
            TemporarilyUnavailable: It is no document; ask again later.
            DocumentUnreadable: It is no document; ask again later.
            UnsupportedApiVersion: No version is left to try.
            Refused: The service will not answer such a request.
        """
        if answer.status == 200:
            unchanged = self.document is not None and answer.body == self._body
            if waited:
                self._early = self._early + 1 if unchanged and elapsed_s < EARLY_S else 0
            if not unchanged:
                self.document = self._named(read_document(answer.body))
                self._body = answer.body
            return self.document
        if waited and answer.status == 400:
            self._early = EARLY_ANSWERS_MAX
            return None
        if _is_about_version(answer) and not self._fixed_version:
            self._lower_version(answer)
            return None
        raise _trouble(answer)

    def take_approval(self, answer: HttpResponse) -> None:
        """Return where the approval is accepted; an empty body is a success. Source: C-7.

        Raises:
            TemporarilyUnavailable: Ask again later.
            Refused: The ids are unknown, or over, or the service will not have it.
        """
        if answer.status != 200:
            raise _trouble(answer)

    def take_text(self, answer: HttpResponse) -> str:
        """Return the text of another page.

        Raises:
            TemporarilyUnavailable: Ask again later.
            Refused: There is no such page.
        """
        if answer.status != 200:
            raise _trouble(answer)
        return answer.body.decode("utf-8", "replace").strip()

    def _named(self, document: Document) -> Document:
        """Return the document with plain resource names; only the oldest has underscores."""
        if self.version != INCARNATION_VERSION:
            return document
        return Document(document.incarnation, tuple(map(_plainly_named, document.events)))

    def _lower_version(self, answer: HttpResponse) -> None:
        """Use the next older version, the newest one the service named where it named any."""
        named = _newest_versions(answer)
        older = [version for version in VERSIONS if version < self.version]
        usable = [version for version in older if version in named] or older
        if not usable:
            raise UnsupportedApiVersion(named=", ".join(named) or "none")
        self.version = usable[-1]


def pause_s(tries: int, *, asked_s: float = 0.0, jitter: float) -> float:
    """Return how long to wait before the next try, in seconds.

    Args:
        tries: Failures in a row so far, from 1.
        asked_s: What the service asked for, 0 where it did not.
        jitter: A random number from 0 to 1, so that a fleet does not ask in step. Source: C-7.
    """
    if asked_s:
        return min(asked_s, RETRY_AFTER_S_MAX) * (1.0 + jitter / 10)
    doubled_s = 0.25 * float(2 ** min(tries, 10))
    return min(doubled_s, PAUSE_S_MAX) * (0.5 + jitter / 2)


def _trouble(answer: HttpResponse) -> TemporarilyUnavailable | RequestRejected:
    reason = f"status {answer.status}"
    text = answer.body[:200].decode("utf-8", "replace").strip()
    if answer.status in RETRY_STATUSES:
        after = answer.headers.get("retry-after", "")
        return TemporarilyUnavailable(
            reason=f"{reason} {text}".strip(),
            retry_after_s=float(after) if after.isdecimal() else 0.0,
        )
    if 300 <= answer.status < 400:
        text = "a redirect, which is never followed"
    return RequestRejected(answered=answer.status, reason=text or "no reason given")


def _is_about_version(answer: HttpResponse) -> bool:
    return answer.status in (400, 404) and b"version" in answer.body.lower()


def _newest_versions(answer: HttpResponse) -> tuple[str, ...]:
    try:
        form = json.loads(answer.body)
    except (ValueError, RecursionError):
        return ()
    named = form.get("newest-versions") if isinstance(form, dict) else None
    return tuple(str(version) for version in named) if isinstance(named, list) else ()


def _plainly_named(event: ScheduledEvent) -> ScheduledEvent:
    fields = {name: getattr(event, name) for name in ScheduledEvent.__slots__}
    fields["resources"] = tuple(name.removeprefix("_") for name in event.resources)
    return ScheduledEvent(**fields)
