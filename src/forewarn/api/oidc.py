"""OIDC: identifies callers by JSON Web Tokens of the configured issuer.

A thread fetches the issuer's keys, which stay in use until the next successful fetch. Logins
therefore stay valid while the issuer is unavailable. PyJWT checks signatures. PyJWT's `PyJWKClient`
is not used, because it drops keys after five minutes and fetches keys for every unknown key id.
Source: P-5.
"""

from __future__ import annotations

import asyncio
import json
import logging
from base64 import b64encode, urlsafe_b64encode
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from functools import partial
from hashlib import sha256
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, urlencode

from forewarn.core.access import PRINCIPAL_LENGTH_MAX
from forewarn.errors import CallerError, PeerError
from forewarn.http_client import ClientRequest, exchange
from forewarn.ids import Ids
from forewarn.urls import is_protected, shown_reason
from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jwt import PyJWK

    from forewarn.clock import Clock
    from forewarn.settings import OidcSettings

log = logging.getLogger("forewarn.operator")

#: Accepted signature algorithms; all use public keys.
ALGORITHMS = frozenset(
    f"{family}{bits}" for family in ("RS", "PS", "ES") for bits in (256, 384, 512)
) | {"EdDSA"}
#: Claims that a token must contain.
REQUIRED = ["iss", "aud", "sub", "exp", "iat"]
#: Maximum length of a token in characters, groups of a login, and cached verified tokens.
TOKEN_LENGTH_MAX, GROUPS_MAX, LOGINS_MAX = 16 * 1024, 1000, 10_000
#: Maximum length of the issuer's answer, in bytes, maximum keys read from it, and its time limit in
#: seconds.
ANSWER_BYTES_MAX, KEYS_MAX, TIMEOUT_S = 256 * 1024, 100, 5.0
#: Age in seconds at which keys are fetched again, and shortest time between two fetches.
REFRESH_MS, ATTEMPT_MS = 600_000, 10_000
#: Accepted difference between the issuer's clock and the service's, in seconds.
LEEWAY_S = 10
#: Maximum number of sign-ins that wait for the issuer at a time.
SIGN_INS_MAX = 16

#: Exceptions for a malformed token or answer.
_MALFORMED = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)


class IssuerUnavailable(PeerError):
    """The issuer does not answer, and no keys are known."""

    code = "issuer-unavailable"
    status = 503
    message = "The issuer {issuer} returns no usable answer, so its tokens cannot be checked."
    advice = "Check the issuer and [oidc] in the settings, or use a token (`fw_…`) meanwhile."


class SignInUnavailable(CallerError):
    """No issuer is configured for signing in."""

    code = "sign-in-unavailable"
    status = 404
    message = "No issuer for signing in is configured."
    advice = "Sign in with a token, or set [oidc]."


class SignInFailed(CallerError):
    """The issuer or its token does not confirm the sign-in."""

    code = "sign-in-failed"
    status = 403
    message = "Signing in failed: {reason}."
    advice = "Sign in again. An admin can check the service's log and [oidc]."


@value
class Login:
    """An identity proved by a token of the issuer."""

    #: `oidc:` and the value of the claim that `[oidc] name_claim` names.
    name: str
    groups: tuple[str, ...]
    expires_ms: int
    nonce: str = ""


@value
class _Issuer:
    """The issuer's published data: the sign-in address, and the keys of its signatures."""

    authorize_url: str
    token_url: str
    scope: str
    keys: Mapping[str | None, PyJWK] = field(default_factory=dict)

    def key(self, key_id: str | None) -> PyJWK | None:
        """Return a key by its id; without an id, return the only key."""
        if key_id is None and len(self.keys) == 1:
            return next(iter(self.keys.values()))
        return self.keys.get(key_id)


