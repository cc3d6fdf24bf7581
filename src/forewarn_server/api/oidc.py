"""OIDC: identifies callers by ID tokens of the configured issuer.

`issuer.py` fetches the issuer's keys with PyJWT; this module fetches them again at intervals, on a
thread, so that keys that the issuer has withdrawn end their tokens. Keys stay valid for as long as
the longest session, so that logins stay valid while the issuer is unavailable. PyJWT checks
signature, issuer and audience. Source: P-5.
"""

from __future__ import annotations

import asyncio
import logging
import math
from base64 import urlsafe_b64encode
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from forewarn_base.errors import CallerError, PeerError
from forewarn_base.ids import Ids
from forewarn_base.urls import is_protected, shown_reason
from forewarn_base.values import value
from forewarn_core.access.roles import PRINCIPAL_LENGTH_MAX
from forewarn_metadata.tokens import TokenWrong

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jwt import PyJWK

    from forewarn_base.clock import Clock
    from forewarn_base.settings import OidcSettings
    from forewarn_server.api.issuer import Issuer, SignInAddresses
    from forewarn_server.api.sign_outs import SignOuts

log = logging.getLogger("forewarn.operator")

#: Accepted signature algorithms; all use public keys.
ALGORITHMS = frozenset(
    f"{family}{bits}" for family in ("RS", "PS", "ES") for bits in (256, 384, 512)
) | {"EdDSA"}
#: Claims that a token must contain.
REQUIRED = ["iss", "aud", "sub", "exp", "iat"]
#: Header `typ` of an ID token, in lower case and without `application/`; empty: no header.
ID_TOKEN_TYPES = frozenset({"", "jwt"})
#: Claims in which some issuers say what a token is for -> the word for an ID token.
ID_TOKEN_WORDS = {"typ": "ID", "token_use": "id"}
#: Maximum length of a token in characters, groups of a login, and cached verified tokens.
TOKEN_LENGTH_MAX, GROUPS_MAX, LOGINS_MAX = 16 * 1024, 1000, 10_000
#: Age at which keys are fetched again, in milliseconds.
REFRESH_MS = 600_000
#: Accepted difference between the issuer's clock and the service's, in seconds.
LEEWAY_S = 10
#: Maximum number of sign-ins that wait for the issuer at a time.
SIGN_INS_MAX = 16


class IssuerUnavailable(PeerError):
    """The issuer does not answer, and the key of a token is not known."""

    code = "issuer-unavailable"
    status = 503
    message = "The issuer {issuer} returns no usable answer, so its tokens cannot be checked."
    advice = "Check the issuer and [oidc] in the settings, or use a token (`fw_…`) meanwhile."


class IssuerTokenWrong(TokenWrong):
    """A token of the issuer is not valid for this service."""

    code = "issuer-token-wrong"
    message = "The token of the issuer {issuer} is not accepted: {reason}."
    advice = (
        "Get an ID token of this issuer for this service, and see [oidc] in the settings. Tokens "
        "of Forewarn begin with `fw_`."
    )


class SignInUnavailable(CallerError):
    """No issuer is configured for signing in."""

    code = "sign-in-unavailable"
    status = 404
    message = "No issuer for signing in is configured."
    advice = "Use a token (--token-file, FOREWARN_TOKEN), or set [oidc] in the service's settings."


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
    #: When the issuer has issued the token, and when the login ends, ms since the epoch UTC.
    issued_ms: int
    expires_ms: int
    #: SHA-256 of the token, in hexadecimal.
    digest: str
    nonce: str = ""


