"""Routes of access: the caller's identity, roles, and tokens. Source: P-2, P-4."""

from __future__ import annotations

import re

from forewarn_base.ids import Ids
from forewarn_base.validation.durations import read_time_ms
from forewarn_base.validation.fields import NAME, Choice, Schema, Text, Timestamp
from forewarn_base.validation.forms import Field, Form
from forewarn_base.values import value
from forewarn_core.access.roles import PRINCIPAL_LENGTH_MAX, Permission, Principal, Role
from forewarn_core.access.stimulus import AddToken, Grant, ResumeToken, Revoke, RevokeToken
from forewarn_core.access.tokens import AccessToken, digest_of, written_token
from forewarn_core.fleet.declarations import declared
from forewarn_server.api import schemas
from forewarn_server.api.control_client import ControlClient
from forewarn_server.api.path_table import match_path
from forewarn_server.api.request_forms import EMPTY
from forewarn_server.api.routes import ApiCall, ApiResponse, Route
from forewarn_server.control.plane import StateView

#: Expiry of a token whose creator names none, and the word for no expiry. Source: P-4.
TOKEN_EXPIRES, NEVER = "+90d", "never"

_PRINCIPAL = Text(
    PRINCIPAL_LENGTH_MAX,
    r"[^\x00-\x20]+|group:[^\x00-\x20]([^\x00-\x1f]*[^\x00-\x20])?",
    "a name without spaces, or `group:` and the name of a group",
)
_TOKEN_PRINCIPAL = Text(
    PRINCIPAL_LENGTH_MAX,
    r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}|kubernetes:[a-z0-9][a-z0-9.-]{0,62}:[a-z0-9][a-z0-9-]{0,62}",
    "1 to 128 letters, digits, `_`, `.`, `-`, and begin with a letter, digit or `_`; or be"
    " `kubernetes:CLUSTER:NAMESPACE`",
)
_ROLE = Choice({role.value: role for role in Role})
_OWNER_FIELD = Field("owner", Text(), "Owner whose VMs the role covers (default: the whole fleet).")
_BINDING_FORM = Form(
    "BindingForm",
    "A role binding: principal, role and owner.",
    (
        Field(
            "principal",
            _PRINCIPAL,
            "`user:NAME`, `group:NAME`, or a name that a certificate or login proves.",
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
            _TOKEN_PRINCIPAL,
            "Principal that uses the token; history names the principal.",
            required=True,
        ),
        Field("role", _ROLE, "Which role.", required=True),
        _OWNER_FIELD,
        Field(
            "expires",
            Timestamp(NEVER),
            f"Time at which the token expires, or `{NEVER}` (default: `{TOKEN_EXPIRES}`).",
        ),
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
    schemas.Member("principal", schemas.TEXT),
    schemas.Member("role", schemas.words(Role), lambda b: b.role),
    schemas.Member("owner", schemas.TEXT, meaning="Empty: the whole fleet."),
)
_BINDINGS = schemas.page_schema("bindings", _BINDING.schema())
_TOKEN_SHAPE: schemas.ObjectSchema[_Token] = schemas.ObjectSchema(
    "Token",
    "A bearer token.",
    schemas.Member("id", schemas.TEXT, "token.id", "The token's id; logs may contain the id."),
    schemas.Member("principal", schemas.TEXT, "token.principal"),
    schemas.Member("role", schemas.words(Role), "token.role"),
    schemas.Member("owner", schemas.TEXT, "token.owner", "Empty: the whole fleet."),
    schemas.Member("created", schemas.TIME, "token.created_ms"),
    schemas.Member("expires", schemas.TIME, "token.expires_ms"),
    schemas.Member(
        "suspended",
        schemas.FLAG,
        "token.suspended",
        "Whether the token is refused until it is resumed, as after a restore.",
    ),
    schemas.Member(
        "makers",
        schemas.TEXTS,
        "token.makers",
        "Principals who may know the secret besides the holder; a confirmation counts the token "
        "for them, too.",
    ),
    schemas.Member(
        "used", schemas.TIME, "used_ms", "Time of the token's last use, accurate to ten minutes."
    ),
    schemas.Member(
        "token", schemas.TEXT, "text", "The token's secret; only the creation returns the secret."
    ),
)
_WHOAMI: Schema = schemas.object_schema(
    principal=schemas.TEXT,
    bindings=schemas.list_of(_BINDING.schema()),
    can=schemas.described(
        schemas.TEXTS,
        "The operationIds of the routes that the caller may call, at least for some owner.",
    ),
)
_ALLOWED: Schema = schemas.object_schema(allowed=schemas.FLAG, permission=schemas.TEXT)


@Route("GET /v1/whoami", Permission.SIGNED_IN, answer=_WHOAMI)
async def whoami(call: ApiCall) -> ApiResponse:
    """Show the caller's principal, roles and permitted calls."""
    principal = call.principal
    routes = call.routes
    can = [each.name for each in routes if principal.owners_for(each.permission) != frozenset()]
    bindings = _BINDING.each(_bindings_of(principal))
    return ApiResponse({"principal": principal.name, "bindings": bindings, "can": can})


def _bindings_of(principal: Principal) -> list[_Binding]:
    return [_Binding(principal.name, role, owner) for role, owner in principal.bindings]


@Route(
    "GET /v1/access/can-i",
    Permission.SIGNED_IN,
    query=(
        Field("method", Text(8), "Its method.", required=True),
        Field("target", Text(512), "Path of the call, without a query.", required=True),
        Field("host", NAME, "A host that the call's body names."),
        Field("vm", NAME, "A VM that the call's body names."),
    ),
    answer=_ALLOWED,
)
async def can_i(call: ApiCall) -> ApiResponse:
    """Check whether the caller may make a call."""
    method, path = call.query["method"].upper(), call.query["target"]
    permission, name = _required_permission(call, method, path)
    if permission is None:
        return ApiResponse({"allowed": False, "permission": ""})
    if "host" in call.query and permission is Permission.REQUEST:
        permission = Permission.OPERATE  # owners request work on their VMs only
    owners = call.principal.owners_for(permission)
    allowed = owners is None or bool(owners)
    vm = call.query.get("vm", "")
    if owners:
        scoped = call.control.within(owners)
        allowed = not name or await _concerns(scoped, path.split("/")[2], name)
        allowed = allowed and (not vm or vm in (await scoped.fleet()).vms)
    return ApiResponse({"allowed": allowed, "permission": permission.value})


def _required_permission(call: ApiCall, method: str, path: str) -> tuple[Permission | None, str]:
    """Return the permission of a call, and the name in its path or ""; None: no such call."""
    for route in (*call.routes, *call.azure_routes):
        if route.method == method and (names := match_path(route.path, path)) is not None:
            return route.permission, next(iter(names.values()), "")
    return None, ""


_NUMBERED = re.compile(r"[a-z]{1,2}-([0-9]{1,18})")


async def _concerns(scoped: ControlClient, kind: str, name: str) -> bool:
    """Whether an object of a path, such as host `h1`, is one of the caller's."""
    if kind in {"hosts", "groups", "vms"}:
        return name in getattr(await scoped.fleet(), kind)
    if kind == "events":
        return await scoped.look_up(lambda store: store.event(name)) is not None
    matched = _NUMBERED.fullmatch(name)
    if matched is None:
        return False
    number = int(matched[1])
    if kind == "declarations":
        return bool(await scoped.read(lambda view: _declared(view, number, scoped)))
    if kind == "tickets":
        return await scoped.look_up(lambda store: store.ticket(number)) is not None
    if kind == "operations":
        return await scoped.look_up(lambda store: store.operation(number)) is not None
    return False


def _declared(view: StateView, number: int, scoped: ControlClient) -> bool:
    state, now_ms = (view.unscoped or view).state, scoped.clock.now_ms()
    return bool(declared(state, view.state.topology, now_ms, only=number))


@Route("GET /v1/access", Permission.ADMINISTER, answer=_BINDINGS)
async def list_bindings(call: ApiCall) -> ApiResponse:
    """List role bindings."""
    return await _all_bindings(call)


async def _all_bindings(call: ApiCall) -> ApiResponse:
    bindings = await call.control.read(_every_binding)
    return ApiResponse({"bindings": _BINDING.each(bindings)})


def _every_binding(view: StateView) -> list[_Binding]:
    principals = sorted(view.state.access.principals.values(), key=lambda each: each.name)
    return [binding for each in principals for binding in _bindings_of(each)]


@Route(
    "POST /v1/access/grant",
    Permission.ADMINISTER,
    form=_BINDING_FORM,
    answer=_BINDINGS,
    sentence="grant {role} to {principal}",
)
async def grant_role(call: ApiCall) -> ApiResponse:
    """Grant a role to a principal."""
    form = call.form
    word = Grant(form["principal"], form["role"], form.get("owner", ""))
    await call.control.submit(word, call.actor)
    return await _all_bindings(call)


@Route("POST /v1/access/revoke", Permission.ADMINISTER, form=_BINDING_FORM, answer=_BINDINGS)
async def revoke_role(call: ApiCall) -> ApiResponse:
    """Revoke a role from a principal."""
    form = call.form
    word = Revoke(form["principal"], form["role"], form.get("owner", ""))
    await call.control.submit(word, call.actor)
    return await _all_bindings(call)


@Route(
    "GET /v1/access/tokens",
    Permission.ADMINISTER,
    answer=schemas.page_schema("tokens", _TOKEN_SHAPE.schema()),
)
async def list_tokens(call: ApiCall) -> ApiResponse:
    """List tokens, without their secrets."""
    tokens = await call.control.read(lambda view: list(view.state.access.tokens.values()))
    used = await call.control.look_up(lambda store: store.token_uses())
    shown = [_Token(each, used.get(each.id, 0)) for each in tokens]
    return ApiResponse({"tokens": _TOKEN_SHAPE.each(shown)})


@Route(
    "POST /v1/access/tokens",
    Permission.ADMINISTER,
    form=_TOKEN_FORM,
    answer=_TOKEN_SHAPE.schema(),
    status=201,
    sentence="create a token of {principal}",
)
async def create_token(call: ApiCall) -> ApiResponse:
    """Create a token; only this response contains its secret."""
    form, now_ms = call.form, call.control.clock.now_ms()
    ids = Ids()
    token_id, secret = ids.token("id")[:12], ids.token("secret") + ids.token("secret")
    expires = form.get("expires", TOKEN_EXPIRES)
    expires_ms = None if expires == NEVER else read_time_ms(expires, now_ms)
    token = AccessToken(
        token_id,
        form["principal"],
        form["role"],
        form.get("owner", ""),
        digest_of(secret),
        now_ms,
        expires_ms,
    )
    changes = (await call.control.submit(AddToken(token), call.actor)).changes
    stored = changes.tokens[token_id] or token  # with its makers
    shown = _TOKEN_SHAPE.of(_Token(stored, text=written_token(token_id, secret)))
    return ApiResponse(shown, 201, kept=False)


@Route("DELETE /v1/access/tokens/{id}", Permission.ADMINISTER, answer=None, status=204)
async def revoke_token(call: ApiCall) -> ApiResponse:
    """Revoke a token. Every process refuses the token within seconds."""
    await call.control.submit(RevokeToken(call.path["id"]), call.actor)
    return ApiResponse(b"", 204)


@Route(
    "POST /v1/access/tokens/{id}/resume",
    Permission.ADMINISTER,
    form=EMPTY,
    answer=None,
    status=204,
    sentence="resume token {id}",
)
async def resume_token(call: ApiCall) -> ApiResponse:
    """Accept a token again that a restore has suspended."""
    await call.control.submit(ResumeToken(call.path["id"]), call.actor)
    return ApiResponse(b"", 204)
