"""The dialogue with a metadata service: builds requests and parses answers, without I/O.

The clients and the agent share this module. The dialogue negotiates versions downwards, omits
`wait` if the service does not support `wait`, and classifies errors as transient or permanent.
Source: C-7, E-3, E-9.
"""

from __future__ import annotations

import json

from forewarn.agent.sdk.http import HttpResponse, request_bytes, target_of
from forewarn_base.errors import ArgumentInvalid, CallerError, PeerError, reason_of
from forewarn_base.protocol.approvals import render_approval
from forewarn_base.protocol.documents import Document, ScheduledEvent, read_document
from forewarn_base.protocol.timestamps import TIME_CHARACTERS
from forewarn_base.protocol.timestamps import parse as parse_time
from forewarn_base.protocol.versions import EVENTS_PATH, VERSIONS

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from typing import Any

    from forewarn.agent.sdk.http import Endpoint

#: Address of the service in production. Source: E-1.
FIXED_ENDPOINT = "http://169.254.169.254"

OUTCOMES_PATH = "/forewarn/outcomes/"
NAME_PATH = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
INSTANCE_PATH = "/metadata/instance?api-version=2021-02-01"
HEADERS = (("Metadata", "true"), ("User-Agent", "forewarn"), ("Accept", "application/json"))

UNSIGNED_STATUSES = (401, 403)  # no signature, and a program without permission. Source: Z-10
#: Transient statuses. Source: C-7.
RETRY_STATUSES = (404, 410, 429, 500, 502, 503, 504)

PAUSE_S_MAX = 5.0  # longest pause between attempts; the shortest notice is 30 s. Source: N-1
RETRY_AFTER_S_MAX = 5.0  # limit for `Retry-After` of a throttling service. Source: C-7
CLIMB_FIRST_MS = 10_000  # first pause between attempts with the newest version
CLIMB_MS_MAX = 600_000  # longest pause between attempts with the newest version: 144 attempts a day
VERSION_REFUSED = "api-version is invalid"  # part of the documented error text. Source: E-3
VERSION_UNKNOWN = "invalid version requested"  # error text of the public service, with status 404
SECONDS_MAX = 1e9  # limit of duration arguments, which sockets and threads accept
EARLY_MS = 500  # earlier answers with an unchanged document show a service without `wait`
EARLY_ANSWERS_MAX = 2  # successive early answers after which `wait` is omitted
CLOCKS_DIFFER_MS = 2000  # reported difference between the service's clock and the VM's
DATE_MS = 2000  # a Date omits the fraction of its second, and a service may renew it once a second
INCARNATION_VERSION = VERSIONS[0]  # api-version whose approvals may contain the incarnation


class TemporarilyUnavailable(PeerError):
    """The service failed temporarily; a later attempt may succeed."""

    code = "temporarily-unavailable"
    message = "The metadata service failed temporarily: {reason}."
    advice = (
        "The client retries automatically; if this persists, check the service and the network."
    )

    def __init__(self, *, reason: str, retry_after_s: float = 0.0) -> None:
        """Store the reason, and the pause that the service requested, in seconds (0: none)."""
        super().__init__(reason=reason)
        self.retry_after_s = retry_after_s


def unreachable(endpoint: str, error: Exception) -> TemporarilyUnavailable:
    """Return the error for a failed connection, with its endpoint."""
    return TemporarilyUnavailable(reason=f"{reason_of(error)} ({endpoint})")


class RequestRejected(PeerError):
    """The service permanently refused a request."""

    code = "request-rejected"
    message = "The metadata service refused the request with status {answered}: {reason}."
    advice = "Check the service's address, and that its fleet contains this VM."


class RequestUnsigned(RequestRejected):
    """The service, or a proxy agent in the VM, requires signed requests of permitted programs.

    Source: Z-10.
    """

    code = "request-unsigned"
    advice = (
        "If the VM's Metadata Security Protocol is in mode Enforce, start Azure's guest proxy "
        "agent, and permit this program in its rules; otherwise check the service's address."
    )


class UnsupportedApiVersion(PeerError):
    """The service supports no api-version of this client."""

    code = "unsupported-api-version"
    message = "The metadata service supports no api-version of this client, only {named}."
    advice = "Update forewarn, or set an api-version that the service supports."


class ClientClosed(CallerError):
    """The client was closed before or during the request."""

    code = "client-closed"
    message = "The client is closed."
    advice = "Create a new client."


class ApiVersionInvalid(CallerError, ValueError):
    """The api-version is malformed, and could alter the request."""

    code = "api-version-invalid"
    message = "{version!r} is not an api-version."
    advice = "Write a date such as 2020-07-01, or omit the api-version to use the newest."


