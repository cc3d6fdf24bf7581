"""Route definitions of Azure Resource Manager; paths match without regard to case."""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import field
from enum import Enum
from functools import wraps
from typing import TypeVar, cast

from forewarn_azure.inventory import ResourceScope
from forewarn_azure.json_values import JsonObject
from forewarn_azure.refusals import (
    ArmPathUnknown,
    ArmPreconditionFailed,
    ArmResourceUnknown,
    ArmSubscriptionUnknown,
)
from forewarn_azure.resources import Resources
from forewarn_base.values import value
from forewarn_core.access.roles import Permission
from forewarn_core.fleet.topology import Vm
from forewarn_server.adfs_tokens import TokenIssuer
from forewarn_server.api.control_client import ControlClient

A = TypeVar("A", bound="Callable[[ArmCall], Awaitable[ArmResponse]]")

SUBSCRIPTION = "/subscriptions/{subscription}"
RESOURCE_GROUP = SUBSCRIPTION + "/resourceGroups/{resource_group}"
COMPUTE = "/providers/Microsoft.Compute"

_MEMBER = re.compile(r"\{([a-z_]+)\}")
#: Marker of routes that ignore their query parameters.
ANY_QUERY = ("*",)
#: Double slashes in a path; SDKs send them if their endpoint ends in a slash.
_SLASHES = re.compile("//+")


@value
class ArmResponse:
    """The response of a route; `None` means an empty body."""

    value: object = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class Condition(Enum):
    """The condition of a `PUT`; the value of a member is the header."""

    NONE = ""
    NEW = "If-None-Match"
    PRESENT = "If-Match"


@value
class ArmCall:
    """One parsed request, authenticated except for public routes."""

    control: ControlClient
    resources: Resources
    tokens: TokenIssuer
    #: Name of the caller in history; empty for public routes.
    actor: str
    #: Function that checks a name and a secret, and returns their principal.
    admit: Callable[[str, str], str]
    #: HTTP method.
    method: str
    #: Address of this server in the caller's form, `https://HOST:PORT`.
    base: str
    #: Names in the path, in the caller's case.
    path: Mapping[str, str]
    #: Query parameters; the names are in lower case.
    query: Mapping[str, str]
    body: bytes
    #: The JSON body; may be empty.
    json: JsonObject = field(default_factory=dict)
    condition: Condition = Condition.NONE

    def check_condition(self, *, present: bool) -> None:
        """Check the request's condition against the existence of the resource.

        Raises:
            ArmPreconditionFailed: the condition is false.
        """
        if self.condition is Condition.NEW and present:
            reason = "the resource already exists"
        elif self.condition is Condition.PRESENT and not present:
            reason = "the resource does not exist"
        else:
            return
        raise ArmPreconditionFailed(header=self.condition.value, reason=reason)

    @property
    def api_version(self) -> str:
        """The requested api-version; empty for public routes."""
        return self.query.get("api-version", "")

    @property
    def place(self) -> ResourceScope:
        """The subscription and resource group in the path."""
        return ResourceScope(self.path["subscription"], self.path["resource_group"])

    async def vm(self) -> Vm:
        """Return the VM in the path; raises ArmResourceUnknown if it does not exist."""
        return await self.resources.vm(self.place, self.path["vm"])

    async def subscription(self) -> str:
        """Return the subscription in the path.

        Raises:
            ArmSubscriptionUnknown: the subscription does not exist.
        """
        name = self.path["subscription"].lower()
        if name not in (await self.resources.inventory()).subscriptions:
            raise ArmSubscriptionUnknown(name=name[:64])
        return name

    async def scope(self) -> tuple[str, str]:
        """Return the subscription and resource group to list; an empty resource group means all.

        Raises:
            ArmSubscriptionUnknown, ArmResourceGroupUnknown: the subscription or resource group does
                not exist.
        """
        subscription = await self.subscription()
        if "resource_group" not in self.path:
            return subscription, ""
        await self.resources.check_place(self.place)
        return subscription, self.path["resource_group"]


@value
class ArmRoute:
    """A route: one method of one path. Source: P-2."""

    method: str
    path: str
    #: Summary for the table of supported routes.
    summary: str
    act: Callable[[ArmCall], Awaitable[ArmResponse]]
    #: Supported query parameters, in lower case; the server refuses other parameters.
    query: tuple[str, ...] = ()
    #: The permission that a caller needs; a GET needs `read` unless it names another one.
    needs: Permission | None = None
    #: Whether a PUT or PATCH without a body is refused.
    needs_body: bool = True

    @property
    def permission(self) -> Permission:
        """The permission that a caller needs."""
        assert self.needs or self.method == "GET", self
        return self.needs or Permission.READ

    @property
    def public(self) -> bool:
        """Whether the route needs neither a token nor an api-version."""
        return self.permission is Permission.PUBLIC


class ArmRoutes:
    """The routes of one module, in the order in which they were added."""

    def __init__(self, needs: Permission | None = None) -> None:
        """Start without a route; `needs` is the permission of routes that name none."""
        self.rows: list[ArmRoute] = []
        self._needs = needs

    def serve(
        self,
        request: str,
        *query: str,
        needs: Permission | None = None,
        needs_body: bool = True,
        summary: str = "",
    ) -> Callable[[A], A]:
        """Return a decorator that adds a route, carried out by the decorated function.

        `request` is the method and the path, and `query` are the supported query parameters. The
        default summary is the first paragraph of the function's docstring.
        """
        method, _, path = request.partition(" ")

        def adopt(act: A) -> A:
            text = summary or (inspect.getdoc(act) or "").partition("\n\n")[0].removesuffix(".")
            needed = needs or self._needs
            self.rows.append(ArmRoute(method, path, text, act, query, needed, needs_body))
            return act

        return adopt


def missing_is_deleted(act: A) -> A:
    """Return a handler that answers 204 for a missing resource, as Azure does for a deletion."""

    @wraps(act)
    async def deleted(call: ArmCall) -> ArmResponse:
        try:
            return await act(call)
        except ArmResourceUnknown:
            return ArmResponse(None, 204)

    return cast("A", deleted)


class ArmTable:
    """Table of all routes, by number of path segments and then by pattern."""

    def __init__(self, routes: Iterable[ArmRoute]) -> None:
        """Compile the patterns; a name in a path matches any one segment."""
        self._rows: defaultdict[int, list[tuple[re.Pattern[str], ArmRoute]]] = defaultdict(list)
        for route in routes:
            pattern = _MEMBER.sub(r"(?P<\1>[^/]+)", route.path.replace(".", r"\."))
            compiled = re.compile(pattern, re.IGNORECASE)
            self._rows[route.path.count("/")].append((compiled, route))

    def find(self, method: str, path: str) -> tuple[ArmRoute, dict[str, str]]:
        """Return the route of a request, and the names in its path.

        Raises:
            ArmPathUnknown: no route matches.
        """
        method = "GET" if method == "HEAD" else method
        path = _SLASHES.sub("/", path).rstrip("/")
        for pattern, route in self._rows.get(path.count("/"), ()):
            if route.method == method:
                match = pattern.fullmatch(path)
                if match is not None:
                    return route, match.groupdict()
        raise ArmPathUnknown(method=method, path=path[:256])