class Oidc:
    """Verifies tokens of the issuer, and signs people in. Use it on one event loop."""

    def __init__(self, settings: OidcSettings, clock: Clock, sign_outs: SignOuts) -> None:
        self._clock = clock
        self._sign_outs = sign_outs
        self._threads = ThreadPoolExecutor(2, "oidc")
        self._waiting = 0
        self.adopt(settings)

    def adopt(self, settings: OidcSettings) -> None:
        """Replace the settings; later calls verify all tokens again."""
        self.settings = settings
        self._issuer: Issuer | None = None
        self._refreshing: asyncio.Future[None] | None = None
        self._refreshed_ms = self._clock.now_ms()
        #: Verified tokens by digest, and the keys that have verified them.
        self._logins: OrderedDict[str, Login] = OrderedDict()
        self._keys: object = None

    async def login(self, token: str) -> Login:
        """Return the identity in a token.

        Raises:
            TokenWrong: no issuer is configured.
            IssuerTokenWrong: the token is not valid.
            IssuerUnavailable: the key of the token is not known.
        """
        if not self.settings.issuer:
            raise TokenWrong
        if len(token) > TOKEN_LENGTH_MAX:
            raise self._wrong(f"it has more than {TOKEN_LENGTH_MAX} characters")
        self._refresh()
        digest = sha256(token.encode()).hexdigest()
        await self._sign_outs.read()
        login = self._logins.get(digest)
        if login is None:
            login = await self._verify(token, digest)
            self._logins[digest] = login
            if len(self._logins) > LOGINS_MAX:
                self._logins.popitem(last=False)
        if self._has_ended(login):
            raise self._wrong("its session has ended")
        if not self.is_current(login):
            raise self._wrong("its claim `exp` is in the past, or its session is too long")
        return login

    def is_current(self, login: Login) -> bool:
        """Return whether a login is still valid."""
        return self._clock.now_ms() < login.expires_ms and not self._has_ended(login)

    def _has_ended(self, login: Login) -> bool:
        return self._sign_outs.cover(login.digest, login.issued_ms)

    async def sign_out(self, token: str) -> Login | None:
        """End the session of a token in every process; None if it had no valid session."""
        try:
            login = await self.login(token)
        except (TokenWrong, IssuerUnavailable):
            return None
        await self._sign_outs.add(login.digest, login.expires_ms)
        return login

    def _wrong(self, reason: str) -> IssuerTokenWrong:
        return IssuerTokenWrong(issuer=self.settings.issuer, reason=reason)

    async def _verify(self, token: str, digest: str) -> Login:
        import jwt  # noqa: PLC0415 - most services have no issuer

        from forewarn_server.api.issuer import MALFORMED  # noqa: PLC0415 - the same

        settings = self.settings
        try:
            header = jwt.get_unverified_header(token)
            key = await self._key(header.get("kid"))
            if key is None:
                raise self._wrong("the issuer has no key with its `kid`")
            if key.algorithm_name not in ALGORITHMS:
                raise self._wrong("its key is not a public key of a supported kind")
            claims = jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                audience=settings.client_id,
                issuer=settings.issuer,
                # compare times with the service's clock, as each later call does
                options={
                    "require": REQUIRED,
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                    "enforce_minimum_key_length": True,
                },
            )
            _check_kind(header, claims, settings.client_id)
            return _login(claims, settings, digest, self._clock.now_ms() / 1000)
        except jwt.MissingRequiredClaimError as error:
            raise self._wrong(f"its claim `{error.claim}` is missing") from None
        except jwt.InvalidAudienceError:
            reason = f"its claim `aud` does not name {settings.client_id}"
            raise self._wrong(reason) from None
        except jwt.InvalidIssuerError:
            raise self._wrong(f"its claim `iss` is not {settings.issuer}") from None
        except _ClaimWrong as error:
            raise self._wrong(str(error)) from None
        except (jwt.PyJWTError, *MALFORMED) as error:
            log.info("token of the issuer refused: %.200r", str(error))
            raise self._wrong("its form or signature is not valid") from None

    async def _key(self, key_id: str | None) -> PyJWK | None:
        """Return a key of the issuer; only callers with an unknown key wait for a fetch.

        Raises:
            IssuerUnavailable: the key is unknown, and the issuer does not answer.
        """
        issuer = self._issuer_keys()
        key = issuer.cached(key_id)
        if key is None:
            key = await self._fetch(partial(issuer.key, key_id))
        if issuer.current() is not self._keys:  # withdrawn keys must not stay in the cache
            self._forget_logins(issuer)
        return key

    def _issuer_keys(self) -> Issuer:
        from forewarn_server.api.issuer import Issuer  # noqa: PLC0415 - most services have no issuer

        if self._issuer is None:
            self._issuer = Issuer(
                self.settings.issuer,
                lifespan_s=self.settings.max_session_s,
                now_ms=self._clock.now_ms,
            )
        return self._issuer

    def _forget_logins(self, issuer: Issuer) -> None:
        self._logins.clear()
        self._keys = issuer.current()

    def _refresh(self) -> None:
        """Start to fetch the issuer's keys again if they are old."""
        issuer, now_ms = self._issuer_keys(), self._clock.now_ms()
        if issuer.current() is not self._keys:
            self._forget_logins(issuer)
        if self._refreshing is None and not 0 <= now_ms - self._refreshed_ms < REFRESH_MS:
            self._refreshed_ms = now_ms
            self._refreshing = asyncio.ensure_future(self._refresh_issuer(issuer))

    async def _refresh_issuer(self, issuer: Issuer) -> None:
        from jwt import PyJWTError  # noqa: PLC0415 - most services have no issuer

        try:
            await self._on_thread(issuer.refresh)
        except PyJWTError:
            pass  # `issuer.py` has logged the reason
        finally:
            if self._issuer is issuer:
                self._refreshing = None

    async def _fetch(self, fetch: Callable[[], Any]) -> Any:  # noqa: ANN401 - what the fetch returns
        from jwt.exceptions import PyJWKClientConnectionError  # noqa: PLC0415 - as above

        try:
            return await self._on_thread(fetch)
        except PyJWKClientConnectionError:
            raise IssuerUnavailable(issuer=self.settings.issuer) from None

    async def _on_thread(self, work: Callable[[], Any]) -> Any:  # noqa: ANN401 - what the work returns
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _addresses(self) -> SignInAddresses:
        """Return the issuer's addresses for signing in.

        Raises:
            SignInUnavailable, IssuerUnavailable, SignInFailed: signing in is not possible.
        """
        if not self.settings.issuer:
            raise SignInUnavailable
        issuer = self._issuer_keys()
        if issuer.addresses is None:
            await self._fetch(issuer.refresh)
        addresses = issuer.addresses
        assert addresses is not None, "a successful fetch sets them"
        if not (is_protected(addresses.authorize_url) and is_protected(addresses.token_url)):
            raise SignInFailed(reason="the issuer publishes no address with TLS for signing in")
        return addresses

    async def begin(self, origin: str) -> tuple[str, str]:
        """Return the issuer's sign-in URL, and the secret that the browser stores until it returns.

        Raises:
            SignInUnavailable, IssuerUnavailable, SignInFailed: signing in is not possible.
        """
        issuer = await self._addresses()
        verifier = Ids().token("verifier") + Ids().token("verifier")
        digest = sha256(verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": f"{origin}/",
            "scope": issuer.scope,
            "state": _challenge("state", verifier),
            "nonce": _challenge("nonce", verifier),
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
        if not verifier or state != _challenge("state", verifier):
            raise SignInFailed(reason="the sign-in was begun in another browser, or too long ago")
        issuer = await self._addresses()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": f"{origin}/",
            "client_id": self.settings.client_id,
            "code_verifier": verifier,
        }
        token = await self._exchange(issuer.token_url, form)
        try:
            login = await self.login(token)
        except IssuerTokenWrong as error:
            reason = f"the issuer's token is not accepted: {error.facts['reason']}"
            raise SignInFailed(reason=reason) from None
        if login.nonce != _challenge("nonce", verifier):
            reason = "the claim `nonce` of the issuer's token is that of another sign-in"
            raise SignInFailed(reason=reason)
        return token, login

    async def _exchange(self, url: str, form: Mapping[str, str]) -> str:
        from forewarn_server.api.issuer import UNUSABLE, exchange_code  # noqa: PLC0415 - as above

        if self._waiting >= SIGN_INS_MAX:
            raise IssuerUnavailable(issuer=self.settings.issuer)
        self._waiting += 1
        try:
            secret = self.settings.client_secret
            token: str = await self._on_thread(partial(exchange_code, url, form, secret))
        except UNUSABLE as error:
            log.warning("the issuer refused to sign in: %s", shown_reason(error))
            raise SignInFailed(reason="the issuer did not confirm the sign-in") from None
        finally:
            self._waiting -= 1
        return token