class Oidc:
    """Verifies tokens of the issuer, and signs people in. Use it on one event loop."""

    def __init__(self, settings: OidcSettings, clock: Clock) -> None:
        self._clock = clock
        self._threads = ThreadPoolExecutor(2, "oidc")
        self._waiting = 0
        self.adopt(settings)

    def adopt(self, settings: OidcSettings) -> None:
        """Replace the settings; later calls verify all tokens again."""
        self.settings = settings
        self._issuer: _Issuer | None = None
        self._fetching: asyncio.Future[None] | None = None
        self._fetched_ms = self._attempt_ms = 0
        #: Verified tokens by SHA-256.
        self._logins: OrderedDict[bytes, Login] = OrderedDict()

    async def login(self, token: str) -> Login | None:
        """Return the identity in a token; None if the token is not valid.

        Raises:
            IssuerUnavailable: the issuer's keys are not known.
        """
        if not self.settings.issuer or len(token) > TOKEN_LENGTH_MAX:
            return None
        digest = sha256(token.encode()).digest()
        login = self._logins.get(digest)
        self._refresh()
        if login is None:
            login = await self._verified(token)
            if login is None:
                return None
            self._logins[digest] = login
            if len(self._logins) > LOGINS_MAX:
                self._logins.popitem(last=False)
        return login if self.is_current(login) else None

    def is_current(self, login: Login) -> bool:
        """Return whether a login is still valid."""
        return self._clock.now_ms() < login.expires_ms

    async def _verified(self, token: str) -> Login | None:
        import jwt  # noqa: PLC0415 - most services have no issuer

        try:
            key_id = jwt.get_unverified_header(token).get("kid")
            key = (await self._published(key_id)).key(key_id)
            if key is None:
                log.info("token refused: the issuer has no key %.64r", key_id)
                return None
            claims = jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                audience=self.settings.client_id,
                issuer=self.settings.issuer,
                # compare times with the service's clock, as each later call does
                options={
                    "require": REQUIRED,
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                    "enforce_minimum_key_length": True,
                },
            )
            return _login(claims, self.settings.name_claim, self._clock.now_ms() / 1000)
        except (jwt.PyJWTError, *_MALFORMED) as error:
            log.info("token of the issuer refused: %.200r", str(error))
            return None

    async def _published(self, key_id: str | None = None) -> _Issuer:
        """Return the issuer's published data; fetch the data first if a key is missing.

        Only callers with an unknown key wait, and all wait for the same fetch.

        Raises:
            IssuerUnavailable: the issuer has never answered.
        """
        issuer = self._issuer
        missing = issuer is None or (key_id is not None and key_id not in issuer.keys)
        self._refresh(missing=missing)
        if missing and self._fetching is not None:
            await asyncio.shield(self._fetching)
        if self._issuer is None:
            raise IssuerUnavailable(issuer=self.settings.issuer)
        return self._issuer

    def _refresh(self, *, missing: bool = False) -> None:
        """Start to fetch the issuer's data if it is old or lacks a key, at a limited rate."""
        now_ms = self._clock.now_ms()
        due = missing or not 0 <= now_ms - self._fetched_ms < REFRESH_MS
        paused = 0 <= now_ms - self._attempt_ms < ATTEMPT_MS
        if due and not paused and self._fetching is None:
            self._attempt_ms = now_ms
            self._fetching = asyncio.ensure_future(self._fetch())

    async def _fetch(self) -> None:
        settings = self.settings
        try:
            issuer = await self._on_thread(partial(_fetched, settings.issuer))
            if self.settings is settings:
                self._logins.clear()  # withdrawn keys must not stay in the cache
                self._issuer, self._fetched_ms = issuer, self._clock.now_ms()
        except (OSError, HTTPException, *_MALFORMED) as error:
            log.warning(
                "the keys of %s could not be fetched: %s", settings.issuer, shown_reason(error)
            )
        finally:
            if self.settings is settings:
                self._fetching = None

    async def _on_thread(self, work: Any) -> Any:  # noqa: ANN401 - what the work returns
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def begin(self, origin: str) -> tuple[str, str]:
        """Return the issuer's sign-in URL, and the secret that the browser stores until it returns.

        Raises:
            SignInUnavailable, IssuerUnavailable: signing in is not possible.
        """
        if not self.settings.issuer:
            raise SignInUnavailable
        issuer = await self._published()
        verifier = Ids().token("verifier") + Ids().token("verifier")
        digest = sha256(verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": f"{origin}/",
            "scope": issuer.scope,
            "state": _derived("state", verifier),
            "nonce": _derived("nonce", verifier),
            "code_challenge": urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        mark = "&" if "?" in issuer.authorize_url else "?"
        return f"{issuer.authorize_url}{mark}{urlencode(query)}", verifier

    async def finish(
        self, origin: str, verifier: str, *, code: str, state: str
    ) -> tuple[str, Login]:
        """Exchange a code for the issuer's token; return the token and its identity.

        Raises:
            SignInUnavailable, IssuerUnavailable, SignInFailed: the sign-in failed.
        """
        if not self.settings.issuer:
            raise SignInUnavailable
        if not verifier or state != _derived("state", verifier):
            raise SignInFailed(reason="the sign-in was begun in another browser, or too long ago")
        issuer = await self._published()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": f"{origin}/",
            "client_id": self.settings.client_id,
            "code_verifier": verifier,
        }
        if self._waiting >= SIGN_INS_MAX:
            raise IssuerUnavailable(issuer=self.settings.issuer)
        self._waiting += 1
        try:
            secret = self.settings.client_secret
            token = await self._on_thread(partial(_exchanged, issuer.token_url, form, secret))
        except (OSError, HTTPException, *_MALFORMED) as error:
            log.warning("the issuer refused to sign in: %s", shown_reason(error))
            raise SignInFailed(reason="the issuer did not confirm the sign-in") from None
        finally:
            self._waiting -= 1
        login = await self.login(token)
        if login is None or login.nonce != _derived("nonce", verifier):
            raise SignInFailed(reason="the issuer's token is not valid for this service")
        return token, login


