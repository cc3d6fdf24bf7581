"""Sinks for HTTP: CloudEvents' webhook binding, and Event Grid's schema.

`cloudevents.py` creates the events.
"""

from __future__ import annotations

import hmac
import http.client
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeAlias

from forewarn_base.clock import SystemClock
from forewarn_base.errors import clean_text
from forewarn_base.http_client import ClientRequest, ClientResponse, exchange
from forewarn_base.ids import Ids
from forewarn_base.protocol import timestamps
from forewarn_base.protocol.versions import RESOURCE_TYPE, known_in
from forewarn_base.urls import is_protected
from forewarn_base.validation.fields import Boolean, Integer, Text
from forewarn_core.fleet.stimulus import LinkTicket
from forewarn_drivers.webhook.signing import SECRET_BYTES_MIN, signed
from forewarn_server.outbox.cloudevents import BATCH_MEDIA, MEDIA, CloudEvent, body_of
from forewarn_server.outbox.cluster_events import API_VERSION, STATUSES, ClusterEvent, details_of
from forewarn_server.outbox.cluster_events import GRID_TYPE as CLUSTER_GRID_TYPE
from forewarn_server.outbox.cluster_events import RESOURCE_TYPE as CLUSTER_RESOURCE_TYPE
from forewarn_server.outbox.sink import (
    CaFileOption,
    DeliveryFailed,
    DestinationOptions,
    SinkKind,
    blocking,
    secret_in,
)

log = logging.getLogger("forewarn.outbox")

#: Direction of a message in its signature; see `drivers/webhook/signing.py`.
EVENT = "event"
#: Maximum length of a refusal in errors, in characters.
SAID_MAX = 200
#: Longest id of another system's ticket, in characters.
EXTERNAL_MAX = 128
#: The action of a ticket that got such an id; its answer is not read, so that no circle begins.
LINKED = "ticket.linked"
#: Names of an event's states in Event Grid.
GRID_STATUS = {
    "scheduled": "Scheduled",
    "approved": "Scheduled",
    "started": "Started",
    "completed": "Completed",
    "cancelled": "Canceled",
}
GRID_TYPE = "Microsoft.ResourceNotifications.MaintenanceResources.ScheduledEventEmitted"
GRID_VALIDATION = "Microsoft.EventGrid.SubscriptionValidationEvent"


