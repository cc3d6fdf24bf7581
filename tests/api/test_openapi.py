"""The OpenAPI document says what the API does, and random requests find nothing unexpected."""

import re
from collections.abc import Iterator
from dataclasses import replace
from html import escape

import pytest
import schemathesis
from hypothesis import HealthCheck, assume, settings
from schemathesis.checks import CHECKS
from schemathesis.config import SchemathesisConfig

from forewarn_base.settings import OperatorSettings
from forewarn_core.fleet.actions import ACTIONS
from forewarn_server.api import driver_routes, outbox_routes
from forewarn_server.api.app import every_route
from forewarn_server.api.openapi import document
from forewarn_server.api.routes import routes_of
from forewarn_server.api.service_routes import process_routes
from tests.api.live import FLEET, SETTINGS, TOKEN, Json, Live
from tests.waiting import LIMIT_S


async def nothing() -> tuple[str, ...]:
    """Reload nothing."""
    return ()


ROUTES = every_route(
    (
        *routes_of(driver_routes, {}),
        *routes_of(outbox_routes, lambda: None),
        *process_routes(nothing, nothing),
    )
)
DOCUMENT: Json = document(ROUTES, "v1")
#: Random requests to each method of each path.
EXAMPLES = settings().max_examples // 8

CHECKED = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)


def test_every_route_is_in_the_document(shared: Live) -> None:
    """The document is made from the table that serves, and served as it is made."""
    told = {
        (method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods
    }
    assert told == {(route.method, route.path) for route in ROUTES}
    assert shared.get("/v1/openapi.json") == DOCUMENT


def test_page_shows_every_route_and_schema(shared: Live) -> None:
    """A browser is shown the whole document, and every link on the page leads somewhere."""
    page = shared.call("GET", "/v1/docs").body.decode()
    shown = set(re.findall(r"<h3>(\w+) <code>([^<]+)</code>", page))
    assert shown == {(route.method, route.path) for route in ROUTES}
    anchors = re.findall(r'id="([^"]+)"', page)
    assert len(anchors) == len(set(anchors))
    assert set(anchors) >= {*DOCUMENT["components"]["schemas"], *(route.name for route in ROUTES)}
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(anchors)


def test_page_and_document_show_the_permission_of_a_route(shared: Live) -> None:
    """An operator finds out which permission a call needs."""
    needed = "Required permission: operate."
    assert DOCUMENT["paths"]["/v1/hosts/{name}/reboot"]["post"]["description"] == needed
    assert needed in shared.call("GET", "/v1/docs").body.decode()


def test_page_explains_every_action(shared: Live) -> None:
    """A reader of history looks up what an action means."""
    page = shared.call("GET", "/v1/docs").body.decode()
    for name, meaning in ACTIONS.items():
        assert f"<br><code>{name}</code>: {escape(meaning)}" in page


def test_every_reference_leads_to_a_schema() -> None:
    """No schema is missing and none is useless."""
    text = str(DOCUMENT)
    schemas = DOCUMENT["components"]["schemas"]
    missing = [name for name in schemas if f"'#/components/schemas/{name}'" not in text]
    assert set(missing) <= {"Entry"}
    assert text.count("#/components/schemas/") > len(schemas)


def test_names_of_routes_are_unique() -> None:
    """Programs made from the document call each route by its own name."""
    names = [route.name for route in ROUTES]
    assert len(names) == len(set(names))


@pytest.fixture(scope="module")
def closed() -> Iterator[Live]:
    """A service of its own, for requests that may do anything, with a token."""
    with Live(replace(SETTINGS, operator=OperatorSettings())) as service:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        assert service.call("PUT", "/v1/topology", FLEET, headers=headers).status == 200
        yield service


def schema_of(*, boundaries: bool) -> schemathesis.BaseSchema:
    """Return the document's operations, of which schemathesis makes tests at collection."""
    phases = {"coverage": {"enabled": boundaries}}
    config = SchemathesisConfig.from_dict({"phases": phases})
    return schemathesis.openapi.from_dict(DOCUMENT, config=config).exclude(path_regex=r"/watch$")


SCHEMA = schema_of(boundaries=False)
#: Headers that say where a request ends, and how its connection goes on.
FRAMING = {"content-length", "transfer-encoding", "connection", "upgrade", "expect"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Skipped test cases")  # TOML: see test_topology_files.py
@SCHEMA.parametrize()
# A parameter gives each test an id of its own: of tests with equal ids xdist runs one.
@pytest.mark.parametrize("role", ["admin"])
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), deadline=None)
def test_random_requests_find_nothing_unexpected(case: Json, closed: Live, role: str) -> None:
    """Whatever the document allows or forbids: no 5xx, and answers as described.

    A request that cannot be framed is answered by the HTTP server, before any route.
    """
    assert role == "admin"
    check(case, closed)


def check(case: Json, closed: Live) -> None:
    """Send a request, and compare the answer with the document."""
    assume(not FRAMING & {name.lower() for name in case.headers or ()})
    headers = {"Authorization": f"Bearer {TOKEN}"}
    response = case.call(base_url=closed.url, headers=headers, timeout=LIMIT_S)
    checks = [each for each in CHECKS.get_all() if each.__name__ in CHECKED]
    assert len(checks) == len(CHECKED)
    case.validate_response(response, checks=checks, headers=headers)
