"""Follows the service's operations, and shows them on the Kubernetes nodes of their hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.cli.following import Follower
from forewarn.cli.listing import records

if TYPE_CHECKING:
    from forewarn.cli.api_client import ApiClient
    from forewarn.drivers.kubernetes.host_notices import HostNotices


class NodeMarker(Follower):
    """Brings the notices of a cluster's nodes in line with the service's operations."""

    shown = "~ node {}"

    def __init__(self, client: ApiClient, notices: HostNotices) -> None:
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
