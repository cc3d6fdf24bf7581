"""Every route, for every kind of principal, about own and foreign objects. Source: P-2, P-3.

The routes are those of the operator API, the emulator, Azure Resource Manager, the page and the
feed; the expectation is the permission that each route names.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from forewarn_azure.app import build_arm
from forewarn_azure.app import every_route as every_arm_route
from forewarn_azure.inventory import SCALE_SETS
from forewarn_base.settings import OperatorSettings
from forewarn_core.access.roles import IN_FLEET, WITHIN_OWNER, Permission, Role
from forewarn_emulator import routes as emulator_routes
from forewarn_server.api import driver_routes, outbox_routes
from forewarn_server.api.app import build_app, every_route
from forewarn_server.api.routes import Route, routes_of
from forewarn_server.api.server import start_operator
from forewarn_server.api.service_routes import process_routes
from forewarn_server.web import web_files
from tests.api.live import SETTINGS, TOKEN, Json, Live
from tests.asking import Reply

#: Routes that not every service has; only those of the outbox are carried out here.
EXTRA = (
    *routes_of(emulator_routes, None),
    *routes_of(driver_routes, {}),
    *routes_of(outbox_routes, lambda: None),
    *process_routes(*2 * (lambda: (_ for _ in ()).throw(AssertionError),)),
)
#: Role and owner; nobody has no token.
PRINCIPALS: dict[str, tuple[Role, str] | None] = {
    "nobody": None,
    "viewer": (Role.VIEWER, ""),
    "viewer-of-shop": (Role.VIEWER, "shop"),
    "owner-of-shop": (Role.OWNER, "shop"),
    "owner-of-bank": (Role.OWNER, "bank"),
    "operator": (Role.OPERATOR, ""),
    "admin": (Role.ADMIN, ""),
    "node": (Role.NODE, ""),
}
OF_SHOP, OF_BANK = "00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000b"
SHOP: Json = {
    "hosts": {"h1": {}, "h2": {"fault_domain": 1}, "h3": {}},
    "groups": {"web": {"owner": "shop", "kind": "scale-set"}},
    "vms": {
        "web_0": {"host": "h1", "group": "web", "subscription": OF_SHOP, "resource_group": "shop"},
        "web_1": {"host": "h2", "group": "web", "subscription": OF_SHOP, "resource_group": "shop"},
    },
}
#: Another owner's: on a host and in a subscription of its own, and on and in the shop's.
BANK: Json = {
    "hosts": {},
    "groups": {
        "bank": {"owner": "bank", "kind": "scale-set"},
        "vault": {"owner": "bank", "kind": "availability-set"},
    },
    "vms": {
        "bank_0": {
            "host": "h3", "group": "bank", "subscription": OF_BANK, "resource_group": "bank"
        },
        "bank_1": {
            "host": "h1", "group": "bank", "subscription": OF_SHOP, "resource_group": "shop"
        },
        "vault-0": {
            "host": "h3", "group": "vault", "subscription": OF_SHOP, "resource_group": "shop"
        },
    },
}  # fmt: skip


class World:
    """A service with a token for each principal, and the shop's work; perhaps the bank's, too."""

    def __init__(self, *, bank: bool) -> None:
        """Start it, with every route there is."""
        self.live = live = Live(
            replace(SETTINGS, operator=OperatorSettings(max_refused_tokens=100_000))
        )
        self.tokens = {"admin": TOKEN}
        for name, binding in PRINCIPALS.items():
            if binding is not None:
                self.tokens[name] = live.add_token(name, *binding)
        daemon, settings = live.daemon, live.daemon.settings.operator
        arm = build_arm(daemon.control, daemon.store, clock=live.clock, settings=settings)
        live.also(start_operator(arm, "127.0.0.1:0"))
        self._arm = live.port
        operator = build_app(
            daemon.control,
            daemon.store,
            settings=daemon.settings,
            extra_routes=EXTRA,
        )
        live.also(start_operator(operator, "127.0.0.1:0"))
        self._operator = live.port
        self.set_up("PUT", "/v1/topology", SHOP, vm="web_0")
        self.set_up("POST", "/v1/vms/web_0/reboot", {})
        if bank:
            self.set_up("PUT", "/v1/topology", BANK, vm="bank_0")
            self.set_up("POST", "/v1/vms/bank_0/reboot", {})
        self.events = [
            event["id"] for event in self.ask("admin", "GET", "/v1/events").json["events"]
        ]

    def set_up(self, method: str, path: str, form: Json, vm: str = "") -> None:
        """Change something as an admin."""
        reply = self.ask("admin", method, path, form)
        assert reply.status in {200, 202}, reply
        if vm:
            self.live.enable(vm)
        self.live.settle()

    def ask(self, who: str, method: str, path: str, form: Json = None) -> Reply:
        """Send one request as somebody."""
        self.live.port = self._operator if is_operators(path) else self._arm
        token = self.tokens.get(who)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if path.partition("?")[0].endswith("/watch") and token:
            stream = self.live.stream(path, token)
            body = b"" if stream.status == 200 else stream.read()
            stream.close()
            return Reply(stream.status, body, {})
        return self.live.call(method, path, form, headers=headers)


def is_operators(path: str) -> bool:
    """Whether a path is the operator API's, and not Azure Resource Manager's."""
    return path.startswith(("/v1/", "/live", "/ready", "/leader", "/web/")) or path == "/"


@pytest.fixture(scope="module")
def both() -> Iterator[World]:
    """A service with two owners."""
    world = World(bank=True)
    yield world
    world.live.stop()


@pytest.fixture(scope="module")
def alone() -> Iterator[World]:
    """The same without the bank."""
    world = World(bank=False)
    yield world
    world.live.stop()


OPERATORS = every_route(EXTRA)
NEEDED = {f"{each.method} {each.path}": each.permission for each in OPERATORS}
NEEDED |= {f"{each.method} {each.path}": each.permission for each in every_arm_route()}
ROUTES = list(NEEDED)
EMULATORS = {each.request for each in routes_of(emulator_routes, None)}
QUERIES = {each.path: [field.name for field in each.query] for each in OPERATORS}
#: The names in paths of the operator API by the kind of object; `op-2` is the bank's.
OWN = {"hosts": "h2", "groups": "web", "vms": "web_0", "operations": "op-1", "events": "op-1"}
FOREIGN = {"hosts": "h3", "groups": "bank", "vms": "bank_0", "operations": "op-2", "events": "op-2"}
#: The names in paths of Azure Resource Manager; the last two are of the bank's.
ARM: Json = {
    "resource_group": "shop",
    "kind": "virtualMachines",
    "update": "default",
    "location": "local",
    "namespace": "Microsoft.Compute",
    "tenant": "adfs",
    "configuration": "nights",
    "assignment": "nights",
}
OWN_ARM = ARM | {"subscription": OF_SHOP, "vm": "web_0", "resource": "web_0", "set": "web"}
OWN_ARM |= {"instance": "0", "operation": "00000001-0000-4000-8000-000000000001"}
FOREIGN_ARM = OWN_ARM | {"operation": "00000001-0000-4000-8000-000000000002"}
FOREIGN_ARM = [
    FOREIGN_ARM | {"vm": "bank_1", "resource": "bank_1", "set": "vault"},
    FOREIGN_ARM | {"vm": "vault-0", "resource": "bank", "set": "bank", "kind": SCALE_SETS},
    FOREIGN_ARM | {"resource_group": "bank", "vm": "bank_0", "resource": "web_0", "set": "bank"},
    FOREIGN_ARM
    | {"subscription": OF_BANK, "resource_group": "bank", "vm": "bank_0", "resource": "bank_0"}
    | {"set": "bank"},
]
#: Foreign values of queries' parameters, and of forms' members.
NAMED = {"vm": "bank_0", "host": "h3", "group": "bank", "owner": "bank", "text": "bank"}
NAMED |= {"operation": "op-2", "target": "/v1/vms/bank_0", "id": "op-2", "after": "bank_0"}
FORMS: Json = [
    {},
    {"cause": "reboot", "targets": ["bank_0"]},
    {"until": "+2h", "reason": "sale"},
    {"destination": "h3"},
    {"owner": "shop"},
]
ARM_FORMS: Json = [
    {},
    {"instanceIds": ["bank_1"]},
    {"value": ["{event}"]},
    {"query": "maintenanceresources", "subscriptions": [OF_BANK, OF_SHOP]},
]


def paths(route: str, names: Json, arm: Json, event: str) -> str:
    """Return a route's path about some objects."""
    path = route.partition(" ")[2]
    if is_operators(path):
        name = names.get(path.split("/")[2], "op-2") if path.count("/") > 2 else ""
        return re.sub(r"\{\w+\}", name, path)
    return path.format_map(arm | {"event": event}) + "?api-version=2024-07-01"


