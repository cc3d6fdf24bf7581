"""Impacts and causes of disturbances, and the notice that each impact requires.

Only constant tables and their value types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from forewarn_base.values import Word, value

SECOND_MS = 1000
MINUTE_S = 60
DAY_S = 24 * 60 * MINUTE_S

#: Shortest and longest terminate notification, in seconds (`PT5M` to `PT15M`). Source: N-1.
TERMINATE_NOTICE_S_MIN = 5 * MINUTE_S
TERMINATE_NOTICE_S_MAX = 15 * MINUTE_S

#: How early predicted hardware failure is announced, in seconds. Source: N-2.
PREDICTION_S = 7 * DAY_S

#: An expected interruption that is unknown or does not apply. Source: D-9.
DURATION_UNKNOWN_S = -1
#: Maximum expected interruption, and maximum work on one host, in seconds: one day.
DURATION_S_MAX = DAY_S


class Impact(Word):
    """The effect on the virtual machines; the wire's `EventType`. Source: D-4."""

    FREEZE = "Freeze"
    REBOOT = "Reboot"
    REDEPLOY = "Redeploy"
    PREEMPT = "Preempt"
    TERMINATE = "Terminate"


class Source(Word):
    """The side that requested the event; the wire's `EventSource`. Source: D-8."""

    PLATFORM = "Platform"
    USER = "User"


class TargetKind(Word):
    """The kind of target: host or VM."""

    HOST = "host"
    VM = "vm"


class Cause(Word):
    """Why a disturbance happens: one row of the table of causes. Source: O-2."""

    LIVE_MIGRATION = "live-migration"
    HOST_UPDATE = "host-update"
    HOST_REBOOT = "host-reboot"
    NETWORK_UPDATE = "network-update"
    HARDWARE_DEGRADED = "hardware-degraded"
    HARDWARE_FAILURE = "hardware-failure"
    HOST_LOST = "host-lost"
    REBOOT = "reboot"
    REDEPLOY = "redeploy"
    EVICTION = "eviction"
    DELETION = "deletion"
    REIMAGE = "reimage"


#: The least notice of each impact, in seconds. Terminate's comes from the group. Source: N-1.
NOTICE_S: dict[Impact, int] = {
    Impact.FREEZE: 15 * MINUTE_S,
    Impact.REBOOT: 15 * MINUTE_S,
    Impact.REDEPLOY: 10 * MINUTE_S,
    Impact.PREEMPT: 30,
    Impact.TERMINATE: TERMINATE_NOTICE_S_MIN,
}

MAINTENANCE_TEXT = "Host server is undergoing maintenance."
MIGRATION_TEXT = (
    "Virtual machine is being paused because of a memory-preserving Live Migration operation."
)
RESTART_TEXT = "Virtual machine is going to be restarted as requested by authorized user."
REDEPLOY_TEXT = "Virtual machine is going to be redeployed as requested by authorized user."
FAILURE_TEXT = "Virtual machine has encountered a failure."

#: How long a live migration pauses a VM, in seconds. Source: C-4.
MIGRATION_S = 5


@value
class Traits:
    """The properties of a cause, which a request may override in part."""

    target: TargetKind
    impact: Impact
    source: Source
    #: Routine maintenance rather than a recovery: G-1 applies if the platform requests it.
    routine: bool
    #: The description that clients match on. Source: D-11.
    description: str
    #: Expected interruption in seconds; -1 unknown, 0 none. Source: D-9.
    duration_s: int = DURATION_UNKNOWN_S
    #: Starts without announcement as soon as it is recorded. Source: L-4.
    fault: bool = False
    #: Other impacts that a request may choose, with description and expected interruption of each.
    also: Mapping[Impact, tuple[str, int]] = field(default_factory=dict)
    #: The VMs may run on another host afterwards.
    moves: bool = False

    def shown(self, impact: Impact) -> tuple[str, int]:
        """Return the announced description and expected interruption in seconds of an impact.

        Source: D-9, D-11.
        """
        return self.also.get(impact, (self.description, self.duration_s))


_PLATFORM, _USER = Source.PLATFORM, Source.USER

TRAITS: dict[Cause, Traits] = {
    Cause.LIVE_MIGRATION: Traits(
        TargetKind.HOST,
        Impact.FREEZE,
        _PLATFORM,
        True,
        MIGRATION_TEXT,
        duration_s=MIGRATION_S,
        moves=True,
    ),
    Cause.HOST_UPDATE: Traits(
        TargetKind.HOST,
        Impact.FREEZE,
        _PLATFORM,
        True,
        MAINTENANCE_TEXT,
        duration_s=9,
        also={Impact.REBOOT: (MAINTENANCE_TEXT, DURATION_UNKNOWN_S)},
    ),
    Cause.HOST_REBOOT: Traits(TargetKind.HOST, Impact.REBOOT, _PLATFORM, True, MAINTENANCE_TEXT),
    Cause.NETWORK_UPDATE: Traits(
        TargetKind.HOST, Impact.FREEZE, _PLATFORM, True, MAINTENANCE_TEXT, duration_s=0
    ),
    Cause.HARDWARE_DEGRADED: Traits(
        TargetKind.HOST,
        Impact.REDEPLOY,
        _PLATFORM,
        False,
        FAILURE_TEXT,
        also={Impact.FREEZE: (MIGRATION_TEXT, MIGRATION_S)},  # a live migration
        moves=True,
    ),
    Cause.HARDWARE_FAILURE: Traits(
        TargetKind.HOST, Impact.REBOOT, _PLATFORM, False, FAILURE_TEXT, fault=True
    ),
    Cause.HOST_LOST: Traits(
        TargetKind.HOST, Impact.REDEPLOY, _PLATFORM, False, FAILURE_TEXT, fault=True, moves=True
    ),
    Cause.REBOOT: Traits(TargetKind.VM, Impact.REBOOT, _USER, True, RESTART_TEXT),
    Cause.REDEPLOY: Traits(TargetKind.VM, Impact.REDEPLOY, _USER, True, REDEPLOY_TEXT, moves=True),
    Cause.EVICTION: Traits(TargetKind.VM, Impact.PREEMPT, _PLATFORM, False, ""),
    Cause.DELETION: Traits(TargetKind.VM, Impact.TERMINATE, _USER, False, ""),
    Cause.REIMAGE: Traits(TargetKind.VM, Impact.REBOOT, _USER, True, ""),
}

#: Causes that delete the virtual machine.
REMOVES_VM = frozenset({Cause.EVICTION, Cause.DELETION})

#: First letters of the size families whose image upgrade is not announced. Source: O-2.
SIZES_WITHOUT_REIMAGE_NOTICE = frozenset("GMNH")