_Batch: TypeAlias = Annotated[int, Integer(1, 1000), "Most transitions in one request."]
_Validate: TypeAlias = Annotated[
    bool, Boolean(), "Whether to request the receiver's permission before sending events."
]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions(DestinationOptions):
    """CloudEvents over HTTP."""

    url: Annotated[
        str,
        Text(2048),
        "URL for the events; https is required unless the receiver is on this machine.",
    ]
    ca_file: CaFileOption = ""
    secret_file: Annotated[str, Text(4096), "File with the secret that signs requests."] = ""
    token_file: Annotated[str, Text(4096), "File with a bearer token for the requests."] = ""
    batch: _Batch = 1
    validate: _Validate = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudEventsOptions(HttpOptions):
    """CloudEvents over HTTP, whose receiver may keep tickets of its own."""

    links_tickets: Annotated[
        bool,
        Boolean(),
        "Whether the receiver answers an event about a ticket with the id of its own ticket, as"
        ' `{"external": "INC0042"}`; requires `batch = 1`, and no `owner`.',
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EventGridOptions(HttpOptions):
    """Scheduled Events in Event Grid's schema."""

    batch: _Batch = 50
    validate: _Validate = True
    topic: Annotated[str, Text(2048), "Event Grid's `topic` (default: `/forewarn/NAME`)."] = ""
    callback: Annotated[
        str,
        Text(2048),
        "URL at which the receiver reaches the operator API; adds a `validationUrl`.",
    ] = ""
    key_file: Annotated[str, Text(4096), "File with the key of an Event Grid topic."] = ""
    cluster: Annotated[
        str,
        Text(2048),
        "Resource Manager's id of the managed cluster whose nodes the hosts are; declared"
        " maintenances are then sent as its events.",
    ] = ""


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """The options of HTTP requests, with the contents of their files."""

    name: str
    options: HttpOptions
    #: Headers of each request.
    headers: Mapping[str, str]
    #: Secret for signatures of requests; empty: no signatures.
    secret: bytes = b""

    async def send(self, method: str, headers: Mapping[str, str], body: bytes) -> ClientResponse:
        """Send a request; return a successful answer.

        Raises:
            DeliveryFailed: the receiver did not answer, or refused the request.
        """
        all_headers = {**self.headers, **headers}
        if self.secret:
            time_s = SystemClock().now_ms() // 1000
            all_headers |= signed(self.secret, EVENT, self.name, time_s=time_s, body=body)
        options = self.options
        request = ClientRequest(method, options.url, all_headers, body)
        try:
            response = await blocking(
                partial(exchange, request, timeout_s=options.timeout_s, ca_file=options.ca_file)
            )
        except (OSError, http.client.HTTPException) as error:
            problem = f"cannot be reached: {error}"
            raise DeliveryFailed(name=self.name, problem=problem) from error
        if not 200 <= response.status < 300:
            text = clean_text(response.body[:SAID_MAX].decode("utf-8", "replace"))
            problem = f"answered {response.status}{text and ': '}{text}"
            raise DeliveryFailed(name=self.name, problem=problem)
        return response


class WebhookSink:
    """Posts CloudEvents, one per request or several as a batch."""

    def __init__(self, target: HttpTarget, *, links: bool = False) -> None:
        self.batch_max = target.options.batch
        self._target = target
        #: Whether answers name the receiver's tickets, and those that were not taken yet.
        self._reads_links, self._links = links, list[LinkTicket]()

    async def open(self) -> None:
        """Request the receiver's permission, as CloudEvents prescribes against abuse."""
        if not self._target.options.validate:
            return
        response = await self._target.send("OPTIONS", {"webhook-request-origin": "forewarn"}, b"")
        if response.headers.get("webhook-allowed-origin", "") not in {"*", "forewarn"}:
            problem = "does not allow events from forewarn (WebHook-Allowed-Origin)"
            raise DeliveryFailed(name=self._target.name, problem=problem)

    async def send(self, events: Sequence[CloudEvent]) -> None:
        """Post events."""
        batch = self.batch_max > 1
        media = BATCH_MEDIA if batch else MEDIA
        headers = {"content-type": f"{media}; charset=utf-8"}
        self._links.clear()
        response = await self._target.send("POST", headers, body_of(events, batch=batch))
        for event in events if self._reads_links else ():
            ticket, action = event["data"].get("ticket"), event["data"]["action"]
            if ticket and action != LINKED and (external := self._external(response.body)):
                number = int(ticket["id"].removeprefix("t-"))
                self._links.append(LinkTicket(number, external, keeps=True))

    def _external(self, body: bytes) -> str:
        """Return the id of the receiver's ticket of an answer; empty: it names none."""
        try:
            answer = json.loads(body) if body.strip() else {}
        except (ValueError, RecursionError):
            answer = None
        external = answer.get("external", "") if isinstance(answer, dict) else None
        if isinstance(external, str) and len(external) <= EXTERNAL_MAX and external.isprintable():
            return external.strip()
        text = (
            "the answer of %s about a ticket must be a JSON object whose `external` is a short text"
        )
        log.warning(text, self._target.name, extra={"action": "outbox.answer-malformed"})
        return ""

    def take_links(self) -> Sequence[LinkTicket]:
        """Return the ids of the receiver's tickets since the last call."""
        links, self._links = self._links, []
        return links

    async def close(self) -> None:
        """Do nothing, because each request opens its own connection."""


class EventGridSink:
    """Posts Scheduled Events in Event Grid's schema, like Azure Resource Notifications.

    The sink sends only transitions of events, because the schema describes only these, and for a
    managed cluster its declared maintenances.
    """

    def __init__(self, target: HttpTarget, options: EventGridOptions) -> None:
        self.batch_max = options.batch
        self._target = target
        self._topic = options.topic or f"/forewarn/{target.name}"
        #: Subscription and resource group in the resources' paths.
        self._cluster = options.cluster
        base = options.callback.rstrip("/")
        #: URL at which the receiver may consent later; empty: the receiver must consent at once.
        self._callback = f"{base}/v1/outbox/{target.name}/validate" if base else ""
        self._wanted = not options.validate
        #: Code that proves a receiver's consent; valid until the process ends.
        self._code = Ids().token("validation")

    def confirm(self, code: str) -> bool:
        """Accept a consent with the correct code; callable from any thread."""
        self._wanted = self._wanted or hmac.compare_digest(code.encode(), self._code.encode())
        return self._wanted

    async def open(self) -> None:
        """Check that the receiver consents, by returning a code or opening a URL."""
        if self._wanted:
            return
        code = self._code
        time = timestamps.iso8601(SystemClock().now_ms())
        event = self._envelope("validation", GRID_VALIDATION, "", time)
        event["data"] = {"validationCode": code}
        if self._callback:
            event["data"]["validationUrl"] = f"{self._callback}?code={code}"
        headers = self._headers("SubscriptionValidation")
        response = await self._target.send("POST", headers, json.dumps([event]).encode())
        try:
            echoed = json.loads(response.body)["validationResponse"]
        except (ValueError, KeyError, TypeError):
            echoed = ""
        if echoed != code:
            problem = "did not return Event Grid's validation code"
            if self._callback:
                problem += ", and its validationUrl was not opened"
            raise DeliveryFailed(name=self._target.name, problem=problem)

    async def send(self, events: Sequence[CloudEvent]) -> None:
        """Post the events of some transitions as one list, unless the list is empty."""
        entries = [each for event in events for each in self._entries(event)]
        if entries:
            body = json.dumps(entries, ensure_ascii=False).encode()
            await self._target.send("POST", self._headers("Notification"), body)

    async def close(self) -> None:
        """Do nothing, because each request opens its own connection."""

    def _headers(self, kind: str) -> dict[str, str]:
        return {"content-type": "application/json; charset=utf-8", "aeg-event-type": kind}

    def _entries(self, event: CloudEvent) -> list[dict[str, object]]:
        data = event["data"]
        if self._cluster and data.get("declaration") and data["action"] in STATUSES:
            return [self._cluster_notification(event, data["declaration"])]
        operation, events = data.get("operation"), data.get("events", ())
        if not operation:
            return []
        published = [each for each in events if each["published"]]
        return [self._notification(event, operation, each) for each in published]

    def _notification(
        self, event: CloudEvent, operation: Mapping[str, Any], notified: Mapping[str, Any]
    ) -> dict[str, object]:
        """Return the notification about one scheduled event."""
        first = notified["resources"][0] if notified["resources"] else ""
        resource = (
            f"{self._topic}/providers/Microsoft.Compute/virtualMachines/{first}"
            f"/providers/microsoft.maintenance/scheduledevents/{notified['id']}"
        )
        event_form = self._envelope(
            f"{event['id']}-{notified['id']}", GRID_TYPE, resource, event["time"]
        )
        status, not_before = GRID_STATUS[notified["state"]], operation["not_before"]
        shown = not_before and status in {"Scheduled", "Canceled"}
        fields = {
            "EventId": notified["id"],
            "EventStatus": status,
            "EventType": operation["impact"],
            "EventSource": operation["source"],
            "ResourceType": RESOURCE_TYPE,
            "Resources": notified["resources"],
            "NotBefore": timestamps.rfc1123(timestamps.parse(not_before)) if shown else "",
            "Description": operation["description"],
            "DurationInSeconds": operation["duration_s"],
        }
        properties = known_in(notified["published"], fields)
        event_form["data"] = {
            "resourceInfo": {
                "id": resource,
                "name": notified["id"],
                "type": "microsoft.maintenance/scheduledevents",
                "properties": properties,
                "tags": {},
            },
            "operationalInfo": {"resourceEventTime": event["time"]},
            "apiVersion": notified["published"],
        }
        return event_form

    def _cluster_notification(
        self, event: CloudEvent, declaration: Mapping[str, Any]
    ) -> dict[str, object]:
        """Return the notification about a declared maintenance of the cluster. Source: Z-11."""
        hosts, reason = len(declaration["hosts"]), declaration["reason"]
        shown = ClusterEvent(
            cluster=self._cluster,
            maintenance=declaration["id"],
            status=STATUSES[event["data"]["action"]],
            details=details_of(declaration["cause"], hosts, reason),
            scheduled=declaration["hand_back_deadline"],
            updated=event["time"],
        )
        form = self._envelope(event["id"], CLUSTER_GRID_TYPE, shown.id, event["time"])
        form["data"] = {
            "resourceInfo": {
                "id": shown.id,
                "name": shown.name,
                "type": CLUSTER_RESOURCE_TYPE,
                "properties": shown.properties(),
            },
            "operationalInfo": {"resourceEventTime": event["time"]},
            "apiVersion": API_VERSION,
        }
        return form

    def _envelope(self, event_id: str, kind: str, subject: str, time: str) -> dict[str, Any]:
        return {
            "id": event_id,
            "topic": self._topic,
            "subject": subject,
            "eventType": kind,
            "eventTime": time,
            "dataVersion": "1",
            "metadataVersion": "1",
        }


def create_webhook(name: str, options: CloudEventsOptions) -> WebhookSink:
    """Return the sink of a destination of the kind `webhook`."""
    if options.links_tickets and (options.batch > 1 or options.owner):
        raise ValueError("must have batch = 1 and no owner, because it links tickets")
    return WebhookSink(_target(name, options), links=options.links_tickets)


def create_event_grid(name: str, options: EventGridOptions) -> EventGridSink:
    """Return the sink of a destination of the kind `event-grid`."""
    return EventGridSink(_target(name, options, options.key_file), options)


def _target(name: str, options: HttpOptions, key_file: str = "") -> HttpTarget:
    if not is_protected(options.url):
        raise ValueError("must have an https url, or a url on this machine")
    headers = {"user-agent": "forewarn"}
    if token := secret_in(options.token_file):
        headers["authorization"] = f"Bearer {token}"
    if key := secret_in(key_file):
        headers["aeg-sas-key"] = key
    secret = secret_in(options.secret_file).encode()
    if secret and len(secret) < SECRET_BYTES_MIN:
        raise ValueError(f"must have a secret of at least {SECRET_BYTES_MIN} bytes")
    return HttpTarget(name, options, headers, secret)


WEBHOOK = SinkKind(options=CloudEventsOptions, create=create_webhook)
EVENT_GRID = SinkKind(options=EventGridOptions, create=create_event_grid)
