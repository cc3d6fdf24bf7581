"""What a request asks for, by the request and the settings alone. Sections E, V and I."""

from __future__ import annotations

import itertools
import json

import pytest

from forewarn.host_port import host_of_header
from forewarn.metadata.http.request import parse_head
from forewarn.metadata.http.response import Response
from forewarn.metadata.routing import (
    ApproveEvents,
    AttestInstance,
    DescribeInstance,
    GiveToken,
    RefuseRequest,
    RequestAction,
    RoutedRequest,
    ShowDocument,
    route,
)
from tests.metadata.live import SETTINGS, request, with_settings

EVENTS = "/metadata/scheduledevents"
V = "api-version=2020-07-01"
HEADER = "Bad request. Required metadata header not specified"


def routed(target: str, method: str = "GET", **more: object) -> RoutedRequest:
    """What is planned for a request; settings are those that are named in `settings`."""
    settings = with_settings(**more.pop("settings", {}))  # type: ignore[arg-type]
    head = request(target, method=method, **more)  # type: ignore[arg-type]
    return route(parse_head(head.removesuffix(b"\r\n\r\n")), settings)


def answer_of(action: RequestAction) -> Response:
    """The answer of a refusal."""
    assert isinstance(action, RefuseRequest)
    return action.answer


def error_of(answer: Response | None) -> tuple[int, str]:
    """Status and sentence of a refusal; (0, "") where there is none."""
    if answer is None:
        return 0, ""
    return answer.status, str(json.loads(answer.body)["error"])


@pytest.mark.parametrize(
    ("target", "action"),
    [
        (f"{EVENTS}?{V}", ShowDocument("2020-07-01")),
        (f"{EVENTS}/?{V}", ShowDocument("2020-07-01")),
        ("/METADATA/ScheduledEvents?API-Version=2020-07-01", ShowDocument("2020-07-01")),
        (f"{EVENTS}?{V}&wait=2&incarnation=3", ShowDocument("2020-07-01", "", 2.0, 3)),
        (f"{EVENTS}?{V}&wait=1.5&incarnation=0", ShowDocument("2020-07-01", "", 1.5, 0)),
        (f"{EVENTS}?{V}&wait=1.&incarnation=0", ShowDocument("2020-07-01", "", 1.0, 0)),
        (f"{EVENTS}?{V}&wait=1000&incarnation=7", ShowDocument("2020-07-01", "", 60.0, 7)),
        (
            f"{EVENTS}?{V}&wait=0&incarnation={10**15 - 1}",
            ShowDocument("2020-07-01", "", 0.0, 10**15 - 1),
        ),
        (
            "/metadata/instance/Compute/Name?api-version=2021-02-01&format=Text",
            DescribeInstance("2021-02-01", "/Compute/Name", "Text"),
        ),
        ("/metadata/instance?api-version=2021-02-01", DescribeInstance("2021-02-01", "", "")),
        ("/metadata/identity/oauth2/token?resource=r", GiveToken("r", None)),
        (
            "/metadata/attested/document?api-version=2018-10-01&nonce=1234567890",
            AttestInstance("2018-10-01", "1234567890", None),
        ),
        (
            "/metadata/attested/document?api-version=2020-09-01",
            AttestInstance("2020-09-01", "", None),
        ),
    ],
    ids=itertools.count(),
)
def test_request_is_understood(target: str, action: RequestAction) -> None:
    """Path without its case, query in any order. Source: E-1, E-8, E-9, I-1, Z-3."""
    found = routed(target, settings={"wait_timeout_s": 60.0})
    assert found == RoutedRequest(action, forwarded=False)


@pytest.mark.parametrize(
    ("target", "method", "status", "allow"),
    [
        (EVENTS, "PUT", 405, "GET, HEAD, POST"),
        ("*", "OPTIONS", 405, "GET, HEAD, POST"),
        ("h:80", "CONNECT", 405, "GET, HEAD, POST"),
        ("/metadata/versions", "POST", 405, "GET, HEAD"),
        ("/metadata/instance?api-version=2021-02-01", "POST", 405, "GET, HEAD"),
        ("/", "OPTIONS", 404, ""),
        ("/", "GET", 404, ""),
        ("/metadata/instanceless", "GET", 404, ""),
        ("/metadata/instance/../versions", "GET", 404, ""),
        ("/metadata/identity/oauth2/token?resource=r", "POST", 404, ""),
        (f"{EVENTS}/more?{V}", "GET", 404, ""),
    ],
    ids=itertools.count(),
)
def test_method_and_path_are_refused(target: str, method: str, status: int, allow: str) -> None:
    """Other methods are told which there are, and an unknown path is not there. Source: E-5."""
    answer = answer_of(routed(target, method).action)
    assert (answer.status, dict(answer.headers).get("Allow", "")) == (status, allow)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_versions_are_listed(method: str) -> None:
    """In ascending order, without an api-version. Source: I-3."""
    answer = answer_of(routed("/metadata/versions", method).action)
    versions = json.loads(answer.body)["apiVersions"]
    assert answer.status == 200
    assert versions == sorted(versions)
    assert len(versions) == 35