def may(who: str, permission: Permission) -> bool:
    """Whether the role of a principal permits something somewhere. Source: P-2."""
    binding = PRINCIPALS[who]
    if binding is None or permission is Permission.PUBLIC:
        return permission is Permission.PUBLIC
    role, owner = binding
    permitted = (WITHIN_OWNER if owner else IN_FLEET)[role]
    return permission is Permission.SIGNED_IN or permission in permitted


def test_route_needs_a_permission() -> None:
    """A route that names no permission cannot be served. Source: P-2."""
    with pytest.raises(TypeError, match="permission"):
        Route("GET /v1/new", answer=None)  # type: ignore[call-arg]
    with pytest.raises(AssertionError):
        _ = replace(every_arm_route()[0], method="POST", needs=None).permission


@pytest.mark.parametrize("route", ROUTES)
def test_route_is_refused_to_whom_no_role_permits_it(both: World, route: str) -> None:
    """401 without a token, 403 without the permission, whatever the object; else neither. P-2."""
    method = route.partition(" ")[0]
    for who, (names, arm) in product(PRINCIPALS, ((OWN, OWN_ARM), (FOREIGN, FOREIGN_ARM[-1]))):
        permitted = may(who, NEEDED[route])
        if permitted and (method != "GET" or route in EMULATORS):
            continue  # what it does is tested where it belongs
        reply = both.ask(who, method, paths(route, names, arm, both.events[1]), {"odd": 1})
        if permitted:
            assert reply.status not in {401, 403}
        elif who == "nobody":
            assert reply.status == 401
        else:
            assert reply.status == 403