class _ClaimWrong(Exception):
    """A claim is not acceptable; the text says which and why."""


def _check_kind(header: Mapping[str, Any], claims: Mapping[str, Any], client_id: str) -> None:
    """Accept only an ID token for this client.

    Issuers sign access tokens and logout tokens with the same keys. Source: OpenID Connect Core
    3.1.3.7, RFC 8725 3.11.
    """
    kind = str(header.get("typ") or "")
    if kind.lower().removeprefix("application/") not in ID_TOKEN_TYPES:
        raise _ClaimWrong(f"its header `typ` is {kind[:32]!r}, not that of an ID token")
    for name, word in ID_TOKEN_WORDS.items():
        if claims.get(name, word) != word:
            raise _ClaimWrong(f"its claim `{name}` is not `{word}`, as in ID tokens")
    if "events" in claims:
        raise _ClaimWrong("its claim `events` says that it is a logout token")
    audience = claims["aud"]
    alone = not isinstance(audience, list) or len(audience) == 1
    if claims.get("azp", client_id if alone else None) != client_id:
        raise _ClaimWrong(f"its claim `azp` is not {client_id}, so it is for another client")


def _login(claims: Mapping[str, Any], settings: OidcSettings, digest: str, now_s: float) -> Login:
    """Return the identity in verified claims; raises `_ClaimWrong` if there is none."""
    issued_s, expires_s = _time(claims, "iat"), _time(claims, "exp") + LEEWAY_S
    begins_s = max(issued_s, _time(claims, "nbf") if "nbf" in claims else issued_s)
    ends_s = issued_s + settings.max_session_s
    if now_s >= expires_s:
        raise _ClaimWrong("its claim `exp` is in the past")
    if now_s >= ends_s:
        limit = f"{settings.max_session_s} s ([oidc] max_session_s)"
        raise _ClaimWrong(f"its claim `iat` is more than {limit} ago")
    if begins_s > now_s + LEEWAY_S:
        raise _ClaimWrong("its claim `iat` or `nbf` is in the future")
    name = str(claims.get(settings.name_claim, ""))
    if not _is_name(claims.get(settings.name_claim)) or " " in name:
        raise _ClaimWrong(f"its claim `{settings.name_claim}` is missing or not a name")
    if settings.name_claim == "email" and claims.get("email_verified") is not True:
        raise _ClaimWrong("its claim `email_verified` is not true")
    return Login(
        f"oidc:{name}",
        _groups(claims.get("groups")),
        int(issued_s * 1000),
        int(min(expires_s, ends_s) * 1000),
        digest,
        str(claims.get("nonce", "")),
    )


def _time(claims: Mapping[str, Any], name: str) -> float:
    time = claims[name]
    if isinstance(time, bool) or not isinstance(time, int | float) or not math.isfinite(time):
        raise _ClaimWrong(f"its claim `{name}` is not a time")
    return time


def _groups(claim: object) -> tuple[str, ...]:
    """Return the principals of the claim `groups`: a list, one name, or nothing."""
    groups = [claim] if isinstance(claim, str) else claim or []
    if not isinstance(groups, list) or len(groups) > GROUPS_MAX:
        raise _ClaimWrong(f"its claim `groups` is not a name or a list of at most {GROUPS_MAX}")
    return tuple([f"group:{each}" for each in groups if _is_name(each)])


def _is_name(text: object) -> bool:
    return (
        isinstance(text, str)
        and 0 < len(text) <= PRINCIPAL_LENGTH_MAX - len("group:")
        and text.isprintable()
        and text == text.strip()
    )


def _challenge(purpose: str, verifier: str) -> str:
    """Return the PKCE challenge (a hash) of a verifier."""
    return sha256(f"{purpose} {verifier}".encode()).hexdigest()
