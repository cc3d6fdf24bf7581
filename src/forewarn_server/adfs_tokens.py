"""Access tokens in the form of ADFS: issue and verify them.

Forewarn signs tokens and does not store them, so their number is unlimited. Source: Z-3.
"""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Callable, Mapping
from hashlib import sha256

from forewarn_base.clock import SystemClock
from forewarn_base.values import value

#: Lifetime of a token, in seconds, as in Azure.
LIFETIME_S = 3600
#: Tolerated clock difference between servers that share a key, in seconds.
CLOCK_SKEW_S = 300
#: Minimum length of a key in the settings, in bytes. Source: RFC 7518 3.2.
KEY_BYTES_MIN = 32
#: Id of the only tenant, because ADFS has one tenant.
TENANT_ID = "00000000-0000-0000-0000-000000000001"
#: Maximum length of a token in characters; Forewarn's tokens have about 500.
TOKEN_LENGTH_MAX = 4096

_HEADER = {"typ": "JWT", "alg": "HS256"}


@value
class TokenIssuer:
    """Issues and verifies tokens by the system's time, because clients use their own system time.

    The signature covers the stored record of the operator's token. Revoking that token
    therefore invalidates all tokens issued for it.
    """

    key: bytes
    #: Function that returns a token's stored record by id. Callers of the emulator have no token.
    digest_of: Callable[[str], str]

    def issue(self, operator: str, *, audience: str, issuer: str) -> str:
        """Return a token for an operator."""
        now_s = SystemClock().now_ms() // 1000
        claims = {
            "aud": audience,
            "iss": issuer,
            "iat": now_s,
            "nbf": now_s,
            "exp": now_s + LIFETIME_S,
            "appid": operator,
            "oid": operator,
            "sub": operator,
            "tid": TENANT_ID,
            "ver": "1.0",
        }
        text = f"{_encoded(_HEADER)}.{_encoded(claims)}"
        return f"{text}.{_base64(self._signature(text, operator))}"

    def operator(self, token: str) -> str:
        """Return the operator of a token; empty if the token is invalid or expired."""
        text, _, signature = token.rpartition(".")
        if not text.isascii() or not signature.isascii() or len(token) > TOKEN_LENGTH_MAX:
            return ""
        claims = _claims(text.partition(".")[2])
        name, expires = str(claims.get("oid", "")), claims.get("exp")
        if not hmac.compare_digest(_base64(self._signature(text, name)), signature):
            return ""
        left_s = expires - SystemClock().now_ms() // 1000 if isinstance(expires, int) else 0
        return name if 0 < left_s <= LIFETIME_S + CLOCK_SKEW_S else ""

    def _signature(self, text: str, operator: str) -> bytes:
        return hmac.digest(self.key, (text + self.digest_of(operator)).encode(), sha256)


def _encoded(value: Mapping[str, object]) -> str:
    return _base64(json.dumps(value, separators=(",", ":")).encode())


def _base64(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _claims(text: str) -> dict[str, object]:
    try:
        claims = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}
