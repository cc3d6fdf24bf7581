"""Odd and hostile requests, each with its one right answer."""

import logging
import re
import socket
from collections.abc import Iterator

import pytest

from forewarn_core.access.roles import Permission
from forewarn_server.api.app import ApiCall, ApiResponse, Route, build_app, every_route
from forewarn_server.api.routes import BODY_BYTES_MAX
from forewarn_server.api.server import start_operator
from tests.api.live import Live
from tests.waiting import LIMIT_S

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "code"),
    [
        ("POST", "/", None, {}, 404, "no-such-path"),
        ("GET", "/v1", None, {}, 404, "no-such-path"),
        ("GET", "/v1/hosts/", None, {}, 404, "no-such-path"),
        ("GET", "/v2/hosts", None, {}, 404, "no-such-path"),
        ("GET", "/v1/hosts/a/b", None, {}, 404, "no-such-path"),
        ("GET", "/v1/operations//approve", None, {}, 404, "no-such-path"),
        ("GET", "/v1/operations/{id}", None, {}, 404, "unknown-operation"),
        ("POST", "/v1/hosts/a%2Fb/reboot", None, {}, 404, "no-such-path"),
        ("GET", "/v1/hosts/%2e%2e", None, {}, 404, "unknown"),
        ("DELETE", "/v1/operations", None, {}, 405, "method-refused"),
        ("DELETE", "/v1/hosts", None, {}, 400, "query-invalid"),
        ("DELETE", "/v1/hosts?name=", None, {}, 422, "validation-failed"),
        ("PATCH", "/v1/hosts", None, {}, 405, "method-refused"),
        ("OPTIONS", "/v1/hosts", None, {}, 405, "method-refused"),
        ("GET", "/v1/hosts?after=a&after=b", None, {}, 400, "query-invalid"),
        ("GET", "/v1/hosts?odd=1", None, {}, 400, "query-invalid"),
        ("GET", "/v1/hosts?limit=x", None, {}, 422, "validation-failed"),
        ("GET", "/v1/hosts?limit=0", None, {}, 422, "validation-failed"),
        ("GET", "/v1/hosts?limit=" + "9" * 5000, None, {}, 422, "validation-failed"),
        ("GET", "/v1/operations?live=yes", None, {}, 422, "validation-failed"),
        ("GET", "/v1/history?vm=%00", None, {}, 422, "validation-failed"),
        ("PUT", "/v1/hosts/x", b"{", JSON, 400, "body-unreadable"),
        ("PUT", "/v1/hosts/x", b"\xff", JSON, 400, "body-unreadable"),
        ("PUT", "/v1/hosts/x", b'{"zone":"a","zone":"b"}', JSON, 400, "body-unreadable"),
        ("PUT", "/v1/hosts/x", b'{"fault_domain":Infinity}', JSON, 400, "body-unreadable"),
        ("PUT", "/v1/hosts/x", b'{"fault_domain":1e999}', JSON, 422, "validation-failed"),
        ("PUT", "/v1/hosts/x", b"[" * 50_000, JSON, 400, "body-unreadable"),
        ("PUT", "/v1/hosts/x", b"9" * 5000, JSON, 400, "body-unreadable"),
        ("PUT", "/v1/hosts/x", b"null", JSON, 422, "validation-failed"),
        ("PUT", "/v1/hosts/x", b"{}", {}, 415, "media-refused"),
        ("PUT", "/v1/hosts/x", b"a=b", {"Content-Type": "text/plain"}, 415, "media-refused"),
        ("POST", "/v1/hosts/x/reboot", b"{}", {"Content-Type": "application/x-www-form-urlencoded"},
         415, "media-refused"),
        ("PUT", "/v1/hosts/x", None, {}, 400, "body-unreadable"),
        ("PUT", "/v1/hosts/x", b"", JSON, 400, "body-unreadable"),
        ("PUT", "/v1/hosts/x", b" \n", JSON, 400, "body-unreadable"),
        ("PUT", "/v1/policy", b"", JSON, 400, "body-unreadable"),
        ("PUT", "/v1/topology", b"", {}, 400, "body-unreadable"),
        ("PUT", "/v1/topology?prune=true", b"", {"Content-Type": "application/toml"},
         400, "body-unreadable"),
        ("PUT", "/v1/topology", b"{}", {}, 415, "media-refused"),
        ("PUT", "/v1/hosts/x", b"{}", JSON | {"If-Match": '"1"'}, 412, "precondition-unsupported"),
        ("PUT", "/v1/hosts/x", b"{}", JSON | {"If-None-Match": "*"},
         412, "precondition-unsupported"),
        ("DELETE", "/v1/hosts/x", None, {"If-Unmodified-Since": "Mon, 19 Sep 2016 18:29:47 GMT"},
         412, "precondition-unsupported"),
        ("DELETE", "/v1/hosts/x", b"{}", JSON, 400, "body-unreadable"),
        ("PUT", "/v1/hosts/x", b" " * (BODY_BYTES_MAX + 1), JSON, 413, "body-too-large"),
    ],
)  # fmt: skip
def test_odd_request_has_one_answer(  # a table reads better than a value of six fields
    shared: Live,
    method: str,
    path: str,
    body: bytes | None,
    headers: dict[str, str],
    status: int,
    code: str,
) -> None:
    """Every refusal has a status, a code, a sentence and advice, in one shape."""
    reply = shared.call(method, path, body=body, headers=headers)
    assert (reply.status, reply.code) == (status, code)
    error = reply.json["error"]
    assert set(error) == {"code", "message", "advice"}
    assert error["message"].endswith(".")
    assert error["advice"]


