"""The definition of a check, and shared functions for checks of servers.

A check raises `ConformanceFault` for a violation, or `NotApplicable` if the check is not possible.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from forewarn_base.values import value
from forewarn_conformance.exchange import VERSION, Reply, ServiceUnderTest

#: The fields of an event, in order. Source: D-10.
FIELDS = (
    *("EventId", "EventStatus", "EventType", "ResourceType", "Resources", "NotBefore"),
    *("Description", "EventSource", "DurationInSeconds"),
)
GUID = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
NOBODYS = "00000000-0000-4000-8000-000000000000"


class ConformanceFault(Exception):
    """A server's violation of the contract."""


class NotApplicable(Exception):
    """The check is not possible with this server."""


Subject = TypeVar("Subject")


@value
class Check(Generic[Subject]):
    """One check of a subject."""

    statement: str
    title: str
    run: Callable[[Subject], None]


class CheckList(list[Check[Subject]]):
    """The checks of one kind of subject, in the order of their definitions."""

    def add(
        self, statement: str, title: str
    ) -> Callable[[Callable[[Subject], None]], Callable[[Subject], None]]:
        """Register a function as the check of a statement."""

        def register(run: Callable[[Subject], None]) -> Callable[[Subject], None]:
            self.append(Check(statement, title, run))
            return run

        return register


CHECKS: CheckList[ServiceUnderTest] = CheckList()
#: Checks that run last, because the server may refuse requests afterwards.
LAST_CHECKS: CheckList[ServiceUnderTest] = CheckList()
check = CHECKS.add


def demand(holds: object, fault: str) -> None:
    """Raise a fault unless a condition is true."""
    if not holds:
        raise ConformanceFault(fault)


def expect_status(reply: Reply, *wanted: int, of: str) -> None:
    """Raise a fault unless the status of an answer is in `statuses`."""
    names = " or ".join(map(str, wanted))
    demand(reply.status in wanted, f"{of} is answered {reply.status}, not {names}")


def json_object(reply: Reply, of: str) -> dict[str, Any]:
    """Return the JSON object of an answer."""
    try:
        form = json.loads(reply.body)
    except ValueError as error:
        raise ConformanceFault(f"{of} is answered with a body that is not JSON") from error
    demand(isinstance(form, dict), f"{of} is answered with JSON that is not an object")
    members: dict[str, Any] = form
    return members


def document_of(target: ServiceUnderTest, version: str = VERSION) -> dict[str, Any]:
    """Read and return the document."""
    reply = target.get(query=f"api-version={version}")
    expect_status(reply, 200, of=f"GET with api-version {version}")
    return json_object(reply, f"GET with api-version {version}")


def events_of(target: ServiceUnderTest) -> list[dict[str, Any]]:
    """Read and return the events; raise `NotApplicable` for an empty list."""
    events = document_of(target).get("Events")
    demand(isinstance(events, list), "Events is not a list")
    assert isinstance(events, list)
    if not events:
        raise NotApplicable("no event is scheduled")
    return events


def approval_of(*event_ids: str) -> bytes:
    """Return the body of an approval for events."""
    return json.dumps({"StartRequests": [{"EventId": each} for each in event_ids]}).encode()
