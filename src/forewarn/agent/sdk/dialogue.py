"""The dialogue with a metadata service: requests and the meaning of answers, without sockets.

The clients and the agent's runner use it, so all behave alike: they negotiate versions downwards,
drop `wait` where it is not offered, and distinguish transient errors. Source: C-7, E-3, E-9.
"""

from __future__ import annotations

import json

from forewarn.agent.sdk.http import HttpResponse, request_bytes, target_of
from forewarn.errors import ArgumentInvalid, CallerError, PeerError, reason_of
from forewarn.protocol.approvals import render_approval
from forewarn.protocol.documents import Document, ScheduledEvent, read_document
from forewarn.protocol.versions import EVENTS_PATH, VERSIONS

TYPE_CHECKING = False  # `typing` is too heavy for the agent
if TYPE_CHECKING:
    from typing import Any

    from forewarn.agent.sdk.http import Endpoint

FIXED_ENDPOINT = "http://169.254.169.254"
"""Where the service is found in production. Source: E-1."""

OUTCOMES_PATH = "/forewarn/outcomes/"
NAME_PATH = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
INSTANCE_PATH = "/metadata/instance?api-version=2021-02-01"
HEADERS = (("Metadata", "true"), ("User-Agent", "forewarn"), ("Accept", "application/json"))

RETRY_STATUSES = (404, 410, 429, 500, 502, 503, 504)
"""Transient statuses. Source: C-7."""

PAUSE_S_MAX = 5.0  # the longest pause between two tries; the shortest notice is 30 s. Source: N-1
RETRY_AFTER_S_MAX = 5.0  # a service that throttles may ask for more. Source: C-7
CLIMB_FIRST_MS = 10_000  # how soon after lowering the version the newest is tried again
CLIMB_MS_MAX = 600_000  # the pause doubles up to this: an old service is asked 144 times a day
VERSION_REFUSED = "api-version is invalid"  # a part of the documented text. Source: E-3
VERSION_UNKNOWN = "invalid version requested"  # what the public service answers with a 404
SECONDS_MAX = 1e9  # of an argument; sockets and threads accept as much
EARLY_MS = 500  # a service that knows `wait` does not answer an unchanged document sooner
EARLY_ANSWERS_MAX = 2  # one may be a restart; two in a row is a service that knows no `wait`
INCARNATION_VERSION = VERSIONS[0]  # its approvals may carry the incarnation


class TemporarilyUnavailable(PeerError):
    """The service cannot answer at this moment; asking again later is right."""

    code = "temporarily-unavailable"
    message = "The metadata service does not answer as it should: {reason}."
    advice = (
        "It is asked again automatically; if this persists, look at the service and the network."
    )

    def __init__(self, *, reason: str, retry_after_s: float = 0.0) -> None:
        """Carry the reason, and the seconds the service asked to wait (0: it did not say)."""
        super().__init__(reason=reason)
        self.retry_after_s = retry_after_s


def unreachable(endpoint: str, error: Exception) -> TemporarilyUnavailable:
    """Return what a connection that failed means, with the place that was asked."""
    return TemporarilyUnavailable(reason=f"{reason_of(error)} ({endpoint})")


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


class ClientClosed(CallerError):
    """A request of a client that has been closed, perhaps while it was under way."""

    code = "client-closed"
    message = "The client is closed."
    advice = "Make a new client."


