"""Access tokens of the ADFS form: given out for a name and a token, and read again.

They are signed and nothing is kept of them, so their number has no limit to it. Source: Z-3.
"""

from __future__ import annotations

import base64
import hmac
import json
from hashlib import sha256
from typing import TYPE_CHECKING

from forewarn.clock import SystemClock
from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: How long a token is good for, in seconds; Azure's are good for about as long.
LIFETIME_S = 3600
#: How far the clocks of two servers with one key may differ, in seconds.
CLOCK_SKEW_S = 300
#: Shortest key of the settings, in bytes. Source: RFC 7518 3.2.
KEY_BYTES_MIN = 32
#: The one tenant there is: with ADFS nobody chooses between several.
TENANT_ID = "00000000-0000-0000-0000-000000000001"
#: Longest token that is looked at, in characters; ours have some 500.
TOKEN_LENGTH_MAX = 4096

_HEADER = {"typ": "JWT", "alg": "HS256"}


@value
class TokenIssuer:
    """Gives out tokens and knows its own; time is the system's, as the clients' is.

    What the service keeps of a token is part of what is signed, so a revoked one ends what it gave
    out.
    """

    key: bytes
    #: Returns what the service keeps of a token, by its id; a caller of an emulator has none.
    digest_of: Callable[[str], str]

    def issue(self, operator: str, *, audience: str, issuer: str) -> str:
        """Return a token in which an operator is named."""
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
        """Return whom a token of ours names; empty: it is none, or has expired."""
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
