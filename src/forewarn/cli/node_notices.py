"""Follows the service's operations, and shows them on the Kubernetes nodes of their hosts."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

from forewarn.cli.output import note
from forewarn.errors import ForewarnError
from forewarn.exit_codes import OK

if TYPE_CHECKING:
    from forewarn.cli.api_client import ApiClient
    from forewarn.drivers.kubernetes.host_notices import HostNotices

#: Maximum number of pages of live operations.
PAGES_MAX = 1000


class NodeMarker:
    """Brings the notices of a cluster's nodes in line with the service's operations."""

    def __init__(self, client: ApiClient, notices: HostNotices) -> None:
        self._client = client
        self._notices = notices
        #: Problems of the last turn, which are printed once.
        self._said: set[str] = set()

    def once(self) -> tuple[list[str], list[str]]:
        """Write all differences once; return the changed nodes, and the problems.

        Raises:
            ForewarnError: the service or the API server does not answer.
        """
        return self._notices.turn(live_operations(self._client))

    def turn(self) -> None:
        """Write all differences; print each new problem once."""
        try:
            changed, problems = self.once()
        except ForewarnError as error:
            changed, problems = [], [str(error)]
        for each in changed:
            note(f"~ node {each}")
        for each in problems:
            if each not in self._said:
                note(each)
        self._said = set(problems)

    def follow(self, ended: threading.Event | None = None) -> int:
        """Write differences until interrupted, or until `ended` is set before a turn."""
        changed = self._notices.watch()
        sys.stderr.flush()
        while ended is None or not ended.is_set():
            changed.clear()
            self.turn()
            changed.wait(self._notices.every_s)
        self._notices.close()
        return OK


def live_operations(client: ApiClient) -> list[dict[str, Any]]:
    """Return all operations that have not ended."""
    operations: list[dict[str, Any]] = []
    query: dict[str, Any] = {"live": "true"}
    for _ in range(PAGES_MAX):
        page = client.get("/v1/operations", **query)
        operations += page["operations"]
        if not page.get("next"):
            break
        query["before"] = page["next"]
    return operations
