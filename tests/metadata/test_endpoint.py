"""The endpoint: header, version, method, path, answer headers. Sections E and V over HTTP."""

import email.utils
import json
import re
import socket

import pytest
from msgspec.structs import replace

from forewarn_base.protocol.documents import Document, ScheduledEvent, render_document
from forewarn_base.protocol.versions import PREVIEW_VERSION, VERSIONS
from forewarn_base.settings import MetadataSettings
from forewarn_metadata.endpoint.server import new_event_loop
from forewarn_metadata.replication.messages import PAAS_FACT, Caller, Fact
from tests.metadata.live import (
    EVENTS,
    FREEZE,
    NOW_MS,
    VM_A,
    Control,
    Live,
    Raw,
    approval,
    request,
    serving,
    with_settings,
)
from tests.waiting import LIMIT_S

PATH = "/metadata/scheduledevents"
PREEMPT = ScheduledEvent(event_id="B" * 8, event_type="Preempt", resources=("vm-a",))
TERMINATE = ScheduledEvent(event_id="C" * 8, event_type="Terminate", resources=("vm-a",))
REBALANCE = ScheduledEvent(
    event_id="D" * 8, event_type="SpotRebalanceRecommendation", resources=("vm-a",)
)
STARTED = ScheduledEvent(
    event_id="E" * 8, status="Started", event_type="Reboot", resources=("vm-a",), source="User"
)


def test_get_shows_the_document(live: Live) -> None:
    """GET answers the document as one compact line of JSON. Source: E-1, D-1, D-2, E-7."""
    live.show(FREEZE, incarnation=7)
    reply = live.get()
    assert reply.status == 200
    assert reply.body == render_document(Document(7, (FREEZE,)), "2020-07-01")
    assert b"\n" not in reply.body
    assert json.loads(reply.body)["DocumentIncarnation"] == 7


def test_empty_group_shows_an_empty_array(live: Live) -> None:
    """With nothing scheduled the array is empty, at first with incarnation 0. Source: D-1, D-2."""
    assert live.get().body == b'{"DocumentIncarnation":0,"Events":[]}'


@pytest.mark.parametrize("value", ["true", "True", "TRUE"])
def test_metadata_header_counts_without_case(live: Live, value: str) -> None:
    """`Metadata: true` is compared without case. Source: E-2."""
    assert live.get(metadata=value).status == 200


@pytest.mark.parametrize("value", ["", "false", "yes", "1", "true, true"])
@pytest.mark.parametrize("version", VERSIONS[1:])
def test_without_metadata_header_nothing_is_shown(live: Live, value: str, version: str) -> None:
    """Without the header the answer is 400 with the documented text. Source: E-2."""
    reply = live.get(f"{PATH}?api-version={version}", metadata=value)
    assert reply.status == 400
    assert reply.body == b'{"error":"Bad request. Required metadata header not specified"}'


def test_oldest_version_shows_its_document_without_the_header(live: Live) -> None:
    """2017-03-01 alone answers a GET; a POST without it might be a web page's. Source: E-2."""
    target = f"{PATH}?api-version=2017-03-01"
    assert live.get(target, metadata="").status == 200
    refused = live.post(approval("A"), target, metadata="")
    assert (refused.status, live.control.approvals) == (400, [])
    assert live.post(approval("A"), target).status == 200


@pytest.mark.parametrize(
    "query",
    ["", "?", "?api-version=", "?api-version", "?api-version=latest",
     "?api-version=2020-07-01&api-version=2020-07-01",
     "?api-version=2020-07-01&API-Version=2020-07-01", "?x=1"],
)  # fmt: skip
def test_wrong_version_names_the_newest(live: Live, query: str) -> None:
    """No version, an empty, a repeated one or `latest` is 400 with the newest. Source: E-3."""
    reply = live.get(PATH + query)
    assert reply.status == 400
    form = json.loads(reply.body)
    assert form["error"].startswith(
        "Bad request. api-version is invalid or was not specified in the request. "
    )
    assert form["newest-versions"] == ["2020-07-01", "2019-08-01", "2019-04-01"]


