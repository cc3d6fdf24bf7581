"""What a route of Azure Resource Manager is: a row, found by its path without case."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING

from forewarn.api.permissions import permission_of
from forewarn.azure.inventory import ResourceScope
from forewarn.azure.refusals import (
    ArmPathUnknown,
    ArmPreconditionFailed,
    ArmSubscriptionUnknown,
)
from forewarn.core.access import Permission
from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from forewarn.api.control_client import ControlClient
    from forewarn.azure.json_values import JsonObject
    from forewarn.azure.resources import Resources
    from forewarn.azure.tokens import TokenIssuer
    from forewarn.core.topology import Vm

SUBSCRIPTION = "/subscriptions/{subscription}"
RESOURCE_GROUP = SUBSCRIPTION + "/resourceGroups/{resource_group}"
COMPUTE = "/providers/Microsoft.Compute"

_MEMBER = re.compile(r"\{([a-z_]+)\}")
#: For routes whose answer is the same whatever the query says.
ANY_QUERY = ("*",)
#: SDKs whose endpoint ends in a slash put another one behind it.
_SLASHES = re.compile("//+")


@value
class ArmResponse:
    """What a route answers; None: no body."""

    value: object = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class Condition(Enum):
    """What a `PUT` asks of its resource before anything is changed; the value is its header."""

    NONE = ""
    NEW = "If-None-Match"
    PRESENT = "If-Match"


@value
class ArmCall:
    """One request, read; who asks is known, unless the route is public."""

    control: ControlClient
    resources: Resources
    tokens: TokenIssuer
    #: Who asks, for history; empty for public routes.
    actor: str
    #: Returns for whom a name and a secret may have a token, or raises.
    admit: Callable[[str, str], str]
    #: `https://HOST:PORT`, as the caller names this server.
    base: str
    #: The names in the path, as written by the caller.
    path: Mapping[str, str]
    #: The query, its names in lower case.
    query: Mapping[str, str]
    body: bytes
    #: The body of a JSON request; empty where there is none.
    json: JsonObject = field(default_factory=dict)
    condition: Condition = Condition.NONE

    def check_condition(self, *, present: bool) -> None:
        """Refuse to replace what should be new, or to create what should be there.

        Raises:
            ArmPreconditionFailed: the condition of the request does not hold.
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
        """The version the caller speaks; empty for public routes."""
        return self.query.get("api-version", "")

    @property
    def place(self) -> ResourceScope:
        """The subscription and resource group the path names."""
        return ResourceScope(self.path["subscription"], self.path["resource_group"])

    async def vm(self) -> Vm:
        """Return the VM the path names; raises ArmResourceUnknown where it is not there."""
        return await self.resources.vm(self.place, self.path["vm"])

    async def subscription(self) -> str:
        """Return the subscription the path names.

        Raises:
            ArmSubscriptionUnknown: there is none of this name.
        """
        name = self.path["subscription"].lower()
        if name not in (await self.resources.inventory()).subscriptions:
            raise ArmSubscriptionUnknown(name=name[:64])
        return name

    async def scope(self) -> tuple[str, str]:
        """Return the subscription and resource group to list; empty: all groups.

        Raises:
            ArmSubscriptionUnknown, ArmResourceGroupUnknown: there is none of this name.
        """
        subscription = await self.subscription()
        if "resource_group" not in self.path:
            return subscription, ""
        await self.resources.check_place(self.place)
        return subscription, self.path["resource_group"]


@value
class ArmRoute:
    """One method of one path."""

    method: str
    path: str
    #: What it does, for the table of what is covered.
    summary: str
    act: Callable[[ArmCall], Awaitable[ArmResponse]]
    #: Parameters of the query that are obeyed, in lower case; another one is refused.
    query: tuple[str, ...] = ()

    @property
    def permission(self) -> Permission:
        """What it needs; raises RouteUnlisted where no table says."""
        return permission_of(self.method, self.path)

    @property
    def public(self) -> bool:
        """Whether anybody may ask, and no api-version is needed."""
        return self.permission is Permission.PUBLIC


class ArmTable:
    """Every route, found by the number of its path's segments and then by a pattern."""

    def __init__(self, routes: Iterable[ArmRoute]) -> None:
        """Compile the patterns; names in a path match any one segment."""
        self._rows: defaultdict[int, list[tuple[re.Pattern[str], ArmRoute]]] = defaultdict(list)
        for route in routes:
            pattern = _MEMBER.sub(r"(?P<\1>[^/]+)", route.path.replace(".", r"\."))
            compiled = re.compile(pattern, re.IGNORECASE)
            self._rows[route.path.count("/")].append((compiled, route))

    def find(self, method: str, path: str) -> tuple[ArmRoute, dict[str, str]]:
        """Return the route of a request and the names in its path.

        Raises:
            ArmPathUnknown: there is none.
        """
        method = "GET" if method == "HEAD" else method
        path = _SLASHES.sub("/", path).rstrip("/")
        for pattern, route in self._rows.get(path.count("/"), ()):
            if route.method == method:
                match = pattern.fullmatch(path)
                if match is not None:
                    return route, match.groupdict()
        raise ArmPathUnknown(method=method, path=path[:256])
