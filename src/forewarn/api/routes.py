"""Route definitions, used for dispatch and for the OpenAPI document."""

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

#: Default limit of a request body, in bytes.
BODY_BYTES_MAX = 1024 * 1024
#: Limit of a request body on public routes: a login, or a driver's report.
PUBLIC_BYTES_MAX = 64 * 1024
#: Limit of a body that lists names; 100,000 names of maximum length fit.
NAMES_BYTES_MAX = 16 * 1024 * 1024


@value
class ApiResponse:
    """The response of a route."""

    #: A JSON value, or bytes that are sent unchanged.
    value: object
    status: int = 200
    media: str = JSON
    #: Whether the response contains no secret, so that it may be stored for an Idempotency-Key.
    kept: bool = True
    #: Application that streams the response instead of `value`.
    stream: ASGIApp | None = None


@value
class ApiCall:
    """One parsed and validated request."""

    control: ControlClient
    #: The caller in history: `operator NAME at ADDRESS`.
    actor: str
    #: The caller and the caller's permissions.
    principal: Principal = NOBODY
    #: Names in the path.
    path: Mapping[str, str] = field(default_factory=dict)
    query: Values = field(default_factory=dict)
    #: The body, parsed by the route's form.
    form: Values = field(default_factory=dict)
    #: The raw body and its media type, for routes without a form.
    body: bytes = b""
    media: str = ""
    #: Request headers by their lower-case names.
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One method of one path."""

    method: str
    path: str
    #: Unique name: the operationId in the OpenAPI document.
    name: str
    summary: str
    act: Callable[[ApiCall], Awaitable[ApiResponse]]
    #: Schema of the answer; None: no JSON.
    answer: Schema | None
    status: int = 200
    #: Meanings of further statuses with the same schema.
    also: Mapping[int, str] = field(default_factory=dict)
    query: tuple[Field, ...] = ()
    form: Form | None = None
    #: Maximum body in bytes, lower for `public` routes. With `takes`, the setting for topologies
    #: applies.
    body_bytes_max: int = BODY_BYTES_MAX
    #: Accepted media types of a body that is not a JSON form.
    takes: tuple[str, ...] = ()
    #: Schema of a body with one of the media types in `takes`.
    taken: Schema | None = None
    #: Media types of the answer.
    gives: tuple[str, ...] = (JSON,)
    #: Whether only the active process can answer this read. Source: H-4.
    active: bool = False
    #: Whether the route only shows what would change; a success is not audited.
    preview: bool = False
    #: Whether the work stops when the caller disconnects.
    abandonable: bool = False

    @property
    def permission(self) -> Permission:
        """The permission that the route requires; raises RouteUnlisted without a table row."""
        return permission_of(self.method, self.path)

    @property
    def public(self) -> bool:
        """Whether callers of the route need no token."""
        return self.permission is Permission.PUBLIC


def list_page_schema(name: str, schema: Schema, *, paged: str = "") -> Schema:
    """Return the schema of a page of a list.

    Args:
        name: the member with the list.
        schema: of one element.
        paged: the JSON type of `next`; empty for a list without pages.
    """
    properties: Schema = {name: {"type": "array", "items": schema}}
    if paged:
        properties["next"] = {
            "type": [paged, "null"],
            "description": "Value of `after` or `before` for the next page; null: last page.",
        }
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
