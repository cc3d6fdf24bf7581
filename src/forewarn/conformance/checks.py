"""The checks of a server, each for one statement of the contract; how they are run is in `run.py`.

A check raises `Fault` with what is wrong, or `NotApplicable` where the server shows nothing that
could be checked. No check approves an event or changes anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from forewarn.conformance.exchange import EVENTS, VERSION
from forewarn.protocol.approvals import APPROVALS_MAX
from forewarn.protocol.versions import FIELD_SINCE, TYPE_SINCE, VERSIONS
from forewarn.values import value

if TYPE_CHECKING:
    from forewarn.conformance.exchange import Reply, Target

FIELDS = (
    *("EventId", "EventStatus", "EventType", "ResourceType", "Resources", "NotBefore"),
    *("Description", "EventSource", "DurationInSeconds"),
)
"""The fields of an event, in their order. Source: D-10."""
GUID = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
NOBODYS = "00000000-0000-4000-8000-000000000000"


class Fault(Exception):
    """What a server does otherwise than the contract says."""


class NotApplicable(Exception):
    """Nothing is there that could be checked."""


Subject = TypeVar("Subject")


@value
class Check(Generic[Subject]):
    """One check of a kind of subject."""

    statement: str
    title: str
    run: Callable[[Subject], None]


CHECKS: list[Check[Target]] = []


def check(statement: str, title: str) -> Callable[[Callable[[Target], None]], None]:
    """Register a check of a statement."""

    def register(run: Callable[[Target], None]) -> None:
        CHECKS.append(Check(statement, title, run))

    return register


def _demand(holds: object, fault: str) -> None:
    if not holds:
        raise Fault(fault)


def _status(reply: Reply, *wanted: int, of: str) -> None:
    names = " or ".join(map(str, wanted))
    _demand(reply.status in wanted, f"{of} is answered {reply.status}, not {names}")


def _json(reply: Reply, of: str) -> dict[str, Any]:
    try:
        form = json.loads(reply.body)
    except ValueError as error:
        raise Fault(f"{of} is answered with a body that is not JSON") from error
    _demand(isinstance(form, dict), f"{of} is answered with JSON that is not an object")
    found: dict[str, Any] = form
    return found


def _document(target: Target, version: str = VERSION) -> dict[str, Any]:
    reply = target.get(query=f"api-version={version}")
    _status(reply, 200, of=f"GET with api-version {version}")
    return _json(reply, f"GET with api-version {version}")


def _events(target: Target, version: str = VERSION) -> list[dict[str, Any]]:
    events = _document(target, version).get("Events")
    _demand(isinstance(events, list), "Events is not a list")
    assert isinstance(events, list)
    if not events:
        raise NotApplicable("no event is scheduled")
    return events


# --- endpoint and transport ------------------------------------------------------------------


@check("E-1", "GET shows a document")
def _get_works(target: Target) -> None:
    form = _document(target)
    _demand(set(form) == {"DocumentIncarnation", "Events"}, f"the document has {sorted(form)}")


@check("E-2", "the Metadata header is required, in any case of its value")
def _header(target: Target) -> None:
    reply = target.get(headers=())
    _status(reply, 400, of="GET without the Metadata header")
    _demand("error" in _json(reply, "GET without the header"), "the refusal has no `error`")
    _status(target.get(headers=("Metadata: False",)), 400, of="GET with Metadata: False")
    for word in ("True", "TRUE"):
        _status(target.get(headers=(f"metadata: {word}",)), 200, of=f"GET with metadata: {word}")


@check("E-3", "api-version is required and must be known")
def _version(target: Target) -> None:
    for query in (None, "api-version=", "api-version=1999-01-01", "api-version=latest"):
        of = f"GET with {query or 'no api-version'}"
        reply = target.get(query=query)
        _status(reply, *((400, 404) if query and query[-1].isdigit() else (400,)), of=of)
        if reply.status == 400:
            newest = _json(reply, of).get("newest-versions")
            _demand(
                isinstance(newest, list) and len(newest) == 3, f"{of}: no three newest-versions"
            )
            assert isinstance(newest, list)
            _demand(newest == sorted(newest, reverse=True), f"{of}: newest-versions not in order")
    twice = f"api-version={VERSION}&api-version={VERSION}"
    _status(target.get(query=twice), 400, of="GET with api-version twice")


@check("E-4", "a request that came through a proxy is refused")
def _proxy(target: Target) -> None:
    headers = ("Metadata: true", "X-Forwarded-For: 203.0.113.7")
    _status(target.get(headers=headers), 400, of="GET with X-Forwarded-For")


@check("E-5", "other methods are 405 with Allow, unknown paths 404")
def _methods(target: Target) -> None:
    for method in ("PUT", "DELETE"):
        headers = ("Metadata: true", "Content-Length: 0")
        reply = target.get(method=method, headers=headers)
        _status(reply, 405, of=method)
        _demand("GET" in reply.headers.get("allow", ""), f"{method} is refused without Allow: GET")
    _status(target.get("/metadata/nothing-of-the-kind"), 404, of="an unknown path")


@check("E-7", "an answer is one compact line of JSON with a length")
def _form(target: Target) -> None:
    reply = target.get(headers=("Metadata: true", "Accept-Encoding: gzip, br"))
    kind = reply.headers.get("content-type", "").lower().replace(" ", "")
    _demand(kind == "application/json;charset=utf-8", f"Content-Type is {kind or 'missing'}")
    _demand("transfer-encoding" not in reply.headers, "the answer is chunked")
    _demand("content-encoding" not in reply.headers, "the answer is compressed")
    length = reply.headers.get("content-length")
    _demand(length == str(len(reply.body)), f"Content-Length is {length}, of {len(reply.body)}")
    for name in ("date", "server"):
        _demand(name in reply.headers, f"{name.title()} is missing")
    _demand(b"\n" not in reply.body and b'": ' not in reply.body, "the JSON is not compact")


@check("E-7", "Connection: close is honoured and echoed")
def _close(target: Target) -> None:
    reply = target.get(headers=("Metadata: true", "Connection: close"))
    _demand(reply.headers.get("connection", "").lower() == "close", "close is not echoed")
    _demand(target.closes(asked=True), "the connection stays open after Connection: close")
    _demand(not target.closes(asked=False), "the connection is closed although nobody asked for it")


@check("E-8", "the path is matched without case, HEAD has no body")
def _path(target: Target) -> None:
    _status(target.get("/Metadata/ScheduledEvents"), 200, of="GET /Metadata/ScheduledEvents")
    reply = target.get(method="HEAD")
    _status(reply, 200, of="HEAD")
    _demand(reply.headers.get("content-length", "0") != "0", "HEAD has no Content-Length of GET")


@check("E-8", "a malformed request is 4xx, never 5xx")
def _malformed(target: Target) -> None:
    head = f"GET {EVENTS}?api-version={VERSION} HTTP/1.1\r\nHost: x\r\n"
    for name, text in {
        "a header without a colon": f"{head}Metadata true\r\n\r\n",
        "a request line of one word": "GET\r\n\r\n",
        "a negative Content-Length": f"{head}Metadata: true\r\nContent-Length: -1\r\n\r\n",
    }.items():
        try:
            status = target.raw(text.encode()).status
        except (OSError, ValueError, IndexError):
            continue  # cut off without an answer
        _demand(400 <= status < 500, f"{name} is answered {status}")


# --- versions --------------------------------------------------------------------------------


@check("V-1", "every api-version is served, with one incarnation")
def _versions(target: Target) -> None:
    found = {version: _document(target, version)["DocumentIncarnation"] for version in VERSIONS}
    _demand(len(set(found.values())) == 1, f"incarnations differ: {found}")


@check("V-1", "an older version shows the fields and types it knows")
def _older(target: Target) -> None:
    _events(target)
    for version in VERSIONS:
        known = [name for name in FIELDS if FIELD_SINCE.get(name, "") <= version]
        for event in _document(target, version)["Events"]:
            kind = event.get("EventType")
            since = TYPE_SINCE.get(str(kind), "~")
            _demand(since <= version, f"{version} shows the type {kind}")
            _demand(list(event) == known, f"{version} shows the fields {list(event)}")


@check("V-3", "an event has one EventId in every version")
def _one_id(target: Target) -> None:
    newest = {event["EventId"] for event in _events(target)}
    for version in VERSIONS:
        ids = {event["EventId"] for event in _document(target, version)["Events"]}
        _demand(ids <= newest, f"{version} shows other ids: {sorted(ids - newest)}")


@check("V-5", "the preview form of 2016 is gone")
def _preview(target: Target) -> None:
    _status(
        target.get("/metadata/latest/scheduledevents", query=None), 404, 400, of="the 2016 path"
    )


# --- document and event ----------------------------------------------------------------------


@check("D-1", "the incarnation is an integer, and the same while nothing changes")
def _incarnation(target: Target) -> None:
    first, second = (target.get() for _ in range(2))
    form = _json(first, "GET")
    number = form.get("DocumentIncarnation")
    _demand(isinstance(number, int) and not isinstance(number, bool), f"it is {number!r}")
    again = _json(second, "GET")
    if again.get("Events") == form.get("Events"):
        _demand(again["DocumentIncarnation"] == number, "it moves although no event does")
        _demand(first.body == second.body, "the bytes differ although nothing has changed")


@check("D-3", "event ids are GUIDs")
def _ids(target: Target) -> None:
    for event in _events(target):
        _demand(GUID.fullmatch(str(event.get("EventId"))), f"EventId is {event.get('EventId')!r}")


@check("D-4", "events have documented types and states, and name VMs")
def _values(target: Target) -> None:
    for event in _events(target):
        kind, state = event.get("EventType"), event.get("EventStatus")
        _demand(kind in TYPE_SINCE, f"EventType is {kind!r}")
        _demand(state in ("Scheduled", "Started"), f"EventStatus is {state!r}")
        _demand(event.get("ResourceType") == "VirtualMachine", "ResourceType is another")
        names = event.get("Resources")
        _demand(isinstance(names, list) and names, f"Resources is {names!r}")
        _demand(event.get("EventSource") in ("Platform", "User"), "EventSource is another")
        _demand(
            isinstance(event.get("DurationInSeconds"), int), "DurationInSeconds is not an integer"
        )


@check("D-7", "NotBefore is RFC 1123 in GMT, and empty once started")
def _not_before(target: Target) -> None:
    for event in _events(target):
        text = event.get("NotBefore")
        if event.get("EventStatus") == "Started":
            _demand(text == "", f"a started event has the NotBefore {text!r}")
            continue
        try:
            parsedate_to_datetime(str(text))
        except ValueError as error:
            raise Fault(f"NotBefore is {text!r}") from error
        _demand(str(text).endswith(" GMT"), f"NotBefore is {text!r}")


@check("D-10", "every event has every field, in the documented order")
def _order(target: Target) -> None:
    for event in _events(target):
        _demand(tuple(event) == FIELDS, f"an event has the fields {list(event)}")


# --- approval --------------------------------------------------------------------------------


@check("A-2", "a malformed approval is 400")
def _malformed_approval(target: Target) -> None:
    for body in (
        *(b"", b"{", b"[]", b"{}", b'{"StartRequests":{}}', b'{"StartRequests":[]}'),
        *(b'{"StartRequests":[{}]}', b'{"StartRequests":[{"EventId":7}]}'),
    ):
        _status(target.post(body), 400, of=f"POST {body.decode()!r}")
    body = _approval(NOBODYS)
    _status(target.post(body, headers=()), 400, of="POST without the Metadata header")


@check("A-3", "an approval of an unknown event is refused")
def _unknown(target: Target) -> None:
    reply = target.post(_approval(NOBODYS))
    _demand(400 <= reply.status < 500, f"it is answered {reply.status}")


@check("A-5", "too large an approval is refused")
def _too_large(target: Target) -> None:
    body = _approval(*[NOBODYS[:-3] + f"{number:03}" for number in range(APPROVALS_MAX + 1)])
    _status(target.post(body), 413, 400, of=f"POST of {APPROVALS_MAX + 1} requests")


# --- instance metadata -----------------------------------------------------------------------


@check("I-1", "instance metadata names the VM")
def _instance(target: Target) -> None:
    reply = target.get("/metadata/instance", query="api-version=2021-02-01")
    if reply.status == 404:
        raise NotApplicable("the server has no instance metadata")
    _status(reply, 200, of="GET /metadata/instance")
    form = _json(reply, "GET /metadata/instance")
    _demand({"compute", "network"} <= set(form), f"it has {sorted(form)}")
    _demand(form["compute"].get("name"), "compute has no name")


@check("I-3", "versions are listed without an api-version")
def _listed(target: Target) -> None:
    reply = target.get("/metadata/versions", query=None)
    if reply.status == 404:
        raise NotApplicable("the server lists no versions")
    versions = _json(reply, "GET /metadata/versions").get("apiVersions")
    _demand(isinstance(versions, list) and versions == sorted(versions), f"it has {versions!r}")


def _approval(*event_ids: str) -> bytes:
    return json.dumps({"StartRequests": [{"EventId": each} for each in event_ids]}).encode()
