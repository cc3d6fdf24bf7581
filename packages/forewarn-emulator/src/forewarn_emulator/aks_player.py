"""Plays AKS for a cluster with the events of a running emulator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from forewarn_server.cli.api_client import ApiClient
from forewarn_server.cli.following import Followed, Follower
from forewarn_server.cli.listing import records


class Remediator(Followed, Protocol):
    """Plays AKS for one cluster."""

    def turn(self, events: Iterable[Mapping[str, Any]], now_ms: int) -> list[str]:
        """Do what AKS would do now; return what was done."""


class AksPlayer(Follower):
    """Cordons, drains and returns the nodes of a cluster as the emulator's events ask for it."""

    def __init__(self, client: ApiClient, remediator: Remediator) -> None:
        super().__init__(remediator)
        self._client = client
        self._remediator = remediator

    def once(self) -> tuple[list[str], list[str]]:
        """Do what AKS would do now; return what was done, and no problems.

        Raises:
            ForewarnError: the emulator or the API server does not answer.
        """
        events = list(records(self._client, "/v1/events", "events"))
        return self._remediator.turn(events, self._client.now_ms), []