class Dialogue:
    """Builds requests and parses answers; stores the version and the last document."""

    def __init__(
        self, endpoints: tuple[str, ...], *, api_version: str = "", wait_s: float = 0.0
    ) -> None:
        """Set the endpoints and the version; start with the first endpoint.

        Args:
            endpoints: Possible addresses of the service, in order of preference; see
                `switch_endpoint`.
            api_version: The only version to use; empty: negotiate downwards from the newest.
            wait_s: Seconds for which the service may delay an answer; 0: no delay. Source: E-9.

        Raises:
            EndpointInvalid: an endpoint is malformed.
            ApiVersionInvalid: the version is malformed.
            ArgumentInvalid: an argument has the wrong type.
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
        self._fallback = ""  # the previous version, during an attempt with the newest
        #: The api-version in use.
        self.version = api_version or VERSIONS[-1]
        #: The last document.
        self.document: Document | None = None
        #: How far the service's clock is ahead of the caller's, in ms; 0 if they seem to agree.
        #: NotBefore is a time of the service's clock. Source: C-11.
        self.ahead_ms = 0

    @property
    def target(self) -> Endpoint:
        """The endpoint to connect to."""
        return self._targets[self._place]

    @property
    def waits(self) -> bool:
        """Whether the service may delay the answer to the next poll."""
        known = self.document is not None and self.document.incarnation >= 0
        return known and self._wait_s > 0 and self._early < EARLY_ANSWERS_MAX

    @property
    def wait_s(self) -> float:
        """Longest delay of the next poll's answer, in seconds."""
        return self._wait_s if self.waits else 0.0

    def switch_endpoint(self) -> None:
        """Switch to the next endpoint, because this one is unreachable."""
        if self.document is None:  # stay with an endpoint that has answered
            self._place = (self._place + 1) % len(self._targets)

    # ---- requests ------------------------------------------------------------------------------

    def poll_request(self, now_ms: int, *, hold: bool = True) -> bytes:
        """Return the request for the document; `hold` permits a delayed answer if `waits` is true.

        While a lower version is in use, some requests try the newest version again.
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
        """Return the document, or None if the caller must send `poll_request` again at once.

        Raises:
            TemporarilyUnavailable: The service failed temporarily; ask again later.
            DocumentUnreadable: The document is malformed; ask again later.
            UnsupportedApiVersion: The service refused all versions.
            RequestRejected: The service refuses the request.
        """
        if answer.status == 200:
            self._compare_clocks(answer.headers.get("date", ""), now_ms)
            unchanged = self.document is not None and answer.body == self._body
            if self._waited:
                early = unchanged and now_ms - self._asked_ms < EARLY_MS
                self._early = self._early + 1 if early else 0
            if not unchanged:
                self.document = self._with_resource_names(read_document(answer.body))
                self._body = answer.body
            self._fallback = ""
            return self.document
        if self._fallback:  # the newest version still fails; return to the previous version
            self.version, self._fallback = self._fallback, ""
            return None
        if self._waited and answer.status == 400:
            self._early = EARLY_ANSWERS_MAX
            return None
        if not self._fixed_version and self._lower_version(answer, now_ms):
            return None
        raise _trouble(answer)

    def take_approval(self, answer: HttpResponse) -> None:
        """Check the answer to an approval; an empty body is a success. Source: C-7.

        Raises:
            TemporarilyUnavailable: Ask again later.
            RequestRejected: The ids are unknown or over, or the service refused the request.
        """
        if answer.status != 200:
            raise _trouble(answer)

    def take_text(self, answer: HttpResponse) -> str:
        """Return the text of another page of the metadata.

        Raises:
            TemporarilyUnavailable: Ask again later.
            RequestRejected: The service lacks the page.
        """
        if answer.status != 200:
            raise _trouble(answer)
        return answer.body.decode("utf-8", "replace").strip()

    def take_outcome(self, answer: HttpResponse) -> dict[str, Any]:
        """Return the outcome of an event.

        Raises:
            TemporarilyUnavailable: The service does not show the outcome.
        """
        outcome: dict[str, Any] = json.loads(self.take_text(answer))
        return outcome

    def _compare_clocks(self, date: str, now_ms: int) -> None:
        """Correct `ahead_ms` by as little as an answer requires, so that it settles.

        The service read its clock after the request was sent, and before the answer arrived.
        """
        try:
            date_ms = parse_time(date[:TIME_CHARACTERS])
        except ValueError:  # some services send no date
            return
        least_ms, most_ms = date_ms - now_ms, date_ms + DATE_MS - self._asked_ms
        self.ahead_ms = min(max(self.ahead_ms, least_ms), most_ms)

    def _with_resource_names(self, document: Document) -> Document:
        """Return the document without the oldest version's underscores in resource names."""
        if self.version != INCARNATION_VERSION:
            return document
        return Document(document.incarnation, tuple(map(_with_plain_names, document.events)))

    def _try_newest(self, now_ms: int) -> None:
        if self._fallback:  # the last attempt had no answer
            self.version, self._fallback = self._fallback, ""
        lowered = not self._fixed_version and self.version != VERSIONS[-1]
        if lowered and self.document is not None and now_ms >= self._climb_ms:
            self._climb_pause_ms = min(2 * self._climb_pause_ms, CLIMB_MS_MAX)
            self._climb_ms = now_ms + self._climb_pause_ms
            self.version, self._fallback = VERSIONS[-1], self.version

    def _lower_version(self, response: HttpResponse, now_ms: int) -> bool:
        """Switch to the next older version, or to the newest version listed by the service.

        Return whether the answer is the documented refusal of a version. Other answers leave the
        version unchanged, because older versions lack Preempt and Terminate. Source: E-3, V-2.
        """
        text, named = _refusal(response)
        documented = bool(named) or VERSION_REFUSED in text
        if response.status == 404:
            documented = VERSION_UNKNOWN in text
        if response.status not in (400, 404) or not documented or self.version in named:
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
    """Return a duration argument in seconds.

    Raises:
        ArgumentInvalid: the argument must be a number from 0 to 1e9.
    """
    if type(given) not in (int, float) or not 0 <= given <= SECONDS_MAX:  # type: ignore[operator]
        raise ArgumentInvalid(name=name, wanted="seconds from 0 to 1e9", found=given)
    return float(given)  # type: ignore[arg-type]


