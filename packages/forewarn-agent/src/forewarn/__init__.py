"""Forewarn: Scheduled Events for any cloud. This module exports the SDK's public names.

Example:
    import forewarn
    for document in forewarn.Client().changes():
        for event in document.events:
            print(event.event_type, event.status, event.resources)
"""

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from forewarn.agent.sdk.aio import AsyncClient
    from forewarn.agent.sdk.client import Client
    from forewarn.agent.sdk.declarations import (
        ChoiceNotAccepted,
        Declarations,
        DeclarationsUnavailable,
    )
    from forewarn.agent.sdk.dialogue import (
        ClientClosed,
        RequestRejected,
        TemporarilyUnavailable,
        UnsupportedApiVersion,
    )
    from forewarn.agent.sdk.handler import Handler
    from forewarn_base.errors import CallerError, ForewarnError, OurError, PeerError
    from forewarn_base.protocol.documents import Document, ScheduledEvent
    from forewarn_base.protocol.versions import VERSIONS

__all__ = [
    "VERSIONS",
    "AsyncClient",
    "CallerError",
    "ChoiceNotAccepted",
    "Client",
    "ClientClosed",
    "Declarations",
    "DeclarationsUnavailable",
    "Document",
    "ForewarnError",
    "Handler",
    "OurError",
    "PeerError",
    "RequestRejected",
    "ScheduledEvent",
    "TemporarilyUnavailable",
    "UnsupportedApiVersion",
]

_HOMES = {
    "VERSIONS": "forewarn_base.protocol.versions",
    "AsyncClient": "forewarn.agent.sdk.aio",
    "CallerError": "forewarn_base.errors",
    "ChoiceNotAccepted": "forewarn.agent.sdk.declarations",
    "Client": "forewarn.agent.sdk.client",
    "ClientClosed": "forewarn.agent.sdk.dialogue",
    "Declarations": "forewarn.agent.sdk.declarations",
    "DeclarationsUnavailable": "forewarn.agent.sdk.declarations",
    "Document": "forewarn_base.protocol.documents",
    "ForewarnError": "forewarn_base.errors",
    "Handler": "forewarn.agent.sdk.handler",
    "OurError": "forewarn_base.errors",
    "PeerError": "forewarn_base.errors",
    "RequestRejected": "forewarn.agent.sdk.dialogue",
    "ScheduledEvent": "forewarn_base.protocol.documents",
    "TemporarilyUnavailable": "forewarn.agent.sdk.dialogue",
    "UnsupportedApiVersion": "forewarn.agent.sdk.dialogue",
}


def __getattr__(name: str) -> object:
    """Import a public name at its first use, so that unused names cost nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = __import__(_HOMES[name], fromlist=[name])
    return getattr(home, name)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
