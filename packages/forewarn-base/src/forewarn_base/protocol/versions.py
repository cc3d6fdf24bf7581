"""The path and api-versions of Scheduled Events, and the types and fields of each version."""

from __future__ import annotations

#: Path at which a VM reads and approves its events. Source: E-1.
EVENTS_PATH = "/metadata/scheduledevents"

#: Longest documented delay of a first answer, in seconds. Source: B-1, C-1.
HOLD_S_MAX = 120

#: The ResourceType of every event.
RESOURCE_TYPE = "VirtualMachine"

#: The api-versions of Scheduled Events, ascending. Source: V-1.
VERSIONS = (
    "2017-03-01",
    "2017-08-01",
    "2017-11-01",
    "2019-01-01",
    "2019-04-01",
    "2019-08-01",
    "2020-07-01",
)

#: The preview version with the advisory type; served only if enabled. Source: V-4.
PREVIEW_VERSION = "2024-07-09"

#: EventStatus of an event that only recommends, beside Scheduled and Started. Source: V-4.
ADVISORY_STATUS = "Advisory"

#: The only version whose resource names have a leading underscore.
UNDERSCORE_VERSION = VERSIONS[0]

#: Event type -> first api-version that has the type.
TYPE_SINCE = {
    "Freeze": "2017-03-01",
    "Reboot": "2017-03-01",
    "Redeploy": "2017-03-01",
    "Preempt": "2017-11-01",
    "Terminate": "2019-01-01",
    "SpotRebalanceRecommendation": PREVIEW_VERSION,
}

#: Field -> first api-version that has the field; every version has all other fields.
FIELD_SINCE = {
    "Description": "2019-04-01",
    "EventSource": "2019-08-01",
    "DurationInSeconds": "2020-07-01",
}


def known_in(version: str, fields: dict[str, object]) -> dict[str, object]:
    """Return the fields of an event that an api-version has."""
    return {name: each for name, each in fields.items() if FIELD_SINCE.get(name, "") <= version}
