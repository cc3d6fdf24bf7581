"""Faults on demand: what the emulator can do to an answer. Source: E-10.

No fault is thought up in here; the emulator decides, this says what it can ask for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from forewarn.values import value

if TYPE_CHECKING:
    from forewarn.metadata.http.request import HttpRequest
    from forewarn.metadata.http.response import Response
    from forewarn.metadata.identity import Peer


@value
class InjectedFault:
    """What happens to one answer; the parts may be combined."""

    hold_s: float = 0.0
    """Hold the answer this long, in real seconds."""
    answer: Response | None = None
    """Answer this instead (410, 429, 500, an empty 200 …)."""
    reset: bool = False
    """Reset the connection instead of answering."""
    truncate: bool = False
    """Send half of the body, then close the connection."""
    incarnation_ahead: int = 0
    """Show an incarnation this much higher over the same events."""


class Fault(Protocol):
    """Decides about each request; `MetadataServer.set_fault` installs it at run time."""

    def fault_for(self, vm: str, request: HttpRequest) -> InjectedFault | None:
        """Return what happens to this request of this VM; None: nothing."""


@value
class Outdated:
    """Gives every VM one answer, since what this process shows may be old. Source: H-3."""

    answer: Response

    def fault_for(self, vm: str, request: HttpRequest) -> InjectedFault:
        """Return that answer."""
        del vm, request
        return InjectedFault(answer=self.answer)


class Absence(Protocol):
    """Decides about requests of nobody; `MetadataServer.set_absence` installs it."""

    def fault_for(self, peer: Peer, request: HttpRequest) -> InjectedFault | None:
        """Return whether it is held, then reset, or reset at once; None: it is answered 404."""