OWNERS = [each for each in ROUTES if NEEDED[each] in WITHIN_OWNER[Role.OWNER]]


@pytest.mark.parametrize("route", OWNERS)
def test_foreign_object_is_answered_like_a_missing_one(
    both: World, alone: World, route: str
) -> None:
    """The same bytes with the other owner's fleet there as without it. Source: P-3."""
    method, _, path = route.partition(" ")
    event, operators = both.events[1], is_operators(path)
    asked = {paths(route, FOREIGN, arm, event) for arm in FOREIGN_ARM}
    if operators:
        asked.add(paths(route, FOREIGN | {"events": event}, ARM, event))
        asked |= {f"{path}?{name}={NAMED[name]}" for name in QUERIES.get(path, ()) if name in NAMED}
    forms = FORMS if operators else json.loads(json.dumps(ARM_FORMS).replace("{event}", event))
    forms = [None] if method == "GET" else forms
    for who, url in product(("viewer-of-shop", "owner-of-shop"), sorted(asked)):
        for form in forms if may(who, NEEDED[route]) else forms[:1]:  # refused before it is read
            one, other = (world.ask(who, method, url, form) for world in (both, alone))
            assert one.status == other.status, (who, url, form)
            assert comparable(one, both) == comparable(other, alone), (who, url, form)


def comparable(reply: Reply, world: World) -> str:
    """Return an answer without the service's port, its last commit and the times of polls."""
    varying = {"date", "x-ms-request-id", "content-length"}
    varying |= {"forewarn-generation", "forewarn-age-ms"}
    headers = {n: text for n, text in reply.headers.items() if n.lower() not in varying}
    text = f"{headers} {reply.body.decode()}".replace(f":{world.live.port}", "")
    return re.sub(r'"(place|polled)":"[^"]*"|"sequence":[0-9]+', "", text)


@pytest.mark.parametrize(
    ("path", "last"), [("/v1/watch?after=0", b'"op-4"'), ("/v1/overview/watch", b"event: reload")]
)
def test_stream_has_nothing_of_another_owner(path: str, last: bytes) -> None:
    """What follows history or the overview sees the shop's work alone. Source: P-3."""
    world = World(bank=True)
    stream = world.live.stream(path, world.tokens["owner-of-shop"])
    came = stream.read1()
    world.set_up("POST", "/v1/vms/bank_1/reboot", {})
    world.set_up("POST", "/v1/vms/web_1/reboot", {})
    while last not in came:
        came += stream.read1()
    assert b"bank" not in came
    assert b'"op-2"' not in came
    assert b'"op-3"' not in came
    stream.close()
    world.live.stop()


@pytest.mark.parametrize("path", web_files())
def test_page_is_public_and_only_read(both: World, path: str) -> None:
    """Its files hold no secret, and nothing but them is run in a browser."""
    reply = both.ask("nobody", "GET", path)
    assert reply.status == 200
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self';" in policy
    for method in ("POST", "PUT", "DELETE"):
        assert both.ask("admin", method, path).status in {404, 405}


@pytest.mark.parametrize("who", PRINCIPALS)
def test_feed_is_for_nodes_alone(both: World, who: str) -> None:
    """No other role may follow it, the admin's neither. Source: P-2."""
    daemon, token = both.live.daemon, both.tokens.get(who, "")
    assert daemon.node_feed.proves_node("anna" if who == "admin" else who, token) is (who == "node")