@pytest.mark.parametrize("version", ["2020-07-02", "2020-07-01%20", "2024-07-09", "1999-01-01"])
def test_unknown_version_is_not_found(live: Live, version: str) -> None:
    """OpenShift's termination handler asks for 2024-07-09, and stops after a 400. Source: E-3."""
    reply = live.get(f"{PATH}?api-version={version}")
    assert (reply.status, reply.body) == (
        404,
        b'{ "error": "Not found. Invalid version requested" }',
    )


def test_forwarded_request_is_refused(live: Live) -> None:
    """A request that came through a proxy is refused, and nothing redirects. Source: E-4."""
    for target in (EVENTS, "/metadata/instance?api-version=2021-02-01", "/metadata/versions"):
        reply = live.get(target, x_forwarded_for="10.0.0.1")
        assert reply.status == 400
        assert "location" not in reply.headers
    assert live.post(approval("A"), x_forwarded_for="").status == 200
    assert live.post(approval("A"), x_forwarded_for="10.0.0.1").status == 400


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
def test_other_method_is_refused_with_allow(live: Live, method: str) -> None:
    """Other methods are 405, `Allow` says what would do. Source: E-5."""
    reply = live.ask(request(EVENTS, method=method))
    assert reply.status == 405
    assert reply.headers["allow"] == "GET, HEAD, POST"
    assert "error" in json.loads(reply.body)
    reply = live.ask(request("/metadata/versions", method=method))
    assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/", "/metadata", "/metadata/scheduledevents/x"])
def test_unknown_path_is_not_found(live: Live, path: str) -> None:
    """An unknown path is 404 with a JSON error. Source: E-5."""
    reply = live.get(f"{path}?api-version=2020-07-01")
    assert (reply.status, reply.body) == (404, b'{"error":"Not found"}')


@pytest.mark.parametrize("version", ["2016-09-01", "latest", "v1"])
def test_preview_form_of_2016_is_gone(live: Live, version: str) -> None:
    """The form with the version in the path is 404. Source: V-5."""
    assert live.get(f"/metadata/{version}/scheduledevents").status == 404


def test_path_matches_without_case_and_query_in_any_order(live: Live) -> None:
    """Case of the path and order of the query change nothing. Source: E-8."""
    for target in ("/metadata/scheduledEvents?x=1&api-version=2020-07-01", EVENTS.upper()):
        assert live.get(target).status == 200


def test_repeated_query_parameter_is_refused(live: Live) -> None:
    """A query parameter given twice is refused. Source: E-8."""
    assert live.get(f"{EVENTS}&x=1&x=2").status == 400


def test_rate_above_the_limit_is_throttled(portable: bool) -> None:
    """After the burst come 429, Retry-After and the public service's text. Source: E-6."""
    with serving(with_settings(rate_per_s=0.001, rate_burst=3), portable=portable) as live:
        statuses = [live.get().status for _ in range(4)]
        reply = live.get("/metadata/versions")
        assert statuses == [200, 200, 200, 429]
        assert reply.status == 429
        assert reply.body == b"Throttle Result: Too Many Requests"
        assert reply.headers["content-type"].startswith("text/plain")
        assert reply.headers["retry-after"] == "1000"


def test_burst_is_there_again_after_a_pause(portable: bool) -> None:
    """Whoever asked nothing for a while may ask as often as before. Source: E-6."""
    loop, passed_s = new_event_loop(), [0.0]
    now_s = loop.time
    loop.time = lambda: now_s() + sum(passed_s)  # type: ignore[method-assign]
    settings = with_settings(rate_per_s=4, rate_burst=3)
    with (
        serving(settings, portable=portable, event_loop=lambda: loop) as live,
        live.connect() as raw,
    ):
        for _ in range(2):
            for _ in range(3):
                raw.send(request(EVENTS))
                assert raw.reply().status == 200
            passed_s.append(0.9)