@pytest.mark.parametrize(
    ("target", "method", "metadata", "settings", "refused"),
    [
        (f"{EVENTS}?{V}", "GET", "True", {}, False),
        (f"{EVENTS}?{V}", "GET", "", {}, True),
        (f"{EVENTS}?{V}", "GET", "false", {}, True),
        (f"{EVENTS}?{V}", "POST", "", {}, True),
        (f"{EVENTS}?{V}", "POST", "", {"post_without_header": True}, True),
        (f"{EVENTS}?api-version=2017-03-01", "GET", "", {}, False),
        (f"{EVENTS}?api-version=2017-03-01", "POST", "", {}, False),
        (f"{EVENTS}?api-version=2017-08-01", "GET", "", {}, True),
        (f"{EVENTS}?api-version=2017-08-01", "POST", "", {}, True),
        (f"{EVENTS}?api-version=2017-08-01", "POST", "", {"post_without_header": True}, False),
        (f"{EVENTS}?api-version=2017-08-01", "GET", "", {"post_without_header": True}, True),
        (f"{EVENTS}?api-version=2017-03-01&api-version=2017-03-01", "GET", "", {}, True),
        (
            f"{EVENTS}?api-version=2017-03-01",
            "GET",
            "",
            {"min_api_version": "2017-08-01"},
            True,
        ),
        ("/metadata/versions", "GET", "", {}, True),
        ("/metadata/instance?api-version=2021-02-01", "GET", "", {}, True),
    ],
    ids=itertools.count(),
)
def test_header_is_required(
    target: str, method: str, metadata: str, settings: dict[str, object], refused: bool
) -> None:
    """But by the version of its age, and by approvals where a setting says so. Source: E-2."""
    action = routed(target, method, metadata=metadata, settings=settings).action
    found = isinstance(action, RefuseRequest) and error_of(action.answer) == (400, HEADER)
    assert found is refused


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("", "400 api-version"),
        ("?api-version=", "400 api-version"),
        ("?api-version=latest", "400 api-version"),
        ("?api-version=2030-01-01", "unknown"),
        ("?api-version=2020-07-01&api-version=2020-07-01", "400 api-version"),
        ("?api-version=2030-01-01&api-version=2030-01-01", "400 api-version"),
        ("?api-version=2020-07-01&n=1&n=2", "400 stands twice"),
        ("?api-version=2030-01-01&n=1&n=2", "400 stands twice"),
    ],
    ids=itertools.count(),
)
@pytest.mark.parametrize("unknown_status", [400, 404])
def test_version_must_be_one(query: str, told: str, unknown_status: int) -> None:
    """The newest three are named; only one that is unknown may be 404. Source: E-3, E-8."""
    settings = {"scheduledevents_unknown_version_status": unknown_status}
    answer = answer_of(routed(EVENTS + query, settings=settings).action)
    if told == "unknown" and unknown_status == 404:
        assert (answer.status, answer.body) == (
            404,
            b'{ "error": "Not found. Invalid version requested" }',
        )
        return
    status, sentence = error_of(answer)
    assert status == 400
    assert (told.removeprefix("400 ") if told != "unknown" else "api-version") in sentence
    if "twice" not in told:
        newest = json.loads(answer.body)["newest-versions"]
        assert newest == ["2020-07-01", "2019-08-01", "2019-04-01"]


def test_settings_choose_the_versions() -> None:
    """A preview is served where it is switched on, and old ones may be left out. Source: V-4."""
    preview = f"{EVENTS}?api-version=2024-07-09"
    assert isinstance(routed(preview).action, RefuseRequest)
    assert routed(preview, settings={"preview": True}).action == ShowDocument("2024-07-09")
    for version, known in (("2019-04-01", False), ("2019-08-01", True)):
        found = routed(
            f"{EVENTS}?api-version={version}", settings={"min_api_version": "2019-08-01"}
        )
        assert isinstance(found.action, ShowDocument) is known


