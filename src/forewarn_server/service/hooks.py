"""What a program adds to a service: given once, to the service's constructor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forewarn_base.values import value
from forewarn_metadata.endpoint.responder import EmulatedAnswers
from forewarn_server.control.standby import TERM_MS
from forewarn_server.service.operators import cannot_reload

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from forewarn_server.control.plane import ControlPlane


@value
class ServiceHooks:
    """Functions and limits of the program that runs a service."""

    #: Returns event ids; None: random ones. Source: D-3.
    new_guid: Callable[[], str] | None = None
    #: Called with the control plane before any client.
    prepare: Callable[[ControlPlane], None] = lambda _: None
    #: Returns the answers to VMs that only an emulator has; called after `prepare`.
    emulated: Callable[[], EmulatedAnswers] = EmulatedAnswers
    #: Called when VMs are served, before the operator API opens.
    on_serving: Callable[[], None] = lambda: None
    #: Called with the operator API's address when the service becomes a standby.
    on_standby: Callable[[str], None] = lambda _: None
    #: Returns further routes for the operator API.
    more_routes: Callable[[], Sequence[object]] = tuple
    #: Returns the function that applies changed settings to a service and returns the sections
    #: that need a restart.
    reload: Callable[[Any], Callable[[], Awaitable[tuple[str, ...]]]] = lambda _: cannot_reload
    #: Duration of the service's lease of a shared store, in ms.
    term_ms: int = TERM_MS


NO_HOOKS = ServiceHooks()
