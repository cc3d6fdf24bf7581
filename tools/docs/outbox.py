"""The reference of the outbox's destinations, from the forms that read them."""

from __future__ import annotations

import json

from forewarn_base.validation.fields import Boolean, Integer, Number, ValueType
from forewarn_base.validation.forms import Field, ListOf, form_of
from forewarn_server.outbox.delivery import DeliveryState
from forewarn_server.outbox.destinations import SINKS
from forewarn_server.outbox.sink import DestinationOptions, SinkKind
from forewarn_sinks.apprise_sink import INCLUDE
from tools.docs.reference import page, table

_EXAMPLE = {
    "specversion": "1.0",
    "id": "000000000014",
    "source": "/forewarn/EPOCH",
    "time": "2027-01-15T08:00:00Z",
    "datacontenttype": "application/json",
    "sequence": "000000000014",
    "type": "forewarn.event.approved",
    "subject": "45CB45B4-E537-4DAC-88C3-0BB25AF82E18",
    "data": {
        "sequence": 14,
        "action": "event.approved",
        "actor": "vm db-0 at 10.0.0.4",
        "text": "event 45CB45B4-E537-4DAC-88C3-0BB25AF82E18 is approved for db",
        "group": "db",
        "vm": "",
        "host": "",
        "operation": {
            "id": "op-1",
            "cause": "host-reboot",
            "impact": "Reboot",
            "source": "Platform",
            "state": "announced",
            "host": "h1",
            "vms": ["db-0", "web-0"],
            "description": "Host server is undergoing maintenance.",
            "duration_s": -1,
            "notice_s": 900,
            "not_before": "2027-01-15T08:15:01Z",
            "maintenance": None,
            "reason": "",
        },
        "events": [
            {
                "id": "45CB45B4-E537-4DAC-88C3-0BB25AF82E18",
                "group": "db",
                "resources": ["db-0"],
                "state": "approved",
                "outcome": None,
                "published": "2020-07-01",
            }
        ],
    },
}
_STATES = {
    DeliveryState.DELIVERING: "All events have been delivered, or are being delivered.",
    DeliveryState.RETRYING: "The last delivery failed; the outbox tries again after a pause.",
    DeliveryState.DEAD: "Delivery has failed for an hour; the outbox keeps trying.",
    DeliveryState.STOPPED: "Another process writes the store and delivers.",
}


def outbox_page() -> str:
    """Return the page of destinations."""
    common = form_of(DestinationOptions).fields
    extensions = {name: SINKS.find(name) for name in (*SINKS.built_in, *SINKS.packages)}
    kinds: dict[str, SinkKind] = {name: each.load() for name, each in extensions.items() if each}
    forms = {name: form_of(kind.options) for name, kind in kinds.items()}
    lines = [
        "Each table `[outbox.NAME]` of the settings is a destination of transitions.",
        "See also [deliver transitions to other systems](../howto/deliver-transitions.md).",
        "Only settings files may hold these tables, not the environment.",
        "",
        "## Every destination",
        "",
        *table(("option", "type", "meaning"), map(_row, common)),
    ]
    for kind, form in forms.items():
        lines += ["", f"## `{kind}`", "", form.meaning, ""]
        told = forms["webhook"].fields if kind == "event-grid" else common
        if kind == "event-grid":
            lines += ["It takes the options of `webhook`, and these:", ""]
        own = [each for each in form.fields if each not in told]
        lines += table(("option", "type", "meaning"), map(_row, own))
        if kind == "apprise":
            lines += ["", f"`include` is by default: {', '.join(f'`{each}`' for each in INCLUDE)}."]
    lines += ["", "## States", ""]
    states = [(f"`{state.value}`", _STATES[state]) for state in DeliveryState]
    lines += table(("state", "meaning"), states)
    lines += [
        "",
        "## An event",
        "",
        "`type` is `forewarn.` and an [action](api.md#actions).",
        "If the entry is about an operation, `operation` shows the operation after the entry, and",
        "`events` shows the events that the entry changed, with the `outcome` of ended ones.",
        "",
        "```json",
        json.dumps(_EXAMPLE, indent=2),
        "```",
    ]
    return page("Outbox", *lines)


def _row(each: Field) -> tuple[str, ...]:
    name = f"`{each.name}`" + (" (required)" if each.required else "")
    return name, _kind(each.kind), each.meaning


def _kind(kind: ValueType) -> str:
    if isinstance(kind, ListOf):
        return f"list of {_kind(kind.kind)}"
    return {Boolean: "boolean", Integer: "integer", Number: "number"}.get(type(kind), "text")