@pytest.mark.parametrize(
    "query",
    [
        "wait=1",
        "wait=1&incarnation=",
        "wait=1&incarnation=x",
        "wait=1&incarnation=-1",
        f"wait=1&incarnation={10**15}",
        "wait=&incarnation=1",
        "wait=x&incarnation=1",
        "wait=.5&incarnation=1",
        "wait=1.x&incarnation=1",
        "wait=1e9&incarnation=1",
        "wait=-1&incarnation=1",
        f"wait={10**15}&incarnation=1",
        "wait=%D9%A1&incarnation=1",
    ],
)
def test_wait_that_means_nothing_is_refused(query: str) -> None:
    """Both are numbers, and whole for the incarnation. Source: E-9, E-8."""
    status, sentence = error_of(answer_of(routed(f"{EVENTS}?{V}&{query}").action))
    assert status == 400
    assert "wait" in sentence


@pytest.mark.parametrize(
    ("target", "method", "metadata", "status", "sentence"),
    [
        ("/metadata/attested/document?api-version=2018-10-01", "POST", "true", 405, "Method not"),
        ("/metadata/attested/document?api-version=2018-10-01", "GET", "", 400, HEADER),
        ("/metadata/attested/document", "GET", "true", 400, "api-version"),
        ("/metadata/attested/document?api-version=2018-04-02", "GET", "true", 400, "api-version"),
        ("/metadata/attested/document?api-version=2018-10-01&nonce=12345678901", "GET", "true",
         400, "nonce"),
        ("/metadata/attested/document?api-version=2018-10-01&nonce=x", "GET", "true", 400, "nonce"),
        ("/metadata/identity/oauth2/token", "GET", "true", 400, "invalid_request"),
        ("/metadata/identity/oauth2/token", "GET", "", 400, HEADER),
        ("/metadata/identity/oauth2/token?resource=r", "GET", "", 400, HEADER),
    ],
    ids=itertools.count(),
)  # fmt: skip
def test_what_somebody_else_answers_is_checked_first(
    target: str, method: str, metadata: str, status: int, sentence: str
) -> None:
    """What is wrong is known, for where somebody signs or gives tokens. Source: I-1, Z-3."""
    action = routed(target, method, metadata=metadata).action
    assert isinstance(action, AttestInstance | GiveToken)
    found_status, found = error_of(action.refusal)
    assert found_status == status
    assert sentence in found


def test_approval_is_read_with_its_body() -> None:
    """Its version is checked before that. Source: A-2, V-3."""
    assert isinstance(routed(f"{EVENTS}?{V}", "POST").action, ApproveEvents)
    assert isinstance(routed(EVENTS, "POST").action, RefuseRequest)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("Name", "name"),
        ("name:80", "name"),
        ("name:", "name"),
        ("169.254.169.254:8080", "169.254.169.254"),
        ("[FE80::1]:80", "[fe80::1]"),
        ("[fe80::1]", "[fe80::1]"),
        ("", ""),
    ],
)
def test_host_has_a_name_without_its_port(host: str, name: str) -> None:
    """The port says nothing about who is asked. Source: E-8."""
    assert host_of_header(host) == name


def test_other_hosts_are_refused_where_some_are_named() -> None:
    """A name that was bound to this address by somebody else gets nothing. Source: E-4."""
    settings = {"allowed_hosts": ("169.254.169.254",)}
    target = f"{EVENTS}?{V}"
    assert isinstance(routed(target, settings=settings).action, ShowDocument)
    other = routed(target, host="evil.example:80", settings=settings)
    assert error_of(answer_of(other.action))[0] == 400
    assert isinstance(routed(target, host="evil.example").action, ShowDocument)


def test_request_through_a_proxy_is_marked() -> None:
    """Whatever the action is, and the header that it drops is made up for. Source: E-4, S-6."""
    target = f"{EVENTS}?{V}"
    assert not routed(target).forwarded
    for each in (target, "/nowhere", f"{target}&n=1&n=1"):
        assert routed(each, x_forwarded_for="10.0.0.1").forwarded
    settings = {"proxy_without_header": True}
    dropped = routed(target, metadata="", settings=settings)
    assert error_of(answer_of(dropped.action)) == (400, HEADER)
    assert dropped.if_signed == ShowDocument("2020-07-01")
    for whole in (routed(target, settings=settings), routed(target, metadata="")):
        assert whole.if_signed is None
    assert routed(target, metadata="no", settings=settings).if_signed is None


def test_settings_of_these_tests_are_the_defaults() -> None:
    """But for the rate, so that what is tested here is what is served."""
    assert (SETTINGS.preview, SETTINGS.post_without_header, SETTINGS.allowed_hosts) == (
        False,
        False,
        (),
    )
