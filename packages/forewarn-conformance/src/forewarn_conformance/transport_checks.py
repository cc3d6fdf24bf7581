"""Checks of the HTTP transport, without events: headers, statuses and framing.

`run.py` runs these checks.
"""

from __future__ import annotations

from forewarn_base.protocol.versions import EVENTS_PATH
from forewarn_conformance.checks import (
    LAST_CHECKS,
    NotApplicable,
    check,
    demand,
    document_of,
    expect_status,
    json_object,
)
from forewarn_conformance.exchange import VERSION, ServiceUnderTest

#: Number of successive requests that exceeds a usual rate limit. Source: E-6.
FLOOD = 60


@check("E-1", "GET returns a document")
def _get_works(target: ServiceUnderTest) -> None:
    form = document_of(target)
    demand(set(form) == {"DocumentIncarnation", "Events"}, f"the document has {sorted(form)}")


@check("E-2", "the Metadata header is required; case in its value is ignored")
def _header(target: ServiceUnderTest) -> None:
    reply = target.get(headers=())
    expect_status(reply, 400, of="GET without the Metadata header")
    demand("error" in json_object(reply, "GET without the header"), "the refusal has no `error`")
    expect_status(target.get(headers=("Metadata: False",)), 400, of="GET with Metadata: False")
    for word in ("True", "TRUE"):
        expect_status(
            target.get(headers=(f"metadata: {word}",)), 200, of=f"GET with metadata: {word}"
        )


@check("E-3", "api-version is required and must be supported")
def _version(target: ServiceUnderTest) -> None:
    for query in (None, "api-version=", "api-version=1999-01-01", "api-version=latest"):
        of = f"GET with {query or 'no api-version'}"
        reply = target.get(query=query)
        expect_status(reply, *((400, 404) if query and query[-1].isdigit() else (400,)), of=of)
        if reply.status == 400:
            newest = json_object(reply, of).get("newest-versions")
            three = isinstance(newest, list) and len(newest) == 3
            demand(three, f"{of}: newest-versions is not a list of three")
            assert isinstance(newest, list)
            demand(newest == sorted(newest, reverse=True), f"{of}: newest-versions not in order")
    twice = f"api-version={VERSION}&api-version={VERSION}"
    expect_status(target.get(query=twice), 400, of="GET with api-version twice")


@check("E-4", "a request forwarded by a proxy is refused")
def _proxy(target: ServiceUnderTest) -> None:
    headers = ("Metadata: true", "X-Forwarded-For: 203.0.113.7")
    expect_status(target.get(headers=headers), 400, of="GET with X-Forwarded-For")


@check("E-5", "other methods are answered 405 with Allow, unknown paths 404")
def _methods(target: ServiceUnderTest) -> None:
    for method in ("PUT", "DELETE"):
        headers = ("Metadata: true", "Content-Length: 0")
        reply = target.get(method=method, headers=headers)
        expect_status(reply, 405, of=method)
        demand("GET" in reply.headers.get("allow", ""), f"{method} is refused without Allow: GET")
    expect_status(target.get("/metadata/nothing-of-the-kind"), 404, of="an unknown path")


@check("E-7", "an answer is one compact line of JSON with Content-Length")
def _compact_json(target: ServiceUnderTest) -> None:
    reply = target.get(headers=("Metadata: true", "Accept-Encoding: gzip, br"))
    kind = reply.headers.get("content-type", "").lower().replace(" ", "")
    demand(kind == "application/json;charset=utf-8", f"Content-Type is {kind or 'missing'}")
    demand("transfer-encoding" not in reply.headers, "the answer is chunked")
    demand("content-encoding" not in reply.headers, "the answer is compressed")
    length = reply.headers.get("content-length")
    demand(length == str(len(reply.body)), f"Content-Length is {length}, of {len(reply.body)}")
    for name in ("date", "server"):
        demand(name in reply.headers, f"{name.title()} is missing")
    demand(b"\n" not in reply.body and b'": ' not in reply.body, "the JSON is not compact")


@check("E-7", "after Connection: close, the server returns the header and closes the connection")
def _close(target: ServiceUnderTest) -> None:
    reply = target.get(headers=("Metadata: true", "Connection: close"))
    demand(
        reply.headers.get("connection", "").lower() == "close", "the answer lacks Connection: close"
    )
    demand(target.closes(close=True), "the connection stays open after Connection: close")
    demand(
        not target.closes(close=False),
        "the server closes the connection without Connection: close",
    )


@check("E-7", "If-None-Match is answered 304, and ignored on POST")
def _etag(target: ServiceUnderTest) -> None:
    first = target.get()
    tag = first.headers.get("etag")
    if not tag:
        raise NotApplicable("the server sends no ETag")
    again = target.get(headers=("Metadata: true", f"If-None-Match: {tag}"))
    if again.status == 200 and again.body != first.body:
        raise NotApplicable("the document changed meanwhile")
    expect_status(again, 304, of="GET with the current ETag")
    other = target.get(headers=("Metadata: true", 'If-None-Match: "another"'))
    expect_status(other, 200, of="GET with another ETag")
    headers = ("Metadata: true", f"If-None-Match: {tag}")
    expect_status(target.post(b"{}", headers=headers), 400, of="POST {} with If-None-Match")


@check("E-8", "case in the path is ignored, HEAD has no body")
def _path(target: ServiceUnderTest) -> None:
    expect_status(target.get("/Metadata/ScheduledEvents"), 200, of="GET /Metadata/ScheduledEvents")
    reply = target.get(method="HEAD")
    expect_status(reply, 200, of="HEAD")
    demand(
        reply.headers.get("content-length", "0") != "0",
        "HEAD lacks the Content-Length of GET",
    )


@check("E-8", "a malformed request is answered 4xx, never 5xx")
def _malformed(target: ServiceUnderTest) -> None:
    head = f"GET {EVENTS_PATH}?api-version={VERSION} HTTP/1.1\r\nHost: x\r\n"
    for name, text in {
        "a header without a colon": f"{head}Metadata true\r\n\r\n",
        "a request line of one word": "GET\r\n\r\n",
        "a negative Content-Length": f"{head}Metadata: true\r\nContent-Length: -1\r\n\r\n",
    }.items():
        try:
            status = target.raw(text.encode()).status
        except (OSError, ValueError, IndexError):
            continue  # the connection was closed without an answer
        demand(400 <= status < 500, f"{name} is answered {status}")


@LAST_CHECKS.add("E-6", "a flood is answered 429 with Retry-After")
def _flood(target: ServiceUnderTest) -> None:
    query = "&".join(part for part in (f"api-version={VERSION}", target.query) if part)
    head = f"GET {EVENTS_PATH}?{query} HTTP/1.1\r\nHost: {target.host}\r\nMetadata: true\r\n\r\n"
    for _ in range(FLOOD):
        reply = target.raw(head.encode())
        if reply.status == 429:
            demand(
                reply.headers.get("retry-after", "").isdigit(), "429 has no Retry-After in seconds"
            )
            return
        expect_status(reply, 200, 429, of="one of many requests")
    raise NotApplicable(f"{FLOOD} requests in a row are not limited")