def test_client_that_polls_once_a_second_is_never_throttled(portable: bool) -> None:
    """Neither when it starts with a burst, nor after a pause of ten minutes. Source: E-6."""
    loop, passed_s = new_event_loop(), [0.0]
    now_s = loop.time
    loop.time = lambda: now_s() + sum(passed_s)  # type: ignore[method-assign]
    settings = with_settings(rate_per_s=MetadataSettings().rate_per_s)
    with (
        serving(settings, portable=portable, event_loop=lambda: loop) as live,
        live.connect() as raw,
    ):
        for burst, pause_s in ((30, 1.0), (1, 1.0), (1, 600.0), (600, 1.0)):
            for _ in range(burst):
                raw.send(request(EVENTS))
                assert raw.reply().status == 200
            passed_s.append(pause_s)


def test_rate_counts_each_vm_alone(portable: bool) -> None:
    """One VM's requests do not use up another's. Source: E-6."""
    settings = with_settings(rate_per_s=0.001, rate_burst=1, vm_by_query=True)
    with serving(settings, portable=portable) as live:
        assert [live.get(f"{EVENTS}&vm={vm}").status for vm in ("vm-a", "vm-c", "vm-a")] == [
            200,
            200,
            429,
        ]


def test_answer_headers_are_those_of_the_service(live: Live) -> None:
    """Length, date, server and ETag are there; nothing is chunked or packed. Source: E-7."""
    live.show(FREEZE)
    reply = live.get(accept_encoding="gzip, br")
    assert list(reply.headers) == ["content-type", "content-length", "etag", "server", "date"]
    assert reply.headers["content-type"] == "application/json; charset=utf-8"
    assert reply.headers["server"] == "Forewarn"
    at = email.utils.parsedate_to_datetime(reply.headers["date"])
    assert int(at.timestamp() * 1000) == NOW_MS


def test_server_header_and_request_id_are_settings(portable: bool) -> None:
    """`Server` is what the operator says, `x-ms-request-id` where wanted. Source: E-7."""
    settings = with_settings(server_header="IMDS/150.870.65.1854", request_id=True)
    with serving(settings, portable=portable) as live:
        first, second = live.get(), live.get()
        assert first.headers["server"] == "IMDS/150.870.65.1854"
        assert re.fullmatch(r"[0-9a-f-]{36}", first.headers["x-ms-request-id"])
        assert first.headers["x-ms-request-id"] != second.headers["x-ms-request-id"]


def test_matching_etag_gives_304(live: Live) -> None:
    """A GET whose `If-None-Match` matches is 304 without a body. Source: E-7."""
    live.show(FREEZE)
    etag = live.get().headers["etag"]
    for sent in (etag, f'"x", {etag}', f"W/{etag}", "*"):
        with live.connect() as raw:
            raw.send(request(EVENTS, if_none_match=sent) + request(EVENTS))
            reply = raw.reply()
            assert (reply.status, reply.headers["etag"]) == (304, etag)
            assert raw.reply().status == 200
    older = EVENTS.replace(VERSIONS[-1], VERSIONS[0])
    assert live.get(older, if_none_match=etag).status == 200  # one client, two versions
    live.show()
    assert live.get(if_none_match=etag).status == 200


def test_etag_is_ignored_on_post(live: Live) -> None:
    """`If-None-Match` means nothing on an approval. Source: E-7."""
    assert live.post(approval("A"), if_none_match="*").status == 200


def test_connection_close_is_honoured_and_echoed(live: Live) -> None:
    """A client that says close gets it back, again and again, and then the end. Source: E-7."""
    for _ in range(4):  # the last ones are answered before they are a connection
        with live.connect() as raw:
            raw.send(request(EVENTS, connection="close"))
            assert raw.reply().headers["connection"] == "close"
            assert raw.closed()
    with live.connect() as raw:
        raw.send(request(EVENTS, method="POST", body=approval("A"), connection="close"))
        assert raw.reply().headers["connection"] == "close"
        assert raw.closed()


