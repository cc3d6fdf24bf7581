"""Forewarn: Scheduled Events for any cloud. The SDK's public names, and nothing else.

Example:
    import forewarn
    for document in forewarn.Client().changes():
        for event in document.events:
            print(event.event_type, event.status, event.resources)
"""

TYPE_CHECKING = False  # `typing` is too heavy for the agent
if TYPE_CHECKING:
    from forewarn.agent.aio import AsyncClient
    from forewarn.agent.client import Client
    from forewarn.agent.dialogue import NotNow, NoVersion, Refused
    from forewarn.errors import CallerError, ForewarnError, OurError, PeerError
    from forewarn.wire import VERSIONS, Document, ScheduledEvent

__all__ = [
    "VERSIONS",
    "AsyncClient",
    "CallerError",
    "Client",
    "Document",
    "ForewarnError",
    "NoVersion",
    "NotNow",
    "OurError",
    "PeerError",
    "Refused",
    "ScheduledEvent",
]

_HOMES = {
    "AsyncClient": "forewarn.agent.aio",
    "CallerError": "forewarn.errors",
    "Client": "forewarn.agent.client",
    "Document": "forewarn.wire",
    "ForewarnError": "forewarn.errors",
    "NoVersion": "forewarn.agent.dialogue",
    "NotNow": "forewarn.agent.dialogue",
    "OurError": "forewarn.errors",
    "PeerError": "forewarn.errors",
    "Refused": "forewarn.agent.dialogue",
    "ScheduledEvent": "forewarn.wire",
    "VERSIONS": "forewarn.wire",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, so that nobody pays for the others."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = __import__(_HOMES[name], fromlist=[name])
    return getattr(home, name)


def __dir__() -> list[str]:
    """Name the public names."""
    return sorted(__all__)
