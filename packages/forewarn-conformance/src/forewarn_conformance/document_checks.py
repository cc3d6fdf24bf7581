"""Checks of documents and events in every api-version, of instance metadata, and of approvals.

`event_checks.py` contains the checks that create events.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime

from forewarn_base.protocol.approvals import APPROVALS_MAX
from forewarn_base.protocol.versions import (
    FIELD_SINCE,
    RESOURCE_TYPE,
    TYPE_SINCE,
    UNDERSCORE_VERSION,
    VERSIONS,
)
from forewarn_conformance.checks import (
    FIELDS,
    GUID,
    NOBODYS,
    ConformanceFault,
    NotApplicable,
    approval_of,
    check,
    demand,
    document_of,
    events_of,
    expect_status,
    json_object,
)
from forewarn_conformance.exchange import ServiceUnderTest

# --- versions -------------------------------------------------------------------------------------


@check("V-1", "every api-version is served, with one incarnation")
def _versions(target: ServiceUnderTest) -> None:
    incarnations = {
        version: document_of(target, version)["DocumentIncarnation"] for version in VERSIONS
    }
    demand(len(set(incarnations.values())) == 1, f"incarnations differ: {incarnations}")


@check("V-1", "an older version shows only its own fields and types")
def _older(target: ServiceUnderTest) -> None:
    events_of(target)
    for version in VERSIONS:
        known = [name for name in FIELDS if FIELD_SINCE.get(name, "") <= version]
        for event in document_of(target, version)["Events"]:
            kind = event.get("EventType")
            since = TYPE_SINCE.get(str(kind), "~")
            demand(since <= version, f"{version} shows the type {kind}")
            demand(list(event) == known, f"{version} shows the fields {list(event)}")


@check("V-1", "resource names have a leading underscore only in 2017-03-01")
def _underscore(target: ServiceUnderTest) -> None:
    plain = {name for event in events_of(target) for name in event["Resources"]}
    first = {
        name
        for event in document_of(target, UNDERSCORE_VERSION)["Events"]
        for name in event["Resources"]
    }
    demand(first <= {f"_{name}" for name in plain}, f"{UNDERSCORE_VERSION} names {sorted(first)}")
    second = {
        name for event in document_of(target, VERSIONS[1])["Events"] for name in event["Resources"]
    }
    demand(second <= plain, f"{VERSIONS[1]} names {sorted(second - plain)}")


@check("V-3", "an event has the same EventId in every version")
def _one_id(target: ServiceUnderTest) -> None:
    newest = {event["EventId"] for event in events_of(target)}
    for version in VERSIONS:
        ids = {event["EventId"] for event in document_of(target, version)["Events"]}
        demand(ids <= newest, f"{version} shows different ids: {sorted(ids - newest)}")


@check("V-5", "the preview api-version of 2016 is refused")
def _preview(target: ServiceUnderTest) -> None:
    expect_status(
        target.get("/metadata/latest/scheduledevents", query=None), 404, 400, of="the 2016 path"
    )


# --- document and event ---------------------------------------------------------------------------


@check("D-1", "the incarnation is an integer, and unchanged while nothing changes")
def _incarnation(target: ServiceUnderTest) -> None:
    first, second = (target.get() for _ in range(2))
    form = json_object(first, "GET")
    number = form.get("DocumentIncarnation")
    demand(isinstance(number, int) and not isinstance(number, bool), f"incarnation: {number!r}")
    again = json_object(second, "GET")
    if again.get("Events") == form.get("Events"):
        demand(again["DocumentIncarnation"] == number, "the incarnation grows without a change")
        demand(first.body == second.body, "the bytes differ although nothing has changed")


@check("D-3", "event ids are GUIDs")
def _ids(target: ServiceUnderTest) -> None:
    for event in events_of(target):
        demand(GUID.fullmatch(str(event.get("EventId"))), f"EventId is {event.get('EventId')!r}")


@check("D-2", "Events is a list, empty if nothing is scheduled")
def _list(target: ServiceUnderTest) -> None:
    events = document_of(target).get("Events")
    demand(isinstance(events, list), f"Events is {events!r}")


@check("D-3", "event ids are unique")
def _distinct(target: ServiceUnderTest) -> None:
    ids = [str(event.get("EventId")).upper() for event in events_of(target)]
    demand(len(set(ids)) == len(ids), f"the ids are {sorted(ids)}")


@check("D-4", "events have documented types and states, and name VMs")
def _values(target: ServiceUnderTest) -> None:
    for event in events_of(target):
        kind, state = event.get("EventType"), event.get("EventStatus")
        demand(kind in TYPE_SINCE, f"EventType is {kind!r}")
        demand(state in ("Scheduled", "Started"), f"EventStatus is {state!r}")
        demand(event.get("ResourceType") == RESOURCE_TYPE, "ResourceType is wrong")
        names = event.get("Resources")
        demand(isinstance(names, list) and names, f"Resources is {names!r}")
        assert isinstance(names, list)
        strings = all(isinstance(name, str) and name for name in names)
        demand(strings and len({*names}) == len(names), f"Resources is {names!r}")


@check("D-8", "Description is text, EventSource Platform or User")
def _words(target: ServiceUnderTest) -> None:
    for event in events_of(target):
        description, source = event.get("Description"), event.get("EventSource")
        demand(isinstance(description, str), f"Description is {description!r}")
        demand(source in ("Platform", "User"), f"EventSource is {source!r}")


@check("D-9", "DurationInSeconds is an integer, -1 if unknown")
def _duration(target: ServiceUnderTest) -> None:
    for event in events_of(target):
        duration_s = event.get("DurationInSeconds")
        demand(
            isinstance(duration_s, int) and not isinstance(duration_s, bool) and duration_s >= -1,
            f"DurationInSeconds is {duration_s!r}",
        )


@check("D-7", "NotBefore is RFC 1123 in GMT, and empty once started")
def _not_before(target: ServiceUnderTest) -> None:
    for event in events_of(target):
        text = event.get("NotBefore")
        if event.get("EventStatus") == "Started":
            demand(text == "", f"a started event has the NotBefore {text!r}")
            continue
        try:
            parsedate_to_datetime(str(text))
        except ValueError as error:
            raise ConformanceFault(f"NotBefore is {text!r}") from error
        demand(str(text).endswith(" GMT"), f"NotBefore is {text!r}")


@check("D-10", "every event has every field, in the documented order")
def _order(target: ServiceUnderTest) -> None:
    for event in events_of(target):
        demand(tuple(event) == FIELDS, f"an event has the fields {list(event)}")


# --- instance metadata ----------------------------------------------------------------------------


@check("I-1", "instance metadata names the VM")
def _instance(target: ServiceUnderTest) -> None:
    reply = target.get("/metadata/instance", query="api-version=2021-02-01")
    if reply.status == 404:
        raise NotApplicable("the server has no instance metadata")
    expect_status(reply, 200, of="GET /metadata/instance")
    form = json_object(reply, "GET /metadata/instance")
    demand({"compute", "network"} <= set(form), f"the metadata has {sorted(form)}")
    demand(form["compute"].get("name"), "compute has no name")


@check("I-3", "the list of versions needs no api-version")
def _versions_are_listed(target: ServiceUnderTest) -> None:
    reply = target.get("/metadata/versions", query=None)
    if reply.status == 404:
        raise NotApplicable("the server lists no versions")
    versions = json_object(reply, "GET /metadata/versions").get("apiVersions")
    demand(isinstance(versions, list) and versions == sorted(versions), f"the list is {versions!r}")


@check("I-2", "a leaf is answered as text with format=text")
def _leaf(target: ServiceUnderTest) -> None:
    whole = target.get("/metadata/instance", query="api-version=2021-02-01")
    if whole.status == 404:
        raise NotApplicable("the server has no instance metadata")
    name = json_object(whole, "GET /metadata/instance")["compute"]["name"]
    path = "/metadata/instance/compute/name"
    leaf = target.get(path, query="api-version=2021-02-01&format=text")
    expect_status(leaf, 200, of=f"GET {path} with format=text")
    demand(leaf.body.decode("utf-8", "replace") == name, f"{path} is {leaf.body!r}, not {name!r}")


@check("I-4", "all primitives are strings, keys are in order")
def _strings(target: ServiceUnderTest) -> None:
    reply = target.get("/metadata/instance", query="api-version=2021-02-01")
    if reply.status == 404:
        raise NotApplicable("the server has no instance metadata")
    waiting: list[object] = [json_object(reply, "GET /metadata/instance")]
    for each in waiting:  # the loop appends further members
        if isinstance(each, dict):
            demand(list(each) == sorted(each, key=str.lower), f"the keys are {list(each)}")
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
        else:
            demand(isinstance(each, str), f"{each!r} is not a string")


@check("A-2", "a malformed approval is answered 400")
def _malformed_approval(target: ServiceUnderTest) -> None:
    for body in (
        *(b"", b"{", b"[]", b"{}", b'{"StartRequests":{}}', b'{"StartRequests":[]}'),
        *(b'{"StartRequests":[{}]}', b'{"StartRequests":[{"EventId":7}]}'),
    ):
        expect_status(target.post(body), 400, of=f"POST {body.decode()!r}")
    body = approval_of(NOBODYS)
    expect_status(target.post(body, headers=()), 400, of="POST without the Metadata header")


@check("A-3", "an approval of an unknown event is refused")
def _unknown(target: ServiceUnderTest) -> None:
    reply = target.post(approval_of(NOBODYS))
    demand(400 <= reply.status < 500, f"the answer has status {reply.status}")


@check("A-5", "an approval that is too large is refused")
def _too_large(target: ServiceUnderTest) -> None:
    body = approval_of(*[NOBODYS[:-3] + f"{number:03}" for number in range(APPROVALS_MAX + 1)])
    expect_status(target.post(body), 413, 400, of=f"POST of {APPROVALS_MAX + 1} requests")
