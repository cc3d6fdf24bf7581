"""Who calls Azure Resource Manager: by a token it gave out, or an operator's own. Source: Z-3.

In the emulator everybody on this machine may call, with any name and secret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.api.auth import (
    LOCAL,
    HostRefused,
    Principals,
    TokenMissing,
    check_site,
    host_name,
    is_loopback_address,
    names_loopback,
)
from forewarn.core.access import BUILT_IN, Principal
from forewarn.tokens import TokenWrong

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forewarn.azure.tokens import TokenIssuer

#: How history calls who acts through Azure Resource Manager, the name behind it.
ACTOR = "azure "


class ArmCallers:
    """Knows who calls, or refuses."""

    def __init__(self, callers: Principals, tokens: TokenIssuer) -> None:
        """Know those whom the operator API knows."""
        self.tokens = tokens
        self._callers = callers

    def check_site(self, headers: Mapping[str, str]) -> None:
        """Refuse what a page of another site has made a browser send.

        Raises:
            CrossSite: it is such a call.
        """
        check_site({name.encode(): text.encode("latin-1") for name, text in headers.items()})

    def principal(self, headers: Mapping[str, str], address: str) -> Principal:
        """Return who calls.

        Raises:
            TokenMissing, TokenWrong, TooManyRefused, HostRefused: they may not.
        """
        scheme, _, given = headers.get("authorization", "").partition(" ")
        given = given.strip() if scheme.lower() == "bearer" else ""
        subject = self.tokens.operator(given)
        if self._is_open(address):
            host = host_name(headers.get("host", ""))
            if not names_loopback(host):
                raise HostRefused(host=host)
            return Principal(subject or LOCAL, BUILT_IN)
        if not given:
            raise TokenMissing
        return self._callers.by_given_out(subject, given, address).bearer

    def admit(self, name: str, secret: str, address: str) -> str:
        """Return for whom a name and secret may have a token.

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
