"""OpenID Connect's device flow: a person signs in with any browser, and we get the token.

The issuer gives a short code, which the person types on the issuer's page. Meanwhile this program
asks the issuer for the token. Source: RFC 8628.
"""

from __future__ import annotations

import json
import threading
from http.client import HTTPException
from typing import Any
from urllib.parse import urlencode

from forewarn_base.errors import CallerError
from forewarn_base.http_client import ClientRequest, exchange
from forewarn_base.urls import is_protected, shown_reason
from forewarn_base.values import value
from forewarn_server.cli.api_client import local_now_ms

#: Longest wait for an answer of the issuer, in seconds, and longest answer, in bytes.
TIMEOUT_S, ANSWER_BYTES_MAX = 10.0, 256 * 1024
#: Time between two requests for the token unless the issuer names another, and the longest, in s.
INTERVAL_S, INTERVAL_S_MAX = 5, 60
#: Longer time between two requests once the issuer calls them too frequent, in seconds.
SLOWER_S = 5
#: Longest validity of a code, in seconds.
VALID_S_MAX = 3600
_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_MALFORMED = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
#: Error of the issuer -> the reason in words.
_REASONS = {
    "access_denied": "the request was denied at the issuer",
    "expired_token": "the code has expired",
    "unauthorized_client": "the issuer does not permit the device flow for this client",
    "invalid_client": "the issuer wants a secret; make the client a public one for the device flow",
}


class LoginFailed(CallerError):
    """The issuer has not signed the person in."""

    code = "login-failed"
    status = 403
    message = "Signing in at {issuer} failed: {reason}."
    advice = "Run `forewarn login` again, or use a token: --token-file or FOREWARN_TOKEN."


@value
class DeviceLogin:
    """A sign-in that waits for the person."""

    issuer: str
    client_id: str
    token_url: str
    device_code: str
    user_code: str
    #: The page on which the person types the code, and the same page with the code filled in.
    page: str
    page_with_code: str
    valid_s: int
    interval_s: int


def begin_login(issuer: str, client_id: str) -> DeviceLogin:
    """Start a sign-in at an issuer.

    Raises:
        LoginFailed: the issuer is unreachable, or has no device flow.
    """
    try:
        place = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
        _, about = _answer(issuer, ClientRequest("GET", place, {}))
        if about.get("issuer") != issuer:
            raise LoginFailed(issuer=issuer, reason=f"it is {about.get('issuer')!r}")
        if "device_authorization_endpoint" not in about:
            raise LoginFailed(issuer=issuer, reason="it offers no device flow")
        groups = " groups" if "groups" in about.get("scopes_supported", ()) else ""
        form = {"client_id": client_id, "scope": f"openid profile email{groups}"}
        status, begun = _post(issuer, about["device_authorization_endpoint"], form)
        if status != 200:
            raise LoginFailed(issuer=issuer, reason=_reason(begun))
        page = str(begun["verification_uri"])
        login = DeviceLogin(
            issuer=issuer,
            client_id=client_id,
            token_url=about["token_endpoint"],
            device_code=str(begun["device_code"]),
            user_code=str(begun["user_code"]),
            page=page,
            page_with_code=str(begun.get("verification_uri_complete", page)),
            valid_s=min(int(begun["expires_in"]), VALID_S_MAX),
            interval_s=_interval_s(begun),
        )
    except _MALFORMED as error:
        raise LoginFailed(issuer=issuer, reason="its answer is malformed") from error
    if not (is_protected(login.page) and is_protected(login.page_with_code)):
        raise LoginFailed(issuer=issuer, reason="its page for the code has no TLS")
    return login


def token_of(login: DeviceLogin) -> str:
    """Return the ID token once the person has signed in.

    Raises:
        LoginFailed: the person declined or was too slow, or the issuer gives no token.
    """
    form = {
        "grant_type": _GRANT,
        "device_code": login.device_code,
        "client_id": login.client_id,
    }
    interval_s, until_ms = login.interval_s, local_now_ms() + login.valid_s * 1000
    while local_now_ms() < until_ms:
        threading.Event().wait(interval_s)
        status, answer = _post(login.issuer, login.token_url, form)
        if status == 200 and isinstance(answer.get("id_token"), str):
            return str(answer["id_token"])
        match answer.get("error"):
            case "authorization_pending":
                pass
            case "slow_down":
                interval_s = min(interval_s + SLOWER_S, INTERVAL_S_MAX)
            case _:
                raise LoginFailed(issuer=login.issuer, reason=_reason(answer))
    raise LoginFailed(issuer=login.issuer, reason=_REASONS["expired_token"])


def _interval_s(begun: dict[str, Any]) -> int:
    return min(max(int(begun.get("interval", INTERVAL_S)), 0), INTERVAL_S_MAX)


def _reason(answer: dict[str, Any]) -> str:
    code = str(answer.get("error", ""))
    return _REASONS.get(code) or (f"it answered {code[:80]}" if code else "it gives no ID token")


def _post(issuer: str, url: str, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    return _answer(issuer, ClientRequest("POST", url, headers, urlencode(form).encode()))


def _answer(issuer: str, request: ClientRequest) -> tuple[int, dict[str, Any]]:
    """Return the status and the JSON object of an answer."""
    if not is_protected(request.url):
        raise LoginFailed(issuer=issuer, reason="one of its addresses has no TLS")
    try:
        answer = exchange(request, timeout_s=TIMEOUT_S, bytes_max=ANSWER_BYTES_MAX)
        form = json.loads(answer.body)
    except (OSError, HTTPException) as error:
        raise LoginFailed(issuer=issuer, reason=shown_reason(error)) from error
    except (ValueError, RecursionError) as error:
        raise LoginFailed(issuer=issuer, reason="its answer is not JSON") from error
    if not isinstance(form, dict):
        raise LoginFailed(issuer=issuer, reason="its answer is malformed")
    return answer.status, form
