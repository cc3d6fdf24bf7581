"""Faults that the emulator can inject into answers. Source: E-10.

The emulator decides on faults; this module defines the possible ones.
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
    """The fault of one answer; the parts may be combined."""

    hold_s: float = 0.0
    """Delay the answer by this many real seconds."""
    answer: Response | None = None
    """Answer this instead (410, 429, 500, an empty 200 …)."""
    reset: bool = False
    """Reset the connection instead of answering."""
    truncate: bool = False
    """Send half of the body, then close the connection."""
    incarnation_ahead: int = 0
    """Show an incarnation this much higher, with the same events."""


class Fault(Protocol):
    """Decides on the fault of each request; `MetadataServer.set_fault` installs it at run time."""

    def fault_for(self, vm: str, request: HttpRequest) -> InjectedFault | None:
        """Return the fault of this VM's request; None: no fault."""


@value
class Outdated:
    """Gives every VM one answer while this process may serve outdated documents. Source: H-3."""

    answer: Response

    def fault_for(self, vm: str, request: HttpRequest) -> InjectedFault:
        """Return that answer."""
        del vm, request
        return InjectedFault(answer=self.answer)


class Absence(Protocol):
    """Decides on requests of unknown callers; `MetadataServer.set_absence` installs it."""

    def fault_for(self, peer: Peer, request: HttpRequest) -> InjectedFault | None:
        """Return whether to delay and then reset, or to reset at once; None: answer 404."""
