"""Routes of both APIs need time in proportion to hostile paths, queries, headers and bodies.

The requests go through the ports of a whole service, and the time is that of the process, because
the service runs on threads of the test.
"""

import ast
import contextlib
import http.client
import json
import math
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from urllib.parse import quote

import pytest

import forewarn_azure
from forewarn.testing import EmulatorThread
from forewarn_azure.app import every_route as every_azure_route
from forewarn_emulator.options import Options
from forewarn_server import api
from forewarn_server.api.app import every_route
from tests.api.live import FLEET, Live
from tests.hostile.growth import GROWTH_MAX, ROUNDS, RUNS
from tests.waiting import LIMIT_S

pytestmark = pytest.mark.slow

OPERATOR, ARM = "operator", "arm"
#: Stands for the hostile text in a request.
TEXT = "HOSTILE"
#: Lengths of the text: a head has at most 80 KiB, and an escaped sign three characters.
HEAD_CHARACTERS, BODY_CHARACTERS = 24_000, 128_000
#: Time of a request above which its growth is measured.
SUSPECT_S = 0.05
PIECES = (" ", '"\\', "1:", "a,", "a.", "[", "{", "/", "\\", "'", "=", "a b ", "(", "-1", "é")
VERSION = "api-version=2023-07-01"
WORD_LENGTH_MAX = 40


@dataclass(frozen=True)
class Entry:
    """A request with a place for a hostile text."""

    port: str
    #: Method and path of the route, or a header.
    route: str
    method: str
    path: str
    body: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The length of the longest text: all places share what a request may have."""
        return BODY_CHARACTERS // self.body.count(TEXT) if self.body else HEAD_CHARACTERS


def operator_entries() -> Iterator[Entry]:
    """Yield every place for a text in the routes of the operator API."""
    for route in every_route():
        plain = route.path.replace("{", "").replace("}", "")
        to = (OPERATOR, route.request, route.method)
        for name in [part for part in route.path.split("/") if "{" in part]:
            yield Entry(*to, route.path.replace(name, TEXT))
        for each in route.query:
            yield Entry(*to, f"{plain}?{each.name}={TEXT}")
        for each in route.form.fields if route.form else ():
            yield Entry(*to, plain, json.dumps({each.name: TEXT}))
        for media in route.takes:
            yield Entry(*to, plain, json.dumps({TEXT: TEXT}), {"Content-Type": media})


def azure_entries() -> Iterator[Entry]:
    """Yield every place for a text in the routes of Azure Resource Manager."""
    for route in every_azure_route():
        plain = route.path.replace("{", "").replace("}", "")
        to = (ARM, f"{route.method} {route.path}", route.method)
        for name in [part for part in route.path.split("/") if "{" in part][-1:]:
            yield Entry(*to, f"{route.path.replace(name, TEXT)}?{VERSION}")
        for name in (*route.query, "api-version"):
            yield Entry(*to, f"{plain}?{name}={TEXT}")
        if route.method in {"PUT", "PATCH", "POST"}:
            for body in azure_bodies():
                yield Entry(*to, f"{plain}?{VERSION}", json.dumps(body))


def header_entries() -> Iterator[Entry]:
    """Yield every header of both APIs."""
    for name in header_names():
        for method in ("GET", "POST"):
            yield Entry(OPERATOR, name, method, "/v1/hosts", headers={name: TEXT})
            yield Entry(ARM, name, method, f"/subscriptions?{VERSION}", headers={name: TEXT})


@cache
def azure_bodies() -> list[object]:
    """Return bodies with a text as each member that Azure's routes may look for."""
    names = sorted(
        word
        for word in words(forewarn_azure)
        if word.removeprefix("$").isalnum() and len(word) < WORD_LENGTH_MAX
    )
    return [
        dict.fromkeys(names, TEXT),
        {"location": "westus", "properties": dict.fromkeys(names, TEXT)},
        {"location": "westus", "properties": {name: {"id": TEXT} for name in names}},
        {"query": TEXT},
        {"query": f"maintenanceresources | where {TEXT}"},
    ]


