"""Authentication of Azure Resource Manager, by issued tokens or operators' tokens. Source: Z-3.

The emulator accepts any name and secret from this machine.
"""

from __future__ import annotations

from collections.abc import Mapping

from forewarn.api.auth import (
    LOCAL,
    HostRefused,
    Principals,
    TokenMissing,
    is_loopback_address,
    names_loopback,
)
from forewarn.azure.tokens import TokenIssuer
from forewarn.core.access import BUILT_IN, Principal
from forewarn.host_port import host_of_header
from forewarn.tokens import TokenWrong

#: Prefix of the actor in history for a call of Azure Resource Manager.
ACTOR = "azure "


class ArmCallers:
    """Identifies the callers of Azure Resource Manager."""

    def __init__(self, callers: Principals, tokens: TokenIssuer) -> None:
        self.tokens = tokens
        self._callers = callers

    def principal(self, headers: Mapping[str, str], address: str) -> Principal:
        """Return the principal of the caller.

        Raises:
            TokenMissing, TokenWrong, TooManyRefused, HostRefused: the call is refused.
        """
        scheme, _, given = headers.get("authorization", "").partition(" ")
        given = given.strip() if scheme.lower() == "bearer" else ""
        subject = self.tokens.operator(given)
        if self._is_open(address):
            host = host_of_header(headers.get("host", ""))
            if not names_loopback(host):
                raise HostRefused(host=host)
            return Principal(subject or LOCAL, BUILT_IN)
        if not given:
            raise TokenMissing
        return self._callers.by_given_out(subject, given, address).bearer

    def admit(self, name: str, secret: str, address: str) -> str:
        """Return the principal of a name and a secret, before a token is issued.

        Raises:
            TokenWrong, TooManyRefused: the secret is not a token of that principal.
        """
        if self._is_open(address):
            return name
        token = self._callers.by_token(secret, address)
        if name not in {token.principal, token.id}:
            raise TokenWrong
        return token.id

    def _is_open(self, address: str) -> bool:
        loopback = not address or is_loopback_address(address)
        return self._callers.open_on_loopback and loopback
