"""Follows the resources of a cluster, and answers them with the tokens of its namespaces."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from forewarn_base.errors import CallerError, reason_of
from forewarn_server.cli.api_client import ApiClient
from forewarn_server.cli.following import Followed, Follower
from forewarn_server.cli.listing import records

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Maximum number of namespaces with a token.
NAMESPACES_MAX = 10_000


class TokensUnreadable(CallerError):
    """The directory with the tokens of namespaces cannot be read."""

    code = "tokens-unreadable"
    message = "The tokens in {directory} cannot be read: {reason}."
    advice = "The directory has one file for each namespace: its name, with the token in it."


class NamespaceApi(ApiClient):
    """The operator API with the token of one namespace."""

    def whoami(self) -> str:
        """Return the principal of the token."""
        return str(self.get("/v1/whoami")["principal"])

    def events(self) -> list[Mapping[str, Any]]:
        """Return the events that have not ended."""
        return list(records(self, "/v1/events", "events"))

    def declarations(self) -> list[Mapping[str, Any]]:
        """Return the declared maintenances that concern the owner's VMs."""
        return list(self.get("/v1/declarations")["declarations"])


class NamespaceResources(Followed, Protocol):
    """The resources of a cluster's namespaces."""

    def turn(self, apis: Mapping[str, NamespaceApi]) -> tuple[list[str], list[str]]:
        """Write all differences; return the changed resources, and the problems."""


class ResourceAnswerer(Follower):
    """Brings the resources of a cluster in line with the service."""

    def __init__(
        self, server: str, tokens: Path, resources: NamespaceResources, *, ca: str = ""
    ) -> None:
        super().__init__(resources)
        self._server = server
        self._tokens = tokens
        self._resources = resources
        self._ca = ca

    def once(self) -> tuple[list[str], list[str]]:
        """Write all differences once; return the changed resources, and the problems.

        The tokens are read again each time, so that a rotated Secret needs no restart.

        Raises:
            ForewarnError: the tokens, the service or the API server do not answer.
        """
        return self._resources.turn(self._apis())

    def _apis(self) -> dict[str, NamespaceApi]:
        try:
            # A mounted Secret has further, hidden entries.
            files = [each for each in self._tokens.iterdir() if not each.name.startswith(".")]
            tokens = {each.name: each.read_text("utf-8").strip() for each in files}
        except (OSError, UnicodeDecodeError) as error:
            reason = reason_of(error)
            raise TokensUnreadable(directory=self._tokens, reason=reason) from error
        if len(tokens) > NAMESPACES_MAX:
            reason = f"there are more than {NAMESPACES_MAX}"
            raise TokensUnreadable(directory=self._tokens, reason=reason)
        apis = {}
        for namespace, token in tokens.items():
            apis[namespace] = NamespaceApi(self._server, token)
            apis[namespace].ca = self._ca
        return apis
