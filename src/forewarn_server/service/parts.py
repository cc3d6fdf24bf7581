"""The parts of a process in each of its roles: one frozen set, built in order.

A takeover builds the next set from the one before, and `Daemon.parts` then names the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn_base.values import value
from forewarn_server.control.driver_calls import CallLimits, DriverSetup

if TYPE_CHECKING:
    from forewarn_base.settings import DriverSettings
    from forewarn_metadata.endpoint.server import MetadataServer
    from forewarn_metadata.replication.server import FeedServer
    from forewarn_server.api.relay import Relay
    from forewarn_server.control.plane import ControlPlane
    from forewarn_server.control.planner_host import PlannerProcess
    from forewarn_server.control.run_loop import ControlLoop
    from forewarn_server.control.standby import StateFollower
    from forewarn_server.service.configured import ConfiguredParts
    from forewarn_server.service.observers import Observers
    from forewarn_server.service.outbox_runner import OutboxRunner
    from forewarn_server.service.workers import Workers


@value
class BoundAddresses:
    """The actual addresses of the service."""

    metadata: tuple[str, ...]
    operator: str
    #: URL of Azure Resource Manager, and its certificate file; empty: not served.
    azure: str = ""
    azure_certificate: str = ""


@value
class FollowerParts:
    """The parts of a process that follows the active one."""

    #: Has the documents, and opens no address.
    metadata: MetadataServer
    control: StateFollower
    #: Forwards requests of this process's metadata nodes to the active process, and the feed for
    #: these nodes; None: the process has no feed.
    relay: Relay | None
    feed: FeedServer | None


@value
class ActiveParts:
    """The parts of the process that decides."""

    plane: ControlPlane
    metadata: MetadataServer
    observers: Observers
    #: The feed for metadata nodes in other processes; None without nodes.
    feed: FeedServer | None
    control: ControlLoop
    #: The processes that share the metadata addresses; None without workers.
    workers: Workers | None
    outbox: OutboxRunner


def driver_setup(
    settings: DriverSettings,
    configured: ConfiguredParts,
    *,
    planner: PlannerProcess,
    observers: Observers,
) -> DriverSetup:
    """Return the drivers of an active process with their limits, its gates and its planner."""
    limits = CallLimits(
        timeout_ms=int(settings.call_timeout_s * 1000),
        max_concurrent=settings.max_concurrent_calls,
        unanswered_ms=int(settings.unanswered_timeout_s * 1000),
    )
    return DriverSetup(
        configured.drivers,
        settings.default,
        limits,
        gates=configured.gates,
        planner=planner,
        observe=observers.observe_call,
    )
