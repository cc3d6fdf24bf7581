"""What a route of the API is: a row that serves both the dispatch and the OpenAPI document."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forewarn.api.permissions import permission_of
from forewarn.core.access import NOBODY, Permission, Principal
from forewarn.validation.fields import Schema, Values
from forewarn.validation.forms import Field, Form
from forewarn.validation.json_reader import JSON
from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.types import ASGIApp

    from forewarn.api.control_client import ControlClient

#: Largest body of a request, in bytes, where a route sets no other limit.
BODY_BYTES_MAX = 1024 * 1024
#: Largest body of a route that anybody may ask: a login, or a driver's report.
PUBLIC_BYTES_MAX = 64 * 1024
#: Largest body that lists names: 100,000 of the longest fit.
NAMES_BYTES_MAX = 16 * 1024 * 1024


@value
class ApiResponse:
    """What a route answers."""

    #: Anything JSON can say; bytes are sent as they are.
    value: object
    status: int = 200
    media: str = JSON
    #: Whether a repeated call may have it again: it holds no secret.
    kept: bool = True
    #: Sent in place of `value`, for streams.
    stream: ASGIApp | None = None


@value
class ApiCall:
    """One request, read and checked."""

    control: ControlClient
    #: Who asks, for history: `operator NAME at ADDRESS`.
    actor: str
    #: Who asks, and what they may do.
    principal: Principal = NOBODY
    #: The names in the path.
    path: Mapping[str, str] = field(default_factory=dict)
    query: Values = field(default_factory=dict)
    #: What the body says, read by the route's form.
    form: Values = field(default_factory=dict)
    #: The body as it came, and its media type, for routes without a form.
    body: bytes = b""
    media: str = ""
    #: Request headers by their lower-case names.
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One method of one path."""

    method: str
    path: str
    #: Unique name: what programs made from the document call it.
    name: str
    summary: str
    act: Callable[[ApiCall], Awaitable[ApiResponse]]
    #: Schema of the answer; None: no JSON.
    answer: Schema | None
    status: int = 200
    #: Further statuses that answer in the same shape, and what they mean.
    also: Mapping[int, str] = field(default_factory=dict)
    query: tuple[Field, ...] = ()
    form: Form | None = None
    #: Largest body, in bytes; with `takes`, it is the setting for topologies. Less where `public`.
    body_bytes_max: int = BODY_BYTES_MAX
    #: Media types of a body that is not a JSON form.
    takes: tuple[str, ...] = ()
    #: Schema of what such a body describes.
    taken: Schema | None = None
    #: Media types of the answer.
    gives: tuple[str, ...] = (JSON,)
    #: Whether work on it goes on only as long as its caller waits.
    abandonable: bool = False

    @property
    def permission(self) -> Permission:
        """What it needs; raises RouteUnlisted where no table says."""
        return permission_of(self.method, self.path)

    @property
    def public(self) -> bool:
        """Whether anybody may ask, without a token."""
        return self.permission is Permission.PUBLIC


def listed(name: str, schema: Schema, *, paged: str = "") -> Schema:
    """Return the schema of an answer that holds a list, and where its next page begins.

    Args:
        name: the member that holds the list.
        schema: of one element.
        paged: the JSON type of `next`; empty: the answer is never cut.
    """
    properties: Schema = {name: {"type": "array", "items": schema}}
    if paged:
        properties["next"] = {
            "type": [paged, "null"],
            "description": "Give it as `after` or `before` for the next page; null: no more.",
        }
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