class ApiVersionInvalid(CallerError, ValueError):
    """An api-version that no service can have, and that would change the request."""

    code = "api-version-invalid"
    message = "{version!r} is not an api-version."
    advice = "Write it as in 2020-07-01, or leave it out for the newest the service knows."


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

        Raises:
            EndpointInvalid: an endpoint cannot be one.
            ApiVersionInvalid: the version cannot be one.
            ArgumentInvalid: an argument is of the wrong kind.
        """
        if not isinstance(api_version, str):
            raise ArgumentInvalid(name="api_version", wanted="text", found=api_version)
        known = api_version.isascii() and api_version.replace("-", "").isalnum()
        if api_version and not known:
            raise ApiVersionInvalid(version=api_version)
        self._targets = tuple(target_of(endpoint) for endpoint in endpoints)
        self._fixed_version = api_version
        self._wait_s = seconds("wait_s", wait_s)
        self._early = 0
        self._body = b""
        self._place = 0
        self._asked_ms = 0
        self._waited = False
        self._climb_ms = self._climb_pause_ms = 0
        self._fallback = ""  # the version to return to while the newest is being tried
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

    # ---- requests ------------------------------------------------------------------------------

    def poll_request(self, now_ms: int, *, hold: bool = True) -> bytes:
        """Return the request for the document; with `hold` one that may be held if `waits`.

        Now and then it tries the newest version again where a lower one is in use.
        """
        self._asked_ms = now_ms
        self._try_newest(now_ms)
        self._waited = hold and self.waits and not self._fallback
        path = f"{EVENTS_PATH}?api-version={self.version}"
        if self._waited and self.document is not None:
            path += f"&wait={self._wait_s:g}&incarnation={self.document.incarnation}"
        return self._request("GET", path)

    def approval_request(self, event_ids: tuple[str, ...]) -> bytes:
        """Return the request that approves some events. Source: A-1."""
        incarnation = None
        version = self._fallback or self.version
        if version == INCARNATION_VERSION and self.document is not None:
            incarnation = self.document.incarnation
        return self._request(
            "POST",
            f"{EVENTS_PATH}?api-version={version}",
            body=render_approval(event_ids, incarnation),
        )

    def get_request(self, path: str) -> bytes:
        """Return the request for another page of the metadata, such as `NAME_PATH`."""
        return self._request("GET", path)

    def outcome_request(self, event: ScheduledEvent | str) -> bytes:
        """Return the request for the outcome of an event. Source: X-1."""
        (event_id,) = event_ids_of((event,))
        return self.get_request(f"{OUTCOMES_PATH}{event_id}?format=json")

    def _request(self, method: str, path: str, *, body: bytes = b"") -> bytes:
        target = self.target
        headers = (*HEADERS, ("Content-Type", "application/json")) if body else HEADERS
        path += f"&{target.query}" if target.query else ""
        return request_bytes(method, target, path=path, headers=headers, body=body)

    # ---- answers -------------------------------------------------------------------------------

    def take_poll(self, answer: HttpResponse, now_ms: int) -> Document | None:
        """Return the document, or None where the same question must be asked again at once.

        Args:
            answer: The answer to the last `poll_request`.
            now_ms: Now, ms since the epoch UTC.

        Raises:
            TemporarilyUnavailable: It is not a document; ask again later.
            DocumentUnreadable: It is not a document; ask again later.
            UnsupportedApiVersion: No version is left to try.
            RequestRejected: The service will not answer such a request.
        """
        if answer.status == 200:
            unchanged = self.document is not None and answer.body == self._body
            if self._waited:
                early = unchanged and now_ms - self._asked_ms < EARLY_MS
                self._early = self._early + 1 if early else 0
            if not unchanged:
                self.document = self._named(read_document(answer.body))
                self._body = answer.body
            self._fallback = ""
            return self.document
        if self._fallback:  # the newest version is still not to be had, for whatever reason
            self.version, self._fallback = self._fallback, ""
            return None
        if self._waited and answer.status == 400:
            self._early = EARLY_ANSWERS_MAX
            return None
        if not self._fixed_version and self._lower_version(answer, now_ms):
            return None
        raise _trouble(answer)

    def take_approval(self, answer: HttpResponse) -> None:
        """Return where the approval is accepted; an empty body is a success. Source: C-7.

        Raises:
            TemporarilyUnavailable: Ask again later.
            RequestRejected: The ids are unknown, or over, or the service will not have it.
        """
        if answer.status != 200:
            raise _trouble(answer)

    def take_text(self, answer: HttpResponse) -> str:
        """Return the text of another page.

        Raises:
            TemporarilyUnavailable: Ask again later.
            RequestRejected: There is no such page.
        """
        if answer.status != 200:
            raise _trouble(answer)
        return answer.body.decode("utf-8", "replace").strip()

    def take_outcome(self, answer: HttpResponse) -> dict[str, Any]:
        """Return the outcome of an event.

        Raises:
            TemporarilyUnavailable: The service shows none.
        """
        outcome: dict[str, Any] = json.loads(self.take_text(answer))
        return outcome

    def _named(self, document: Document) -> Document:
        """Return the document with plain resource names; only the oldest has underscores."""
        if self.version != INCARNATION_VERSION:
            return document
        return Document(document.incarnation, tuple(map(_plainly_named, document.events)))

    def _try_newest(self, now_ms: int) -> None:
        if self._fallback:  # the last try got no answer
            self.version, self._fallback = self._fallback, ""
        lowered = not self._fixed_version and self.version != VERSIONS[-1]
        if lowered and self.document is not None and now_ms >= self._climb_ms:
            self._climb_pause_ms = min(2 * self._climb_pause_ms, CLIMB_MS_MAX)
            self._climb_ms = now_ms + self._climb_pause_ms
            self.version, self._fallback = VERSIONS[-1], self.version

    def _lower_version(self, answer: HttpResponse, now_ms: int) -> bool:
        """Use the next older version, the newest one the service named where it named any.

        Return whether the answer says that the version is not known, in the documented way: what
        anybody else answers would leave this VM without Preempt and Terminate. Source: E-3, V-2.
        """
        text, named = _refusal(answer)
        documented = bool(named) or VERSION_REFUSED in text
        if answer.status == 404:
            documented = VERSION_UNKNOWN in text
        if answer.status not in (400, 404) or not documented or self.version in named:
            return False
        older = [version for version in VERSIONS if version < self.version]
        usable = [version for version in older if version in named] or older
        if not usable:
            raise UnsupportedApiVersion(named=", ".join(named) or "none")
        if self.version == VERSIONS[-1]:
            self._climb_pause_ms = CLIMB_FIRST_MS
            self._climb_ms = now_ms + CLIMB_FIRST_MS
        self.version = usable[-1]
        return True


def seconds(name: str, given: object) -> float:
    """Return a duration that was given as an argument.

    Raises:
        ArgumentInvalid: it is not a number, negative or too long.
    """
    if type(given) not in (int, float) or not 0 <= given <= SECONDS_MAX:  # type: ignore[operator]
        raise ArgumentInvalid(name=name, wanted="seconds from 0 to 1e9", found=given)
    return float(given)  # type: ignore[arg-type]


def event_ids_of(events: tuple[ScheduledEvent | str, ...]) -> tuple[str, ...]:
    """Return the ids of events that were given as such or as their ids.

    Raises:
        ArgumentInvalid: one is neither.
    """
    for one in events:
        if not one or not isinstance(one, str | ScheduledEvent):
            raise ArgumentInvalid(name="events", wanted="events or their ids", found=one)
    return tuple(one if isinstance(one, str) else one.event_id for one in events)


def still_shown(event_ids: tuple[str, ...], document: Document) -> tuple[str, ...]:
    """Return those of some ids whose events a document shows; case does not matter."""
    shown = {event.event_id.upper() for event in document.events}
    return tuple(each for each in event_ids if each.upper() in shown)


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


def _refusal(answer: HttpResponse) -> tuple[str, tuple[str, ...]]:
    """Return the error an answer names, in lower case, and the versions it says it has."""
    try:
        form = json.loads(answer.body)
    except (ValueError, RecursionError):
        return "", ()
    if not isinstance(form, dict):
        return "", ()
    named = form.get("newest-versions")
    versions = tuple(str(version) for version in named) if isinstance(named, list) else ()
    return str(form.get("error", "")).lower(), versions


def _plainly_named(event: ScheduledEvent) -> ScheduledEvent:
    fields = {name: getattr(event, name) for name in ScheduledEvent.__slots__}
    fields["resources"] = tuple(name.removeprefix("_") for name in event.resources)
    return ScheduledEvent(**fields)