def test_changes_of_documents_are_counted(live: Live) -> None:
    """The metrics show how many changes a node has received."""
    before = live.server.figures()["changes"]
    live.show(FREEZE)
    assert live.server.figures()["changes"] == before + 1


def test_change_is_seen_by_the_next_request(live: Live) -> None:
    """No remembered answer outlives its document. Source: D-1, E-7."""
    with live.connect() as raw:
        for incarnation in range(1, 6):
            live.show(*[FREEZE] * (incarnation % 2), incarnation=incarnation)
            for _ in range(3):
                raw.send(request(EVENTS))
                assert json.loads(raw.reply().body)["DocumentIncarnation"] == incarnation
                reply = live.get(connection="close")
                assert json.loads(reply.body)["DocumentIncarnation"] == incarnation


def test_date_moves_with_the_clock(portable: bool) -> None:
    """The date is refreshed once a second. Source: E-7."""
    with serving(portable=portable) as live, live.connect() as raw:
        live.clock.advance(60_000)
        raw.send(request(EVENTS, incarnation="") + request(f"{EVENTS}&wait=2&incarnation=0"))
        raw.reply()
        assert raw.reply().headers["date"] == "Tue, 14 Nov 2023 22:14:20 GMT"


@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_shows_what_it_knows(live: Live, version: str) -> None:
    """Fields and types come with their version; the incarnation is the same. Source: V-1, V-2."""
    live.show(FREEZE, PREEMPT, TERMINATE, STARTED, incarnation=9)
    form = json.loads(live.get(f"{PATH}?api-version={version}").body)
    types = [event["EventType"] for event in form["Events"]]
    assert form["DocumentIncarnation"] == 9
    assert ("Preempt" in types) == (version >= "2017-11-01")
    assert ("Terminate" in types) == (version >= "2019-01-01")
    first = form["Events"][0]
    assert ("Description" in first) == (version >= "2019-04-01")
    assert ("EventSource" in first) == (version >= "2019-08-01")
    assert ("DurationInSeconds" in first) == (version >= "2020-07-01")
    assert first["Resources"][0] == ("_vm-a" if version == "2017-03-01" else "vm-a")
    assert form["Events"][-1]["NotBefore"] == ""


def test_event_keeps_its_id_in_every_version(live: Live) -> None:
    """An event read with one version can be approved with another. Source: V-3, D-3."""
    live.show(FREEZE)
    ids = {
        json.loads(live.get(f"{PATH}?api-version={version}").body)["Events"][0]["EventId"]
        for version in VERSIONS
    }
    assert ids == {FREEZE.event_id}
    for version in VERSIONS:
        target = f"{PATH}?api-version={version}"
        assert live.post(approval(FREEZE.event_id), target).status == 200


def test_event_has_its_fields_in_order(live: Live) -> None:
    """Fields stand in the seen order, none is left out. Source: D-4 to D-10."""
    live.show(FREEZE)
    event = json.loads(live.get().body)["Events"][0]
    assert list(event.items()) == [
        ("EventId", FREEZE.event_id),
        ("EventStatus", "Scheduled"),
        ("EventType", "Freeze"),
        ("ResourceType", "VirtualMachine"),
        ("Resources", ["vm-a", "vm-b"]),
        ("NotBefore", "Tue, 14 Nov 2023 22:28:20 GMT"),
        ("Description", "Host server is undergoing maintenance."),
        ("EventSource", "Platform"),
        ("DurationInSeconds", 9),
    ]


def test_preview_is_served_where_switched_on(portable: bool) -> None:
    """The advisory type is in the preview alone, and that only where wanted. Source: V-4."""
    with serving(with_settings(preview=True), portable=portable) as live:
        live.show(FREEZE, REBALANCE)
        newest = json.loads(live.get(f"{PATH}?api-version={PREVIEW_VERSION}").body)
        assert [event["EventType"] for event in newest["Events"]][1:] == [REBALANCE.event_type]
        assert REBALANCE.event_type.encode() not in live.get().body
        assert json.loads(live.get(PATH).body)["newest-versions"][0] == PREVIEW_VERSION


