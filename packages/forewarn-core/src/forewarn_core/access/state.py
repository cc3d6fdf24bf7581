"""The live records of access."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from forewarn_core.access.confirmations import Confirmation
from forewarn_core.access.roles import Authority, Permission, Principal
from forewarn_core.access.tokens import AccessToken

AccessRecord: TypeAlias = Principal | AccessToken | Confirmation


@dataclass(slots=True)
class AccessState:
    """Who has which roles, the tokens, and the calls that wait for a second principal."""

    #: Role bindings by principal, and tokens by id. Source: P-2.
    principals: dict[str, Principal] = field(default_factory=dict)
    tokens: dict[str, AccessToken] = field(default_factory=dict)
    #: Calls that wait for a second principal, by number. Source: P-8.
    confirmations: dict[int, Confirmation] = field(default_factory=dict)

    def persons(self, authority: Authority) -> frozenset[str]:
        """Return the principals who may have made a call: the caller, and who knows its token."""
        token = self.tokens.get(authority.token)
        return frozenset((authority.principal, *(token.makers if token else ())))

    def holds(self, authority: Authority, permission: Permission, now_ms: int) -> bool:
        """Whether a caller still has a permission for the whole fleet."""
        if authority.built_in:
            return True
        if authority.token:
            token = self.tokens.get(authority.token)
            if token is None or token.principal != authority.principal:
                return False
            return token.is_accepted(now_ms) and token.bearer.owners_for(permission) is None
        principals = [each for name in authority.names if (each := self.principals.get(name))]
        return any(each.owners_for(permission) is None for each in principals)

    def next_expiry_ms(self, now_ms: int) -> int | None:
        """Return when the next waiting call expires, ms since the epoch UTC; None without one."""
        expiries_ms = (each.expires_ms for each in self.confirmations.values())
        return min((each for each in expiries_ms if each > now_ms), default=None)
