"""Faults that the emulator can inject into answers. Source: E-10.

The emulator chooses faults; this module defines the possible faults.
"""

from __future__ import annotations

from typing import Protocol

from forewarn_base.values import value
from forewarn_metadata.endpoint.http.request import HttpRequest
from forewarn_metadata.endpoint.http.response import Response
from forewarn_metadata.endpoint.identity import Peer


@value
class InjectedFault:
    """The fault of one answer; the parts may be combined."""

    #: Delay the answer by this many real seconds.
    hold_s: float = 0.0
    #: Replacement of the answer, such as status 410, 429, 500 or an empty 200.
    answer: Response | None = None
    #: Reset the connection instead of answering.
    reset: bool = False
    #: Send half of the body, then close the connection.
    truncate: bool = False
    #: Amount by which the shown incarnation is higher, with the same events.
    incarnation_ahead: int = 0


class Fault(Protocol):
    """Decides on the fault of each request; `MetadataServer.set_fault` installs it at run time."""

    def fault_for(self, vm: str, request: HttpRequest) -> InjectedFault | None:
        """Return the fault of this VM's request; None: no fault."""


@value
class Outdated:
    """Fault with one answer for every VM while this process may have outdated documents.

    Source: H-3.
    """

    answer: Response

    def fault_for(self, vm: str, request: HttpRequest) -> InjectedFault:
        """Return the fault with the answer."""
        del vm, request
        return InjectedFault(answer=self.answer)


class Absence(Protocol):
    """Decides on requests of unknown callers; see `EmulatedAnswers`."""

    def fault_for(self, peer: Peer, request: HttpRequest) -> InjectedFault | None:
        """Return the delay before a reset of the connection; None: answer 404."""
