"""Who calls Azure Resource Manager: by a token it gave out, or an operator's own. Source: Z-3.

In the emulator everybody on this machine may call, with any name and secret.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from forewarn.api.auth import (
    LOCAL,
    HostRefused,
    TokenMissing,
    check_site,
    host_name,
    is_loopback_address,
    names_loopback,
)
from forewarn.tokens import RefusedTokens, read_tokens

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forewarn.azure.tokens import TokenIssuer
    from forewarn.clock import Clock
    from forewarn.settings import OperatorSettings

#: How history calls who acts through Azure Resource Manager, the name behind it.
ACTOR = "azure "


class ArmCallers:
    """Knows who calls, or refuses."""

    def __init__(self, settings: OperatorSettings, clock: Clock, tokens: TokenIssuer) -> None:
        """Know the operators of the settings.

        Raises:
            TokenInvalid: a token of the settings cannot be one.
        """
        self.tokens = tokens
        self._operators = read_tokens(settings.tokens)
        self._open_on_loopback = settings.open_on_loopback
        self._refused = RefusedTokens(settings.max_refused_tokens, clock.now_ms)

    def check_site(self, headers: Mapping[str, str]) -> None:
        """Refuse what a page of another site has made a browser send.

        Raises:
            CrossSite: it is such a call.
        """
        check_site({name.encode(): text.encode("latin-1") for name, text in headers.items()})

    def actor(self, headers: Mapping[str, str], address: str) -> str:
        """Return who calls, as history names them.

        Raises:
            TokenMissing, TokenWrong, TooManyRefused, HostRefused: they may not.
        """
        scheme, _, given = headers.get("authorization", "").partition(" ")
        name = self._named(given.strip()) if scheme.lower() == "bearer" else ""
        if name not in self._operators and not self._is_open(address):
            name = ""  # an operator who was removed, or a caller of a service that was open then
        if not name and self._is_open(address):
            host = host_name(headers.get("host", ""))
            if not names_loopback(host):
                raise HostRefused(host=host)
            name = LOCAL
        if not name and not given:
            raise TokenMissing
        if not self._is_open(address):
            self._refused.judge(name, address)
        return f"{ACTOR}{name}" + (f" at {address}" if address else "")

    def admit(self, name: str, secret: str, address: str) -> None:
        """Let a name and secret have a token.

        Raises:
            TokenWrong, TooManyRefused: the secret is not that operator's.
        """
        if self._is_open(address):
            return
        token = self._operators.get(name, b"")
        right = hmac.compare_digest(token, secret.encode()) and token != b""
        self._refused.judge(name if right else "", address)

    def _named(self, given: str) -> str:
        """Return the operator a token belongs to; empty: nobody."""
        found = ""
        for name, token in self._operators.items():  # all: the time taken reveals nothing
            if hmac.compare_digest(token, given.encode()):
                found = name
        return found or self.tokens.operator(given)

    def _is_open(self, address: str) -> bool:
        return self._open_on_loopback and (not address or is_loopback_address(address))
