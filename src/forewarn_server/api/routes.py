"""Route definitions, used for dispatch, for permissions and for the OpenAPI document."""

from __future__ import annotations

import inspect
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from forewarn_base.errors import CallerError
from forewarn_base.validation.durations import read_time_ms
from forewarn_base.validation.fields import Schema, Values
from forewarn_base.validation.forms import Field, Form
from forewarn_base.validation.json_reader import JSON
from forewarn_base.values import value
from forewarn_core.access.roles import NOBODY, Permission, Principal
from forewarn_server.api.responses import encoded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from types import ModuleType

    from starlette.types import ASGIApp

    from forewarn_server.api.control_client import ControlClient

#: Default limit of a request body, in bytes.
BODY_BYTES_MAX = 1024 * 1024
#: Limit of a request body on public routes: a login, or a driver's report.
PUBLIC_BYTES_MAX = 64 * 1024
#: Limit of a body that lists names; 100,000 names of maximum length fit.
NAMES_BYTES_MAX = 16 * 1024 * 1024


class QueryInvalid(CallerError):
    """The query has an unknown or repeated parameter."""

    code = "query-invalid"
    message = "The query {problem}."
    advice = "See 'Operator API' in the documentation for its parameters."


def read_query(fields: tuple[Field, ...], pairs: Iterable[tuple[str, str]]) -> Values:
    """Return the parameters of a query, parsed by their types.

    Raises:
        QueryInvalid: a parameter is unknown or repeated.
        ValidationFailed: a value has the wrong type.
    """
    by_name = {each.name: each for each in fields}
    values: dict[str, object] = {}
    for name, text in pairs:
        if name not in by_name:
            allowed = ", ".join(by_name) or "none"
            raise QueryInvalid(problem=f"has the unknown parameter {name!r}; known: {allowed}")
        if name in values:
            raise QueryInvalid(problem=f"gives {name!r} twice")
        values[name] = by_name[name].kind.read_text(text, name)
    for each in fields:
        if each.required and each.name not in values:
            raise QueryInvalid(problem=f"lacks the parameter {each.name!r}")
    return values


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
    #: The query as it was sent.
    query_text: str = ""
    #: The body, parsed by the route's form.
    form: Values = field(default_factory=dict)
    #: The raw body and its media type, for routes without a form.
    body: bytes = b""
    media: str = ""
    #: Request headers by their lower-case names.
    headers: Mapping[str, str] = field(default_factory=dict)
    #: All routes of the operator API, and those of Azure Resource Manager.
    routes: tuple[Route, ...] = ()
    azure_routes: tuple[AnyRoute, ...] = ()

    def time_ms(self, name: str) -> int | None:
        """Return a time in the form or the query, ms since the epoch UTC; None if it is absent."""
        text = self.form.get(name) or self.query.get(name)
        return read_time_ms(text, self.control.clock.now_ms()) if text else None

    async def encode(self, answer: Callable[[], object]) -> ApiResponse:
        """Return the response with a JSON value that is computed and encoded on a thread."""
        return ApiResponse(await self.control.compute(lambda: encoded(answer())))


class AnyRoute(Protocol):
    """A route of the operator API or of Azure Resource Manager."""

    @property
    def method(self) -> str:
        """The HTTP method."""

    @property
    def path(self) -> str:
        """The path, with its names in braces."""

    @property
    def permission(self) -> Permission:
        """The permission that a caller needs."""


async def _not_implemented(*_: object) -> ApiResponse:
    raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path; a decorator of the function that carries out its calls.

    The name of the function is the operationId in the OpenAPI document, and the first paragraph of
    its docstring is the summary. Source: P-2.
    """

    #: Method and path: `GET /v1/hosts/{name}`.
    request: str
    #: The permission that a caller needs.
    permission: Permission
    _: KW_ONLY
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
    #: The act of a call in words, with names of the path or the form: `grant {role} to
    #: {principal}`. Empty: as the path has it, `fail host {name}`.
    sentence: str = ""
    name: str = ""
    summary: str = ""
    act: Callable[..., Awaitable[ApiResponse]] = _not_implemented

    def __call__(self, act: Callable[..., Awaitable[ApiResponse]]) -> Route:
        """Return the route that a function carries out."""
        summary = " ".join((inspect.getdoc(act) or "").partition("\n\n")[0].split())
        return replace(
            self, act=act, name=self.name or act.__name__, summary=self.summary or summary
        )

    @property
    def method(self) -> str:
        """The HTTP method."""
        return self.request.partition(" ")[0]

    @property
    def path(self) -> str:
        """The path, with its names in braces."""
        return self.request.partition(" ")[2]

    @property
    def public(self) -> bool:
        """Whether callers of the route need no token."""
        return self.permission is Permission.PUBLIC


def routes_of(module: ModuleType, *first: object) -> tuple[Route, ...]:
    """Return the routes that a module defines, in their order.

    The routes' functions get the values of `first` before the call.
    """
    values = (each if isinstance(each, tuple) else (each,) for each in vars(module).values())
    routes = [each for several in values for each in several if isinstance(each, Route)]
    return tuple(replace(each, act=partial(each.act, *first)) for each in routes)
