"""The nova driver's settings: the cloud, time limits, policies and commands.

This module opens no connections.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from forewarn_base.validation.fields import Boolean, Choice, Integer, Text
from forewarn_base.validation.forms import read_table
from forewarn_base.values import value
from forewarn_drivers.host_command import COMMAND_TYPE

#: A day, in seconds.
DAY_S = 86_400
#: Action when a live migration exceeds its time limit.
GIVE_UP, FORCE_COMPLETE = "give-up", "force-complete"
#: Choices for the names of VMs: the server's id or the server's name.
BY_ID, BY_NAME = "id", "name"
#: Kind of reboot of a server.
SOFT, HARD = "soft", "hard"


def _one_of(*words: str) -> Choice:
    return Choice({each: each for each in words})


_SECONDS = Integer(1, DAY_S)


@value
class NovaConfig:
    """All settings of the driver."""

    #: The cloud's name in `clouds.yaml`; empty: the environment variables `OS_…` describe the
    #: cloud.
    cloud: Annotated[str, Text(255)] = ""
    #: Path of `clouds.yaml`; empty: the default paths of openstacksdk.
    clouds_file: Annotated[str, Text(4096)] = ""
    region: Annotated[str, Text(255)] = ""
    vm_names: Annotated[str, _one_of(BY_ID, BY_NAME)] = BY_ID
    #: Maximum number of servers that an operation moves or evacuates in parallel.
    parallel_moves: Annotated[int, Integer(1, 1000)] = 2
    migration_timeout_s: Annotated[int, _SECONDS] = 1800
    migration_fallback: Annotated[str, _one_of(GIVE_UP, FORCE_COMPLETE)] = GIVE_UP
    reboot_type: Annotated[str, _one_of(SOFT, HARD)] = SOFT
    #: Time limit of Nova's work on one server, except a live migration.
    server_timeout_s: Annotated[int, _SECONDS] = 900
    #: Time without Nova's API after which a task fails.
    unreachable_timeout_s: Annotated[int, _SECONDS] = 300
    #: Time limit for a compute service to return after its host's reboot.
    host_timeout_s: Annotated[int, _SECONDS] = 1800
    #: Whether the driver enables a host's compute service after moving the VMs away.
    enable_after_drain: Annotated[bool, Boolean()] = True
    #: Command that reboots a host; `{host}` is replaced. Empty: the driver reboots only the
    #: servers.
    reboot_command: Annotated[tuple[str, ...], COMMAND_TYPE] = ()
    #: Command that updates a host while its servers are paused.
    update_command: Annotated[tuple[str, ...], COMMAND_TYPE] = ()
    #: Command that ensures that a lost host is off, before its servers are evacuated.
    fence_command: Annotated[tuple[str, ...], COMMAND_TYPE] = ()
    command_timeout_s: Annotated[int, _SECONDS] = 600
    #: Seconds of a compute service's failure after which `topology import --follow` reports the
    #: host as lost; 0: never.
    lost_after_s: Annotated[int, Integer(0, DAY_S)] = 0


def read_options(name: str, options: Mapping[str, object]) -> NovaConfig:
    """Parse the driver's table in the service's settings.

    Raises:
        ValidationFailed: an option is unknown, missing or invalid.
    """
    return read_table(NovaConfig, options, f"[drivers.{name}]")