def _login(claims: Mapping[str, Any], name_claim: str, now_s: float) -> Login:
    """Return the identity in verified claims; raises ValueError if there is no identity."""
    expires_s, begins_s = claims["exp"], max(claims.get("nbf", 0), claims["iat"])
    if not now_s < expires_s + LEEWAY_S:
        raise ValueError("it has expired")
    if begins_s > now_s + LEEWAY_S:
        raise ValueError("it is not valid yet")
    name = claims.get(name_claim)
    if not _is_name(name):
        raise ValueError(f"its claim {name_claim} is missing or empty")
    if name_claim == "email" and claims.get("email_verified") is not True:
        raise ValueError("its e-mail address is not verified")
    groups = claims.get("groups", [])
    if not isinstance(groups, list) or len(groups) > GROUPS_MAX:
        raise ValueError(f"its groups are not a list of at most {GROUPS_MAX}")
    return Login(
        f"oidc:{name}",
        tuple([f"group:{each}" for each in groups if _is_name(each)]),
        int((expires_s + LEEWAY_S) * 1000),
        str(claims.get("nonce", "")),
    )


def _is_name(text: object) -> bool:
    return (
        isinstance(text, str)
        and 0 < len(text) <= PRINCIPAL_LENGTH_MAX - len("group:")
        and text.isprintable()
        and " " not in text
    )


def _fetched(issuer: str) -> _Issuer:
    """Return the issuer's published data; raises if the issuer's answer is not usable."""
    from jwt import PyJWK, PyJWTError  # noqa: PLC0415 - most services have no issuer

    place = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    about = _answer(ClientRequest("GET", place, {}))
    if about.get("issuer") != issuer:
        raise HTTPException(f"it is {about.get('issuer')!r}")
    keys = {}
    for each in _answer(ClientRequest("GET", about["jwks_uri"], {}))["keys"][:KEYS_MAX]:
        if each.get("kty") == "oct" or each.get("use", "sig") != "sig":
            continue
        try:
            key = PyJWK(each)
        except PyJWTError:  # skip keys of unsupported kinds
            continue
        if key.algorithm_name in ALGORITHMS:
            keys[each.get("kid")] = key
    if not keys:
        raise HTTPException("it publishes no key that can be used")
    authorize_url, token_url = about["authorization_endpoint"], about["token_endpoint"]
    if not is_protected(authorize_url):
        raise HTTPException("its address for signing in has no TLS")
    groups = " groups" if "groups" in about.get("scopes_supported", ()) else ""
    return _Issuer(authorize_url, token_url, f"openid profile email{groups}", keys)


def _exchanged(url: str, form: Mapping[str, str], secret: str) -> str:
    """Return the ID token for a code; raises if the issuer returns no token."""
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    if secret:  # RFC 6749 2.3.1
        pair = f"{quote_plus(form['client_id'])}:{quote_plus(secret)}"
        headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
    request = ClientRequest("POST", url, headers, urlencode(form).encode())
    return str(_answer(request)["id_token"])


def _answer(request: ClientRequest) -> dict[str, Any]:
    if not is_protected(request.url):
        raise HTTPException("one of its addresses has no TLS")
    answer = exchange(request, timeout_s=TIMEOUT_S, bytes_max=ANSWER_BYTES_MAX)
    if answer.status != 200 or len(answer.body) > ANSWER_BYTES_MAX:
        raise HTTPException(f"it answered {answer.status} with {len(answer.body)} bytes")
    return json.loads(answer.body)  # type: ignore[no-any-return]


def _derived(purpose: str, verifier: str) -> str:
    """Return the PKCE challenge (a hash) of a verifier."""
    return sha256(f"{purpose} {verifier}".encode()).hexdigest()
