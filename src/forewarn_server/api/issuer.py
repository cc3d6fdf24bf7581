"""The OpenID Connect issuer over HTTP: its published data, and its token for a sign-in.

PyJWT's `PyJWKClient` caches the issuer's keys, also over a failed fetch, selects keys, and limits
how often an unknown key id fetches them. `Issuer` adds limits on size and time, the addresses for
signing in, and a pause after a failed fetch. Only services with an issuer import this module,
because PyJWT takes long to load. Source: P-5.
"""

from __future__ import annotations

import json
import logging
from base64 import b64encode
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import quote_plus, urlencode

from jwt import PyJWK, PyJWKClient, PyJWKClientError, PyJWKSet, PyJWTError
from jwt.exceptions import PyJWKClientConnectionError

from forewarn_base.http_client import ClientRequest, exchange
from forewarn_base.urls import is_protected, shown_reason
from forewarn_base.values import value

log = logging.getLogger("forewarn.operator")

#: Maximum length of an answer, in bytes, maximum keys read from it, and its time limit in seconds.
ANSWER_BYTES_MAX, KEYS_MAX, TIMEOUT_S = 256 * 1024, 100, 5.0
#: Shortest time between two fetches for unknown key ids, and after a failed fetch, in seconds.
PAUSE_S = 10

#: Exceptions for a malformed token or answer.
MALFORMED = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)
#: Exceptions of an issuer that returns no usable answer.
UNUSABLE = (OSError, HTTPException, PyJWTError, *MALFORMED)


@value
class SignInAddresses:
    """The issuer's addresses for signing in; empty if the issuer publishes none."""

    authorize_url: str
    token_url: str
    scope: str


class Issuer(PyJWKClient):
    """The keys and addresses that an issuer publishes. Usable on any thread."""

    def __init__(self, issuer: str, *, lifespan_s: float, now_ms: Callable[[], int]) -> None:
        """Fetch nothing yet.

        Args:
            issuer: the issuer's address, as in its tokens.
            lifespan_s: how long keys stay valid without another successful fetch.
            now_ms: the service's clock.
        """
        place = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
        super().__init__(place, lifespan=lifespan_s, cooldown_duration=PAUSE_S)
        self._issuer = issuer
        self._now_ms = now_ms
        self._failed_ms = -1
        self.addresses: SignInAddresses | None = None

    def current(self) -> PyJWKSet | None:
        """Return the cached keys, without a fetch; None if they are missing or too old."""
        assert self.jwk_set_cache is not None, "PyJWT's cache is on by default"
        return self.jwk_set_cache.get()

    def cached(self, key_id: str | None) -> PyJWK | None:
        """Return a cached key by its id, or the only key; None if a fetch is needed first."""
        keys = self.current()
        return _select_key(keys, key_id) if keys else None

    def key(self, key_id: str | None) -> PyJWK | None:
        """Return a key by its id, or the only key; fetch the keys first if needed.

        Raises:
            PyJWKClientConnectionError: the issuer returned no usable answer.
        """
        if key_id is None:
            return _select_key(self.get_jwk_set(), key_id)
        try:
            return self.get_signing_key(key_id)
        except PyJWKClientConnectionError:
            raise
        except PyJWKClientError:
            return None

    def refresh(self) -> None:
        """Fetch the keys again; raises `PyJWKClientConnectionError` and keeps them on failure."""
        self.get_jwk_set(refresh=True)

    def fetch_data(self) -> PyJWKSet:
        """Fetch addresses and keys, as PyJWT requests.

        Raises:
            PyJWKClientConnectionError: the answers are not usable, or were not a moment ago.
        """
        now_ms = self._now_ms()
        if self._failed_ms >= 0 and 0 <= now_ms - self._failed_ms < PAUSE_S * 1000:
            raise PyJWKClientConnectionError("the last fetch failed a moment ago")
        try:
            addresses, keys = _fetch_published(self.uri, self._issuer)
        except UNUSABLE as error:
            self._failed_ms = now_ms
            reason = shown_reason(error)
            log.warning("the keys of %s could not be fetched: %s", self._issuer, reason)
            raise PyJWKClientConnectionError(reason) from error
        self._failed_ms = -1
        self.addresses = addresses
        return keys


def _select_key(keys: PyJWKSet, key_id: str | None) -> PyJWK | None:
    if key_id is None:
        return keys.keys[0] if len(keys.keys) == 1 else None
    return PyJWKClient.match_kid(keys.keys, key_id)


def _fetch_published(place: str, issuer: str) -> tuple[SignInAddresses, PyJWKSet]:
    """Return what the issuer publishes; raises if its answers are not usable."""
    about = _answer(ClientRequest("GET", place, {}))
    if about.get("issuer") != issuer:
        raise HTTPException(f"it is {about.get('issuer')!r}")
    keys = [
        each
        for each in _answer(ClientRequest("GET", about["jwks_uri"], {}))["keys"][:KEYS_MAX]
        if each.get("kty") != "oct" and each.get("use", "sig") == "sig"
    ]
    groups = " groups" if "groups" in about.get("scopes_supported", ()) else ""
    addresses = SignInAddresses(
        str(about.get("authorization_endpoint", "")),
        str(about.get("token_endpoint", "")),
        f"openid profile email{groups}",
    )
    return addresses, PyJWKSet(keys)


def exchange_code(url: str, form: Mapping[str, str], secret: str) -> str:
    """Return the ID token for a code; raises one of `UNUSABLE` if there is none."""
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    if secret:  # RFC 6749 2.3.1
        pair = f"{quote_plus(form['client_id'])}:{quote_plus(secret)}"
        headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
    request = ClientRequest("POST", url, headers, urlencode(form).encode())
    return str(_answer(request)["id_token"])


def _answer(request: ClientRequest) -> dict[str, Any]:
    if not is_protected(request.url):
        raise HTTPException("one of its addresses has no TLS")
    response = exchange(request, timeout_s=TIMEOUT_S, bytes_max=ANSWER_BYTES_MAX)
    if response.status != 200 or len(response.body) > ANSWER_BYTES_MAX:
        raise HTTPException(f"it answered {response.status} with {len(response.body)} bytes")
    return json.loads(response.body)  # type: ignore[no-any-return]
