"""Destinations over HTTP: CloudEvents as their webhook binding says, and Event Grid's schema.

What an event says is made in `cloudevents.py`.
"""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from forewarn.clock import SystemClock
from forewarn.drivers.webhook.request import HttpRequest, HttpResponse, exchange
from forewarn.drivers.webhook.signing import signed
from forewarn.ids import Ids
from forewarn.outbox.blocking import blocking
from forewarn.outbox.cloudevents import BATCH_MEDIA, MEDIA, body_of
from forewarn.outbox.sink import DeliveryFailed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from forewarn.outbox.cloudevents import CloudEvent

#: Which way a signed message goes: see `drivers/webhook/signing.py`.
EVENT = "event"
#: Longest answer that is told of a refusal, in characters.
SAID_MAX = 200
#: State of an event -> what Event Grid calls it.
GRID_STATUS = {
    "scheduled": "Scheduled",
    "approved": "Scheduled",
    "started": "Started",
    "completed": "Completed",
    "cancelled": "Canceled",
}
GRID_TYPE = "Microsoft.ResourceNotifications.MaintenanceResources.ScheduledEventEmitted"
GRID_VALIDATION = "Microsoft.EventGrid.SubscriptionValidationEvent"


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """Where requests go, and how."""

    name: str
    url: str
    #: Sent with each request.
    headers: Mapping[str, str]
    timeout_s: float = 10.0
    #: Certificates that are trusted; empty: the system's.
    ca_file: str = ""
    #: What requests are signed with; empty: they are not.
    secret: bytes = b""

    async def send(self, method: str, headers: Mapping[str, str], body: bytes) -> HttpResponse:
        """Send a request; return the answer, which is good.

        Raises:
            DeliveryFailed: there was none, or it was a refusal.
        """
        said = {**self.headers, **headers}
        if self.secret:
            time_s = SystemClock().now_ms() // 1000
            said |= signed(self.secret, EVENT, self.name, time_s=time_s, body=body)
        request = HttpRequest(method, self.url, said, body)
        try:
            answer = await blocking(
                partial(exchange, request, timeout_s=self.timeout_s, ca_file=self.ca_file)
            )
        except (OSError, http.client.HTTPException) as error:
            problem = f"cannot be reached: {error}"
            raise DeliveryFailed(name=self.name, problem=problem) from error
        if not 200 <= answer.status < 300:
            text = answer.body[:SAID_MAX].decode("utf-8", "replace").strip()
            text = "".join(each if each.isprintable() else " " for each in text)
            problem = f"answered {answer.status}{text and ': '}{text}"
            raise DeliveryFailed(name=self.name, problem=problem)
        return answer


class WebhookSink:
    """Posts CloudEvents: each by itself, or several as a batch."""

    def __init__(self, target: HttpTarget, *, batch: int = 1, validate: bool = False) -> None:
        """Post nothing yet; `validate` asks the far side whether it wants events."""
        self.batch_max = batch
        self._target = target
        self._validate = validate

    async def open(self) -> None:
        """Ask for permission, as CloudEvents' protection against abuse has it."""
        if not self._validate:
            return
        answer = await self._target.send("OPTIONS", {"webhook-request-origin": "forewarn"}, b"")
        if answer.headers.get("webhook-allowed-origin", "") not in {"*", "forewarn"}:
            problem = "does not allow events from forewarn (WebHook-Allowed-Origin)"
            raise DeliveryFailed(name=self._target.name, problem=problem)

    async def send(self, events: Sequence[CloudEvent]) -> None:
        """Post events."""
        batch = self.batch_max > 1
        media = BATCH_MEDIA if batch else MEDIA
        headers = {"content-type": f"{media}; charset=utf-8"}
        await self._target.send("POST", headers, body_of(events, batch=batch))

    async def close(self) -> None:
        """Keep nothing open."""


class EventGridSink:
    """Posts Scheduled Events in Event Grid's schema, as Azure Resource Notifications emit them.

    Only transitions of events are sent: that is what its consumers know.
    """

    def __init__(self, target: HttpTarget, *, topic: str, batch: int, validate: bool) -> None:
        """Post nothing yet."""
        self.batch_max = batch
        self._target = target
        self._topic = topic
        self._validate = validate

    async def open(self) -> None:
        """Have the far side prove that it wants events, by echoing a code."""
        if not self._validate:
            return
        code = Ids().token("validation")
        event = self._envelope("validation", GRID_VALIDATION, "", time="")
        event["data"] = {"validationCode": code}
        headers = self._headers("SubscriptionValidation")
        answer = await self._target.send("POST", headers, json.dumps([event]).encode())
        try:
            echoed = json.loads(answer.body)["validationResponse"]
        except (ValueError, KeyError, TypeError):
            echoed = ""
        if echoed != code:
            problem = "did not echo the code of Event Grid's validation"
            raise DeliveryFailed(name=self._target.name, problem=problem)

    async def send(self, events: Sequence[CloudEvent]) -> None:
        """Post the events of some transitions as one list; nothing where there are none."""
        told = [each for event in events for each in self._told(event)]
        if told:
            body = json.dumps(told, ensure_ascii=False).encode()
            await self._target.send("POST", self._headers("Notification"), body)

    async def close(self) -> None:
        """Keep nothing open."""

    def _headers(self, kind: str) -> dict[str, str]:
        return {"content-type": "application/json; charset=utf-8", "aeg-event-type": kind}

    def _told(self, event: CloudEvent) -> list[dict[str, object]]:
        data = event["data"]
        operation, events = data.get("operation"), data.get("events", ())
        if not operation:
            return []
        found = []
        for each in events:
            resource = f"{self._topic}/providers/Microsoft.Maintenance/scheduledevents/{each['id']}"
            told = self._envelope(
                f"{event['id']}-{each['id']}", GRID_TYPE, resource, time=event["time"]
            )
            told["data"] = {
                "resourceInfo": {
                    "id": resource,
                    "name": each["id"],
                    "type": "Microsoft.Maintenance/scheduledEvents",
                    "properties": {
                        "eventId": each["id"],
                        "eventStatus": GRID_STATUS[each["state"]],
                        "eventType": operation["impact"],
                        "eventSource": operation["source"],
                        "resourceType": "VirtualMachine",
                        "resources": each["resources"],
                        "notBefore": operation["not_before"] or "",
                        "description": operation["description"],
                        "durationInSeconds": operation["duration_s"],
                    },
                },
                "operationalInfo": {"resourceEventTime": event["time"]},
                "apiVersion": "2020-07-01",
            }
            found.append(told)
        return found

    def _envelope(self, event_id: str, kind: str, subject: str, *, time: str) -> dict[str, object]:
        return {
            "id": event_id,
            "topic": self._topic,
            "subject": subject,
            "eventType": kind,
            "eventTime": time,
            "dataVersion": "1",
            "metadataVersion": "1",
        }
