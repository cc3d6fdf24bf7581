"""Authentication of Azure Resource Manager, by issued tokens or operators' tokens. Source: Z-3.

The emulator accepts any name and secret from this machine.
"""

from __future__ import annotations

from collections.abc import Mapping

from forewarn_base.host_port import host_of_header
from forewarn_metadata.tokens import TokenWrong
from forewarn_server.adfs_tokens import TokenIssuer
from forewarn_server.api.auth import (
    LOCAL,
    ApiCaller,
    HostRefused,
    Principals,
    ProxyRefused,
    TokenMissing,
    built_in,
    is_loopback_address,
    names_loopback,
    proxy_header,
)

#: Prefix of the actor in history for a call of Azure Resource Manager.
ACTOR = "azure "


class ArmCallers:
    """Identifies the callers of Azure Resource Manager."""

    def __init__(self, callers: Principals, tokens: TokenIssuer) -> None:
        self.tokens = tokens
        self._callers = callers

    def caller(self, headers: Mapping[str, str], address: str) -> ApiCaller:
        """Return the caller.

        Raises:
            TokenMissing, TokenWrong, TooManyRefused, HostRefused, ProxyRefused: the call is
                refused.
        """
        scheme, _, given = headers.get("authorization", "").partition(" ")
        given = given.strip() if scheme.lower() == "bearer" else ""
        subject = self.tokens.operator(given)
        if self._is_open(address):
            host = host_of_header(headers.get("host", ""))
            if not names_loopback(host):
                raise HostRefused(host=host)
            if not subject:
                _check_direct(headers)
            return built_in(subject or LOCAL)
        if not given:
            raise TokenMissing
        return self._callers.bearer(self._callers.by_given_out(subject, given, address))

    def admit(self, name: str, secret: str, *, headers: Mapping[str, str], address: str) -> str:
        """Return the principal of a name and a secret, before a token is issued.

        Raises:
            TokenWrong, TooManyRefused: the secret is not a token of that principal.
            ProxyRefused: a proxy sent the secret for somebody else, and every secret is good here.
        """
        if self._is_open(address):
            _check_direct(headers)
            return name
        token = self._callers.by_token(secret, address)
        if name not in {token.principal, token.id}:
            raise TokenWrong
        return token.id

    def _is_open(self, address: str) -> bool:
        loopback = not address or is_loopback_address(address)
        return self._callers.open_on_loopback and loopback


def _check_direct(headers: Mapping[str, str]) -> None:
    header = proxy_header({name.encode(): b"" for name in headers})
    if header:
        raise ProxyRefused(header=header)