def event_ids_of(events: tuple[ScheduledEvent | str, ...]) -> tuple[str, ...]:
    """Return the ids from arguments that are events or ids.

    Raises:
        ArgumentInvalid: an argument is neither an event nor an id.
    """
    for one in events:
        if not one or not isinstance(one, str | ScheduledEvent):
            raise ArgumentInvalid(name="events", wanted="events or their ids", found=one)
    return tuple(one if isinstance(one, str) else one.event_id for one in events)


def still_shown(event_ids: tuple[str, ...], document: Document) -> tuple[str, ...]:
    """Return the ids of events in the document; ignore case."""
    shown = {event.event_id.upper() for event in document.events}
    return tuple(each for each in event_ids if each.upper() in shown)


def pause_s(tries: int, *, asked_s: float = 0.0, jitter: float) -> float:
    """Return the pause before the next attempt, in seconds.

    Args:
        tries: Successive failures so far, from 1.
        asked_s: Pause requested by the service, in seconds; 0: none.
        jitter: A random number from 0 to 1, which spreads the requests of a fleet. Source: C-7.
    """
    if asked_s:
        return min(asked_s, RETRY_AFTER_S_MAX) * (1.0 + jitter / 10)
    doubled_s = 0.25 * float(2 ** min(tries, 10))
    return min(doubled_s, PAUSE_S_MAX) * (0.5 + jitter / 2)


def _trouble(response: HttpResponse) -> TemporarilyUnavailable | RequestRejected:
    reason = f"status {response.status}"
    text = response.body[:200].decode("utf-8", "replace").strip()
    if response.status in RETRY_STATUSES:
        after = response.headers.get("retry-after", "")
        return TemporarilyUnavailable(
            reason=f"{reason} {text}".strip(),
            retry_after_s=float(after) if after.isdecimal() else 0.0,
        )
    if 300 <= response.status < 400:
        text = "a redirect, which the client never follows"
    kind = RequestUnsigned if response.status in UNSIGNED_STATUSES else RequestRejected
    return kind(answered=response.status, reason=text or "no reason given")


def _refusal(response: HttpResponse) -> tuple[str, tuple[str, ...]]:
    """Return the error text of an answer in lower case, and the versions listed in the answer."""
    try:
        form = json.loads(response.body)
    except (ValueError, RecursionError):
        return "", ()
    if not isinstance(form, dict):
        return "", ()
    named = form.get("newest-versions")
    versions = tuple(str(version) for version in named) if isinstance(named, list) else ()
    return str(form.get("error", "")).lower(), versions


def _with_plain_names(event: ScheduledEvent) -> ScheduledEvent:
    fields = {name: getattr(event, name) for name in ScheduledEvent.__slots__}
    fields["resources"] = tuple(name.removeprefix("_") for name in event.resources)
    return ScheduledEvent(**fields)