def test_old_versions_may_be_left_out(portable: bool) -> None:
    """A version before the oldest that the setting serves is unknown. Source: V-4, E-3."""
    with serving(with_settings(min_api_version=VERSIONS[2]), portable=portable) as live:
        statuses = [live.get(f"{PATH}?api-version={each}").status for each in VERSIONS[1:3]]
        assert statuses == [404, 200]


def test_other_hosts_are_refused_where_some_are_named(portable: bool) -> None:
    """A name that somebody else bound to this address gets nothing. Source: E-4."""
    with serving(with_settings(allowed_hosts=("169.254.169.254",)), portable=portable) as live:
        hosts = ("169.254.169.254:80", "evil.example:80")
        assert [live.ask(request(EVENTS, host=each)).status for each in hosts] == [200, 400]


def test_several_addresses_are_served_at_once(portable: bool, tmp_path: object) -> None:
    """IPv4, IPv6 and a Unix socket are served by one service. Source: E-1."""
    path = f"{tmp_path}/metadata.sock"
    listen = ("127.0.0.1:0", "[::1]:0", f"unix:{path}")
    with serving(listen=listen, portable=portable) as live:
        live.know(VM_A, Caller("vm-u", "group-1", "group-1", ("unix",), interface=path))
        v6 = socket.create_connection(("::1", int(live.bound[1].rpartition(":")[2])), LIMIT_S)
        unix = socket.socket(socket.AF_UNIX)
        unix.settimeout(LIMIT_S)
        unix.connect(path)
        for sock in (v6, unix):
            with Raw(sock) as raw:
                raw.send(request(EVENTS))
                assert raw.reply().status == 200
        assert live.get().status == 200


def test_polls_are_handed_on_once_a_second(portable: bool) -> None:
    """Who asked is told to the control plane in one batch a second. Source: B-2."""
    control = Control()
    with serving(portable=portable, control=control) as live:
        for _ in range(5):
            live.get()
    assert frozenset({"group-1"}) in control.groups
    assert len(control.groups) <= 3


@pytest.mark.parametrize(
    ("method", "body", "headers", "status"),
    [
        ("POST", approval("A"), {}, 200),
        ("POST", b"nonsense", {}, 400),
        ("GET", b"", {"metadata": ""}, 400),
        ("GET", b"", {"x_forwarded_for": "10.0.0.1"}, 400),
    ],
    ids=["approval", "malformed approval", "no header", "forwarded"],
)
def test_every_request_counts_as_one(
    portable: bool, method: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    """A group whose VMs only approve, or ask wrongly, is not silent. Source: B-2."""
    control = Control()
    with serving(portable=portable, control=control) as live:
        asked = request(EVENTS, method=method, body=body, **headers)
        assert live.ask(asked).status == status
    assert control.groups == [frozenset({"group-1"})]


def test_instance_metadata_counts_for_nothing(portable: bool) -> None:
    """Only requests for Scheduled Events keep a group enabled. Source: B-2."""
    control = Control()
    with serving(portable=portable, control=control) as live:
        assert live.get("/metadata/instance?api-version=2021-02-01").status == 200
    assert control.groups == []


@pytest.mark.parametrize(
    ("facts", "mark"), [({}, "_"), ({PAAS_FACT: True}, "")], ids=["iaas", "paas"]
)
def test_oldest_version_marks_the_names_of_iaas_alone(
    live: Live, facts: dict[str, Fact], mark: str
) -> None:
    """A cloud service's instance is named without the underscore. Source: V-1."""
    live.know(replace(VM_A, instance=facts))
    live.show(FREEZE)
    try:
        target = f"{PATH}?api-version=2017-03-01"
        [event] = json.loads(live.get(target).body)["Events"]
        [newest] = json.loads(live.get(EVENTS).body)["Events"]
    finally:
        live.know(VM_A)
    assert newest["Resources"] == [*FREEZE.resources]
    assert event["Resources"] == [mark + name for name in FREEZE.resources]