@cache
def words(package: object) -> set[str]:
    """Return every text in the source of a package."""
    return {
        node.value
        for path in Path(str(package.__file__)).parent.glob("*.py")  # type: ignore[attr-defined]
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def header_names() -> list[str]:
    """Return every word of both sources that may be the name of a header."""
    known = {word.lower() for package in (api, forewarn_azure) for word in words(package)}
    named = {word for word in known if word.replace("-", "").isalpha() and "-" in word}
    return sorted(named | known & {"accept", "authorization", "cookie", "host", "origin", "via"})


def polyglot(size: int) -> str:
    """Return a text with a long run of each piece."""
    length = size // len(PIECES)
    return "".join(piece * (length // len(piece)) for piece in PIECES)


@pytest.fixture(scope="module")
def ports() -> Iterator[dict[str, http.client.HTTPConnection]]:
    """The operator API of a service with a small fleet, and the Azure port of an emulator."""
    options = Options(listen=("127.0.0.1:0",), operator="", azure="127.0.0.1:0", vms=("vm",))
    emulated = EmulatorThread(options).start()
    bound = emulated.emulator.bound
    assert bound is not None
    place = bound.azure.removeprefix("https://")
    context = ssl.create_default_context(cafile=bound.azure_certificate)
    with Live() as live:
        live.fleet(**FLEET)
        yield {
            OPERATOR: http.client.HTTPConnection(f"{live.host}:{live.port}", timeout=LIMIT_S),
            ARM: http.client.HTTPSConnection(place, timeout=LIMIT_S, context=context),
        }
    emulated.stop()


def spent_s(connection: http.client.HTTPConnection, entry: Entry, size: int) -> float:
    """Return the processor time of a request with a text of a size."""
    text = polyglot(size)
    body = entry.body.replace(TEXT, json.dumps(text)[1:-1]).encode()
    head = text.encode("ascii", "ignore").decode()
    headers = {name: value.replace(TEXT, head) for name, value in entry.headers.items()}
    path = entry.path.replace(TEXT, quote(text, safe=""))
    begun_s = time.process_time()
    with (
        contextlib.closing(connection),
        # A server that refuses a head ends the connection, perhaps before all is sent.
        contextlib.suppress(ConnectionError, ssl.SSLEOFError, http.client.BadStatusLine),
    ):
        given = {"Content-Type": "application/json", "Connection": "close"}
        connection.request(entry.method, path, body or None, given | headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status < 500, entry
    return time.process_time() - begun_s


@cache
def entries() -> dict[tuple[str, str], list[Entry]]:
    """Return all entries of routes by port and route; a watch has no end."""
    found: dict[tuple[str, str], list[Entry]] = {}
    for each in (*operator_entries(), *azure_entries()):
        if "watch" not in each.path:
            found.setdefault((each.port, each.route), []).append(each)
    return found


# The entries themselves are made by the test: every worker collects, and one runs this file.
ROUTES = [
    *((OPERATOR, each.request) for each in every_route() if "watch" not in each.path),
    *((ARM, f"{each.method} {each.path}") for each in every_azure_route()),
]


@pytest.mark.parametrize("route", ROUTES, ids=" ".join)
def test_route_needs_linear_time(
    ports: dict[str, http.client.HTTPConnection], route: tuple[str, str]
) -> None:
    """Each name, parameter and member of the body is read without a second look."""
    for entry in entries().get(route, ()):
        assert_linear(ports, entry)


@pytest.mark.parametrize("port", [OPERATOR, ARM])
def test_header_needs_linear_time(ports: dict[str, http.client.HTTPConnection], port: str) -> None:
    """Each header is read without a second look."""
    for entry in header_entries():
        if entry.port == port:
            assert_linear(ports, entry)


def assert_linear(ports: dict[str, http.client.HTTPConnection], entry: Entry) -> None:
    """Send a request with a long text; if that takes time, compare with half of the text."""
    connection = ports[entry.port]
    if spent_s(connection, entry, entry.size) > SUSPECT_S:
        assert growth_of(connection, entry) <= GROWTH_MAX, entry


def growth_of(connection: http.client.HTTPConnection, entry: Entry) -> float:
    """Return how often the service's time for half of a request fits into that of the whole.

    1 if the whole needs little time. What others on the machine cost once is not there again.
    """
    least = math.inf
    for _ in range(ROUNDS):
        longer_s = min(spent_s(connection, entry, entry.size) for _ in range(RUNS))
        if longer_s < SUSPECT_S:
            return 1.0
        shorter_s = min(spent_s(connection, entry, entry.size // 2) for _ in range(RUNS))
        least = min(least, longer_s / shorter_s)
        if least <= GROWTH_MAX:
            break
    return least


def test_every_place_is_found() -> None:
    """Routes with names, parameters, forms, files and bodies, and headers, have entries."""
    assert {"cookie", "authorization", "idempotency-key"} <= {
        each.route for each in header_entries()
    }
    assert entries().keys() <= set(ROUTES)
    assert len(entries()) > 150
    found = [each for several in entries().values() for each in several]
    assert sum(TEXT in each.body for each in found) > 200
