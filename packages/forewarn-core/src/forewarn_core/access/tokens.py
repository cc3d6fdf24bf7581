"""Bearer tokens `fw_ID_SECRET`, which are stored without their secrets. Source: P-4."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from hashlib import sha256

from forewarn_base.values import value
from forewarn_core.access.roles import Principal, Role


@value
class AccessToken:
    """A bearer token `fw_ID_SECRET`, stored without its secret. Source: P-4."""

    id: str
    #: The holder of the token; history names this principal.
    principal: str
    role: Role
    #: Scope of the token; empty: the whole fleet.
    owner: str
    #: SHA-256 of the secret, in hexadecimal. The secret has 256 random bits, so a fast hash is
    #: safe.
    digest: str
    created_ms: int
    #: Expiry, ms since the epoch UTC; None: the token never expires.
    expires_ms: int | None
    #: Whether the token is refused until an administrator resumes it, as after a restore. U-5.
    suspended: bool = False
    #: Principals who may know the secret besides the holder, sorted: the one who received it, and
    #: those who may know the secret of that one's own token. Source: P-8.
    makers: tuple[str, ...] = ()

    def is_accepted(self, now_ms: int) -> bool:
        """Whether calls with the token are accepted: it is neither suspended nor expired."""
        return not self.suspended and (self.expires_ms is None or now_ms < self.expires_ms)

    @property
    def bearer(self) -> Principal:
        """Return the token's holder with only the permissions of the token."""
        return Principal(self.principal, ((self.role.value, self.owner),))


#: Prefix of a token, so that people and secret scanners recognise it.
TOKEN_PREFIX = "fw"  # noqa: S105 - no secret


def written_token(token_id: str, secret: str) -> str:
    """Return the text of a token, `fw_ID_SECRET`."""
    return f"{TOKEN_PREFIX}_{token_id}_{secret}"


def id_of(token: str) -> str:
    """Return the id in a text of the form `fw_ID_SECRET`; empty: another text."""
    prefix, _, rest = token.partition("_")
    return rest.partition("_")[0] if prefix == TOKEN_PREFIX else ""


def digest_of(secret: str) -> str:
    """Return the digest of a secret, for storage."""
    return sha256(secret.encode()).hexdigest()


def proved(
    given: str, find: Callable[[str], AccessToken | None], now_ms: int
) -> AccessToken | None:
    """Return the token of `fw_ID_SECRET`; None if it is unknown, suspended or expired."""
    token_id = id_of(given)
    secret = given.removeprefix(f"{TOKEN_PREFIX}_{token_id}_")
    token = find(token_id) if token_id else None
    # Compare digests even for an unknown id, so that timing does not reveal which ids exist.
    right = hmac.compare_digest(token.digest if token else "", digest_of(secret))
    if token is None or not right or not token.is_accepted(now_ms):
        return None
    return token
