"""Follows the service's operations, and shows them on the Kubernetes nodes of their hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from forewarn_server.cli.following import Followed, Follower
from forewarn_server.cli.listing import records

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from forewarn_server.cli.api_client import ApiClient


class NodeNotices(Followed, Protocol):
    """The notices of a cluster's nodes."""

    def turn(self, operations: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
        """Write all differences; return the changed nodes, and the problems."""


class NodeMarker(Follower):
    """Brings the notices of a cluster's nodes in line with the service's operations."""

    shown = "~ node {}"

    def __init__(self, client: ApiClient, notices: NodeNotices) -> None:
        super().__init__(notices)
        self._client = client
        self._notices = notices

    def once(self) -> tuple[list[str], list[str]]:
        """Write all differences once; return the changed nodes, and the problems.

        Raises:
            ForewarnError: the service or the API server does not answer.
        """
        live = records(self._client, "/v1/operations", "operations", cursor="before", live="true")
        return self._notices.turn(list(live))
