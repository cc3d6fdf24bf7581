"""A second reader of documents, driven by one table, that shares nothing with the product.

It reads what a server of the public cloud would send, and refuses everything else. Times are read
by the standard library's reader of mail; the table is that of V-1.
"""

import json
import re
from dataclasses import dataclass
from email.utils import format_datetime, parsedate_to_datetime

VERSIONS = (
    *("2017-03-01", "2017-08-01", "2017-11-01", "2019-01-01", "2019-04-01", "2019-08-01"),
    "2020-07-01",
)
GUID = r"[0-9A-F]{8}-[0-9A-F]{4}-[0-9A-F]{4}-[0-9A-F]{4}-[0-9A-F]{12}"
KINDS = {
    "2017-03-01": ("Freeze", "Reboot", "Redeploy"),
    "2017-11-01": ("Preempt",),
    "2019-01-01": ("Terminate",),
}


@dataclass(frozen=True)
class Column:
    """One field: where it begins, and what its value must look like as JSON."""

    name: str
    since: str
    looks: str


TABLE = (
    Column("EventId", VERSIONS[0], rf'"{GUID}"'),
    Column("EventStatus", VERSIONS[0], '"(Scheduled|Started)"'),
    Column("EventType", VERSIONS[0], '"[A-Z][a-z]+"'),
    Column("ResourceType", VERSIONS[0], '"VirtualMachine"'),
    Column("Resources", VERSIONS[0], r'\[("[ -~]*"(, "[ -~]*")*)?\]'),
    Column("NotBefore", VERSIONS[0], r'"([A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} [\d:]{8} GMT)?"'),
    Column("Description", "2019-04-01", '"[ -~]*"'),
    Column("EventSource", "2019-08-01", '"(Platform|User)"'),
    Column("DurationInSeconds", "2020-07-01", r"-1|0|[1-9]\d*"),
)


class NotADocument(Exception):
    """What was read is none, and why."""


def read(octets: bytes, version: str) -> tuple[int, list[dict[str, object]]]:
    """Return incarnation and events of a document, or raise `NotADocument`."""
    try:
        whole = json.loads(octets.decode("ascii"), object_pairs_hook=_in_order)
    except ValueError as error:
        raise NotADocument(str(error)) from error
    if not isinstance(whole, dict) or list(whole) != ["DocumentIncarnation", "Events"]:
        raise NotADocument("it has not exactly its two fields")
    incarnation, events = whole["DocumentIncarnation"], whole["Events"]
    if not re.fullmatch(r"0|[1-9]\d*", json.dumps(incarnation)) or not isinstance(events, list):
        raise NotADocument("the incarnation must be a number and the events a list")
    for event in events:
        _check(event, version)
    ids = [event["EventId"] for event in events]
    if len(set(ids)) < len(ids):
        raise NotADocument("two events have one id")
    return incarnation, events


def _in_order(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a field is there twice")
    return dict(pairs)


def _check(event: object, version: str) -> None:
    columns = [column for column in TABLE if column.since <= version]
    if not isinstance(event, dict) or list(event) != [column.name for column in columns]:
        raise NotADocument(f"the fields of {version} are other ones, or in another order: {event}")
    for column in columns:
        if not re.fullmatch(column.looks, json.dumps(event[column.name])):
            raise NotADocument(f"{column.name} cannot be {event[column.name]!r}")
    known = [kind for since, kinds in KINDS.items() if since <= version for kind in kinds]
    if event["EventType"] not in known:
        raise NotADocument(f"{version} knows no {event['EventType']}")
    time, started = event["NotBefore"], event["EventStatus"] == "Started"
    if bool(time) == started:
        raise NotADocument("a NotBefore is there until the event has started, and no longer")
    if time and format_datetime(parsedate_to_datetime(time), usegmt=True) != time:
        raise NotADocument(f"there is no such time as {time}")
    marked = [str(name).startswith("_") for name in event["Resources"]]
    if version == VERSIONS[0] and not all(marked):
        raise NotADocument("the first version marks the names of resources")
