"""Mail and chat through Apprise, imported for the first message.

Each message describes one transition as text for people. The settings filter the transitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from forewarn_base.untrusted_text import without_markup
from forewarn_base.validation.fields import Text
from forewarn_base.validation.forms import ListOf
from forewarn_server.outbox.cloudevents import CloudEvent
from forewarn_server.outbox.sink import (
    DeliveryFailed,
    DestinationOptions,
    IncludeOption,
    SinkKind,
    TimeoutOption,
    blocking,
    secret_in,
)

#: Actions sent by default: disturbances of VMs, and alerts.
INCLUDE = (
    "operation.announced",
    "operation.started",
    "operation.succeeded",
    "operation.failed",
    "operation.cancelled",
    "operation.blocked",
    "operation.stuck",
    "operation.overdue",
    "operation.abort-failed",
    "operation.not-shown",
    "maintenance.started",
    "maintenance.stopped",
    "maintenance.done",
    "maintenance.cancelled",
    "host.failed",
)
#: Actions sent with Apprise's type for failures.
FAILURES = frozenset({"operation.failed", "operation.stuck", "maintenance.stopped", "host.failed"})
WARNINGS = frozenset(
    {
        "operation.blocked",
        "operation.overdue",
        "operation.abort-failed",
        "operation.not-shown",
    }
)
#: Most VM names in one message; the message gives the number of the others.
VMS_NAMED_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class AppriseOptions(DestinationOptions):
    """Messages for people, by mail or chat."""

    include: IncludeOption = INCLUDE
    timeout_s: TimeoutOption = 30.0
    urls: Annotated[tuple[str, ...], ListOf(Text(2048), 50), "Apprise URLs."] = ()
    urls_file: Annotated[str, Text(4096), "File with one Apprise URL per line."] = ""


class AppriseSink:
    """Sends messages to every address of a destination."""

    batch_max = 1

    def __init__(self, name: str, urls: Sequence[str], *, timeout_s: float) -> None:
        self._name = name
        self._urls = urls
        self._timeout_s = timeout_s

    async def open(self) -> None:
        """Do nothing, because Apprise opens connections when sending."""

    async def send(self, events: Sequence[CloudEvent]) -> None:
        """Send a message for each event."""
        for event in events:
            title, body = message(event)
            sending = blocking(partial(self._notify, title, body, _kind(event)))
            try:
                async with asyncio.timeout(self._timeout_s):
                    sent = await sending
            except TimeoutError as error:
                problem = f"took longer than {self._timeout_s:g} s"
                raise DeliveryFailed(name=self._name, problem=problem) from error
            if not sent:
                problem = "did not accept a message at one of its addresses"
                raise DeliveryFailed(name=self._name, problem=problem)

    async def close(self) -> None:
        """Do nothing, because Apprise opens connections when sending."""

    def _notify(self, title: str, body: str, kind: str) -> bool:
        import apprise  # noqa: PLC0415 - an extra

        notifier = apprise.Apprise()
        for url in self._urls:
            if not notifier.add(url):
                return False
        return bool(
            notifier.notify(
                body=body,
                title=title,
                notify_type=apprise.NotifyType(kind),
                body_format=apprise.NotifyFormat.TEXT,
            )
        )


def create(name: str, options: AppriseOptions) -> AppriseSink:
    """Return the sink of a destination."""
    urls = [*options.urls, *secret_in(options.urls_file).split()]
    if not urls:
        raise ValueError("must have urls or urls_file")
    return AppriseSink(name, urls, timeout_s=options.timeout_s)


KIND = SinkKind(options=AppriseOptions, create=create, module="apprise", extra="notify")


def message(event: CloudEvent) -> tuple[str, str]:
    """Return the title and text of a transition, for people, without mark-up. Source: F-5."""
    data = event["data"]
    operation = data.get("operation")
    lines = [f"{data['text']}."]
    if operation:
        vms = operation["vms"]
        named = ", ".join(vms[:VMS_NAMED_MAX])
        more = len(vms) - VMS_NAMED_MAX
        lines.append(f"{operation['impact']} of {operation['host']} ({operation['cause']})")
        if vms:
            lines.append(f"VMs: {named}{f' and {more} more' if more > 0 else ''}")
        if operation["not_before"] and operation["state"] in {"planned", "announced"}:
            lines.append(f"Not before: {operation['not_before']}")
        if operation["reason"]:
            lines.append(f"Reason: {operation['reason']}")
    lines.append(f"By {data.get('actor', 'service')} at {event['time']}")
    return without_markup(f"Forewarn: {data['text']}"), without_markup("\n".join(lines))


def _kind(event: CloudEvent) -> str:
    action = event["data"]["action"]
    if action in FAILURES:
        return "failure"
    if action in WARNINGS:
        return "warning"
    return "success" if action.endswith((".succeeded", ".done")) else "info"
