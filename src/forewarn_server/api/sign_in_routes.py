"""Routes for signing in to the page: OIDC's authorization code flow with PKCE. Source: P-5.

The issuer redirects the browser to the page, whose script posts the code to these routes. The
service sets the issuer's token as a cookie that no script can read. The service stores no sessions,
only those that have ended (`sign_outs.py`).
"""

from __future__ import annotations

from starlette.requests import cookie_parser
from starlette.responses import Response

from forewarn_base.validation.fields import Text
from forewarn_base.validation.forms import Field, Form
from forewarn_base.validation.json_reader import JSON
from forewarn_base.values import replace
from forewarn_core.access.roles import Permission
from forewarn_server.api.auth import SESSION, cookie_name
from forewarn_server.api.oidc import Login, Oidc, SignInFailed, SignInUnavailable
from forewarn_server.api.responses import encoded
from forewarn_server.api.routes import ApiCall, ApiResponse, Route
from forewarn_server.api.schemas import TEXT, object_schema

#: Cookie with the secret of an unfinished sign-in, and the cookie's lifetime in seconds.
ATTEMPT, ATTEMPT_S = "forewarn-sign-in", 600
#: Longest token that browsers accept in a cookie, in characters.
COOKIE_LENGTH_MAX = 4000


@Route("GET /v1/sign-in", Permission.PUBLIC, answer=object_schema(issuer=TEXT, client_id=TEXT))
async def get_sign_in(oidc: Oidc | None, _: ApiCall) -> ApiResponse:
    """Get the issuer and the service's name there, for programs that sign people in."""
    settings = _require_oidc(oidc).settings
    if not settings.issuer:
        raise SignInUnavailable
    return ApiResponse({"issuer": settings.issuer, "client_id": settings.client_id})


@Route("POST /v1/sign-in/begin", Permission.PUBLIC, answer=object_schema(url=TEXT))
async def begin_sign_in(oidc: Oidc | None, call: ApiCall) -> ApiResponse:
    """Get the issuer's address at which a browser signs in."""
    origin = _origin(call)
    url, verifier = await _require_oidc(oidc).begin(origin)
    response = Response(encoded({"url": url}), media_type=JSON)
    _set(response, ATTEMPT, verifier, origin=origin, age_s=ATTEMPT_S)
    return ApiResponse(None, stream=response)


@Route(
    "POST /v1/sign-in",
    Permission.PUBLIC,
    form=Form(
        "SignInForm",
        "The values that the issuer sent with the browser.",
        (
            Field("code", Text(4096), "The issuer's code.", required=True),
            Field("state", Text(256), "The state of the sign-in.", required=True),
        ),
    ),
    answer=None,
    status=204,
)
async def sign_in(oidc: Oidc | None, call: ApiCall) -> ApiResponse:
    """Sign a browser in with a code from the issuer."""
    origin = _origin(call)
    cookies = cookie_parser(call.headers.get("cookie", ""))
    verifier = cookies.get(cookie_name(ATTEMPT, origin), "")
    token, login = await _require_oidc(oidc).finish(
        origin, verifier, code=call.form["code"], state=call.form["state"]
    )
    if len(token) > COOKIE_LENGTH_MAX:
        raise SignInFailed(
            reason="the issuer's token is too long; it probably names too many groups"
        )
    _record(call, login)
    response = Response(status_code=204)
    age_s = (login.expires_ms - call.control.clock.now_ms()) // 1000
    _set(response, ATTEMPT, "", origin=origin, age_s=0)
    _set(response, SESSION, token, origin=origin, age_s=age_s)
    return ApiResponse(None, stream=response)


@Route("POST /v1/sign-out", Permission.PUBLIC, answer=None, status=204)
async def sign_out(oidc: Oidc | None, call: ApiCall) -> ApiResponse:
    """Sign a browser or the holder of a login out, and end the session in every process."""
    bearer = call.headers.get("authorization", "").partition(" ")[2].strip()
    if bearer:
        await _require_oidc(oidc).sign_out(bearer)
        return ApiResponse(None, stream=Response(status_code=204))
    origin = _origin(call)
    token = cookie_parser(call.headers.get("cookie", "")).get(cookie_name(SESSION, origin), "")
    login = await _require_oidc(oidc).sign_out(token) if token else None
    if login is not None:
        _record(call, login)
    response = Response(status_code=204)
    _set(response, SESSION, "", origin=origin, age_s=0)
    return ApiResponse(None, stream=response)


def _require_oidc(oidc: Oidc | None) -> Oidc:
    if oidc is None:
        raise SignInUnavailable
    return oidc


def _origin(call: ApiCall) -> str:
    """Return the page's checked origin, which browsers send with each POST."""
    origin = call.headers.get("origin", "")
    if not origin:
        raise SignInFailed(reason="signing in requires a browser and the page")
    return str(origin)


def _set(response: Response, name: str, text: str, *, origin: str, age_s: int) -> None:
    response.set_cookie(
        cookie_name(name, origin),
        text,
        max_age=age_s,
        secure=origin.startswith("https:"),
        httponly=True,
        samesite="strict",
    )
    response.headers["Cache-Control"] = "no-store"


def _record(call: ApiCall, login: Login) -> None:
    """Record the signed-in principal as the caller in the audit record."""
    if call.control.call:
        call.control.call.record = replace(call.control.call.record, principal=login.name)