def test_every_route_refuses_in_one_shape(shared: Live) -> None:
    """A wrong method and an unknown parameter give a code, a message and advice everywhere."""
    for route in every_route():
        path = re.sub(r"\{\w+\}", "op-1", route.path)
        for method in ("PROPFIND", route.method):
            reply = shared.call(method, f"{path}?odd=1", body=b"{", headers=JSON)
            assert 400 <= reply.status < 500, (method, path)
            assert set(reply.json["error"]) == {"code", "message", "advice"}, (method, path)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "The body cannot be read: it is empty."),
        (b"[" * 50_000, "The body cannot be read: the text is nested too deeply."),
        (b"null", "the body must be an object, not null."),
        (b'{"fault_domain":true}', "fault_domain must be an integer from 0 to 999, not true."),
        (b'{"labels":{"a b":"c"}}', "a name in labels must be 1 to 63 letters, digits, `.`, `_`,"),
    ],
    ids=["empty", "deep", "null", "true", "label"],
)
def test_refused_body_is_named_in_words_of_json(shared: Live, body: bytes, problem: str) -> None:
    """The sentence is for who sent it: no word of Python, no traceback's text."""
    reply = shared.call("PUT", "/v1/hosts/x", body=body, headers=JSON)
    assert reply.json["error"]["message"].startswith(problem)


def test_condition_of_a_reading_is_no_obstacle(shared: Live) -> None:
    """Caches send conditions with what they read: the answer is whole then."""
    assert shared.call("GET", "/v1/hosts", headers={"If-None-Match": '"1"'}).status == 200


def test_read_may_require_the_newest_commit(shared: Live) -> None:
    """A process that has read up to that very commit answers at once. Source: H-4."""
    newest = shared.call("GET", "/v1/hosts").headers["forewarn-generation"]
    required = {"Forewarn-Generation": newest}
    assert shared.call("GET", "/v1/hosts", headers=required).status == 200


def test_method_refused_names_what_is_allowed(shared: Live) -> None:
    """A refused method is answered with those there are."""
    reply = shared.call("POST", "/v1/hosts/h1")
    assert reply.headers["allow"] == "DELETE, GET, PUT, HEAD"


def test_head_answers_as_get_without_a_body(shared: Live) -> None:
    """HEAD is GET without a body."""
    reply = shared.call("HEAD", "/v1/hosts")
    assert (reply.status, reply.body) == (200, b"")
    assert int(reply.headers["content-length"]) > 2


def test_chunked_body_is_measured_as_it_comes(shared: Live) -> None:
    """A body that does not announce its length is cut off at the limit."""
    with socket.create_connection((shared.host, int(shared.port)), timeout=LIMIT_S) as channel:
        head = "PUT /v1/hosts/x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        channel.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
        for _ in range(BODY_BYTES_MAX // 65536 + 1):
            channel.sendall(chunk)
        assert b" 413 " in channel.recv(4096).split(b"\r\n")[0]


def test_caller_that_leaves_harms_nobody(shared: Live) -> None:
    """A caller that goes away in the middle of its body leaves no trace."""
    with socket.create_connection((shared.host, int(shared.port)), timeout=LIMIT_S) as channel:
        channel.sendall(
            b"PUT /v1/hosts/half HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        )
    assert shared.call("GET", "/v1/hosts/half").status == 404
    assert shared.call("GET", "/v1/health").status == 200


@pytest.fixture(scope="module")
def extended() -> Iterator[Live]:
    """A service with a second operator API that has further routes, good and bad."""

    async def bug(_call: ApiCall) -> ApiResponse:
        raise ZeroDivisionError

    with Live() as service:
        extra = (Route("GET /v1/bug", Permission.READ, summary="Fail.", answer={})(bug),)
        app = build_app(
            service.daemon.control,
            service.daemon.store,
            settings=service.daemon.settings,
            extra_routes=extra,
        )
        service.also(start_operator(app, "127.0.0.1:0"))
        yield service


def test_bug_is_500_and_logged(extended: Live, caplog: pytest.LogCaptureFixture) -> None:
    """A bug tells the caller nothing but that it is ours; the log tells the rest."""
    caplog.set_level(logging.ERROR, "forewarn.operator")
    reply = extended.call("GET", "/v1/bug")
    assert (reply.status, reply.code) == (500, "internal")
    assert b"ZeroDivision" not in reply.body
    assert "ZeroDivisionError" in caplog.text


def test_further_routes_are_documented(extended: Live) -> None:
    """Routes that are added stand in the document."""
    assert "/v1/bug" in extended.get("/v1/openapi.json")["paths"]
