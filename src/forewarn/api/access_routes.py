"""Routes of access: the caller's identity, roles, and tokens. Source: P-2, P-4."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from forewarn.api import schemas
from forewarn.api.path_table import match_path
from forewarn.api.permissions import TABLE
from forewarn.api.routes import ApiCall, ApiResponse, Route, list_page_schema
from forewarn.core.access import (
    PRINCIPAL_LENGTH_MAX,
    AccessToken,
    AddToken,
    Grant,
    Permission,
    Principal,
    Revoke,
    RevokeToken,
    Role,
    digest_of,
    written_token,
)
from forewarn.ids import Ids
from forewarn.validation.durations import read_time_ms, written
from forewarn.validation.fields import NAME, Choice, Text, Timestamp
from forewarn.validation.forms import Field, Form
from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from forewarn.control.plane import StateView
    from forewarn.core.topology import Topology
    from forewarn.validation.fields import Schema

_PRINCIPAL = Text(PRINCIPAL_LENGTH_MAX, r"[^\x00-\x20]+", "a name without spaces")
_ROLE = Choice({role.value: role for role in Role})
_OWNER_FIELD = Field("owner", Text(), "Owner whose VMs the role covers (default: the whole fleet).")
_BINDING_FORM = Form(
    "BindingForm",
    "A role binding: principal, role and owner.",
    (
        Field(
            "principal",
            _PRINCIPAL,
            "`user:NAME`, or a name that a certificate or login proves.",
            required=True,
        ),
        Field("role", _ROLE, "Which role.", required=True),
        _OWNER_FIELD,
    ),
)
_TOKEN_FORM = Form(
    "TokenForm",
    "A token's holder and role.",
    (
        Field(
            "principal",
            NAME,
            "Principal that uses the token; history names the principal.",
            required=True,
        ),
        Field("role", _ROLE, "Which role.", required=True),
        _OWNER_FIELD,
        Field("expires", Timestamp(), "Time at which the token expires (default: never)."),
    ),
)


@value
class _Binding:
    principal: str
    role: str
    owner: str


@value
class _Token:
    token: AccessToken
    used_ms: int = 0
    #: The token's secret, which the caller sends. Only the creation returns the secret.
    text: str = ""


_BINDING: schemas.ObjectSchema[_Binding] = schemas.ObjectSchema(
    "Binding",
    "A role of a principal.",
    (
        schemas.Member("principal", schemas.TEXT, lambda b: b.principal),
        schemas.Member("role", schemas.words(Role), lambda b: b.role),
        schemas.Member("owner", schemas.TEXT, lambda b: b.owner, "Empty: the whole fleet."),
    ),
)
_TOKEN_SHAPE: schemas.ObjectSchema[_Token] = schemas.ObjectSchema(
    "Token",
    "A bearer token.",
    (
        schemas.Member(
            "id", schemas.TEXT, lambda t: t.token.id, "The token's id; logs may contain the id."
        ),
        schemas.Member("principal", schemas.TEXT, lambda t: t.token.principal),
        schemas.Member("role", schemas.words(Role), lambda t: t.token.role.value),
        schemas.Member("owner", schemas.TEXT, lambda t: t.token.owner, "Empty: the whole fleet."),
        schemas.Member("created", schemas.TIME, lambda t: written(t.token.created_ms)),
        schemas.Member("expires", schemas.TIME, lambda t: written(t.token.expires_ms)),
        schemas.Member(
            "used",
            schemas.TIME,
            lambda t: written(t.used_ms),
            "Time of the token's last use, accurate to ten minutes.",
        ),
        schemas.Member(
            "token",
            schemas.TEXT,
            lambda t: t.text,
            "The token's secret; only the creation returns the secret.",
        ),
    ),
)
_WHOAMI: Schema = {
    "type": "object",
    "properties": {
        "principal": schemas.TEXT,
        "bindings": {"type": "array", "items": _BINDING.schema()},
        "can": {
            **schemas.TEXTS,
            "description": "The operationIds of the routes that the caller may call, at least "
            "for some owner.",
        },
    },
    "required": ["principal", "bindings", "can"],
    "additionalProperties": False,
}
_ALLOWED: Schema = {
    "type": "object",
    "properties": {"allowed": schemas.FLAG, "permission": schemas.TEXT},
    "required": ["allowed", "permission"],
    "additionalProperties": False,
}


async def _whoami(every: Callable[[], Iterable[Route]], call: ApiCall) -> ApiResponse:
    principal = call.principal
    can = [each.name for each in every() if principal.owners_for(each.permission) != frozenset()]
    bindings = _BINDING.each(_bindings_of(principal))
    return ApiResponse({"principal": principal.name, "bindings": bindings, "can": can})


def _bindings_of(principal: Principal) -> list[_Binding]:
    return [_Binding(principal.name, role, owner) for role, owner in principal.bindings]


async def _can_i(call: ApiCall) -> ApiResponse:
    """Return whether the caller may make a call for the object that its path or body names."""
    method, path = call.query["method"].upper(), call.query["target"]
    route, name = _route_of(method, path)
    permission = TABLE.get(route, Permission.ADMINISTER)
    if "host" in call.query and permission is Permission.REQUEST:
        permission = Permission.OPERATE  # owners request work on their VMs only
    owners = call.principal.owners_for(permission) if route else frozenset()
    allowed = owners is None or bool(owners)
    vm = call.query.get("vm", "")
    if owners and (name or vm):
        fleet = await call.control.within(owners).fleet()
        allowed = name in _named(fleet, path.split("/")[2]) if name else vm in fleet.vms
    return ApiResponse({"allowed": allowed, "permission": permission.value if route else ""})


def _route_of(method: str, path: str) -> tuple[str, str]:
    """Return the route template that matches a path, and the name in the path or ""."""
    for row in TABLE:
        of, _, pattern = row.partition(" ")
        if of == method and (names := match_path(pattern, path)) is not None:
            return row, next(iter(names.values()), "")
    return "", ""


def _named(fleet: Topology, kind: str) -> Collection[str]:
    names: Collection[str] = getattr(fleet, kind) if kind in {"hosts", "groups", "vms"} else ()
    return names


async def _list(call: ApiCall) -> ApiResponse:
    bindings = await call.control.read(_every_binding)
    return ApiResponse({"bindings": _BINDING.each(bindings)})


def _every_binding(view: StateView) -> list[_Binding]:
    principals = sorted(view.state.principals.values(), key=lambda each: each.name)
    return [binding for each in principals for binding in _bindings_of(each)]


async def _grant(call: ApiCall) -> ApiResponse:
    form = call.form
    word = Grant(form["principal"], form["role"], form.get("owner", ""))
    await call.control.submit(word, call.actor)
    return await _list(call)


async def _revoke(call: ApiCall) -> ApiResponse:
    form = call.form
    word = Revoke(form["principal"], form["role"], form.get("owner", ""))
    await call.control.submit(word, call.actor)
    return await _list(call)


async def _list_tokens(call: ApiCall) -> ApiResponse:
    tokens = await call.control.read(lambda view: list(view.state.tokens.values()))
    used = await call.control.look_up(lambda store: store.token_uses())
    shown = [_Token(each, used.get(each.id, 0)) for each in tokens]
    return ApiResponse({"tokens": _TOKEN_SHAPE.each(shown)})


async def _create_token(call: ApiCall) -> ApiResponse:
    form, now_ms = call.form, call.control.clock.now_ms()
    ids = Ids()
    token_id, secret = ids.token("id")[:12], ids.token("secret") + ids.token("secret")
    expires_ms = read_time_ms(form["expires"], now_ms) if "expires" in form else None
    token = AccessToken(
        token_id,
        form["principal"],
        form["role"],
        form.get("owner", ""),
        digest_of(secret),
        now_ms,
        expires_ms,
    )
    await call.control.submit(AddToken(token), call.actor)
    shown = _TOKEN_SHAPE.of(_Token(token, text=written_token(token_id, secret)))
    return ApiResponse(shown, 201, kept=False)


async def _revoke_token(call: ApiCall) -> ApiResponse:
    await call.control.submit(RevokeToken(call.path["id"]), call.actor)
    return ApiResponse(b"", 204)


def routes(every: Callable[[], Iterable[Route]]) -> tuple[Route, ...]:
    """Return the access routes. The function `every` returns all routes of the API."""
    whoami = Route(
        method="GET",
        path="/v1/whoami",
        name="whoami",
        summary="Show the caller's principal, roles and permitted calls.",
        act=partial(_whoami, every),
        answer=_WHOAMI,
    )
    return (whoami, *_ROUTES)


_BINDINGS = list_page_schema("bindings", _BINDING.schema())
_ROUTES = (
    Route(
        method="GET",
        path="/v1/access/can-i",
        name="can_i",
        summary="Check whether the caller may make a call.",
        act=_can_i,
        query=(
            Field("method", Text(8), "Its method.", required=True),
            Field("target", Text(512), "Path of the call, without a query.", required=True),
            Field("host", NAME, "A host that the call's body names."),
            Field("vm", NAME, "A VM that the call's body names."),
        ),
        answer=_ALLOWED,
    ),
    Route(
        method="GET",
        path="/v1/access",
        name="list_bindings",
        summary="List role bindings.",
        act=_list,
        answer=_BINDINGS,
    ),
    Route(
        method="POST",
        path="/v1/access/grant",
        name="grant_role",
        summary="Grant a role to a principal.",
        act=_grant,
        form=_BINDING_FORM,
        answer=_BINDINGS,
    ),
    Route(
        method="POST",
        path="/v1/access/revoke",
        name="revoke_role",
        summary="Revoke a role from a principal.",
        act=_revoke,
        form=_BINDING_FORM,
        answer=_BINDINGS,
    ),
    Route(
        method="GET",
        path="/v1/access/tokens",
        name="list_tokens",
        summary="List tokens, without their secrets.",
        act=_list_tokens,
        answer=list_page_schema("tokens", _TOKEN_SHAPE.schema()),
    ),
    Route(
        method="POST",
        path="/v1/access/tokens",
        name="create_token",
        summary="Create a token; only this response contains its secret.",
        act=_create_token,
        form=_TOKEN_FORM,
        answer=_TOKEN_SHAPE.schema(),
        status=201,
    ),
    Route(
        method="DELETE",
        path="/v1/access/tokens/{id}",
        name="revoke_token",
        summary="Revoke a token. Every process refuses the token within seconds.",
        act=_revoke_token,
        answer=None,
        status=204,
    ),
)
