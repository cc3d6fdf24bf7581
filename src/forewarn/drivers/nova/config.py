"""The nova driver's settings: the cloud, time limits, policies and commands.

This module opens no connections.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from forewarn.drivers.host_command import COMMAND_TYPE
from forewarn.validation.fields import Boolean, Integer, Text
from forewarn.validation.forms import Field, Form
from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Mapping

#: A day, in seconds.
DAY_S = 86_400
#: Action when a live migration exceeds its time limit.
GIVE_UP, FORCE_COMPLETE = "give-up", "force-complete"
#: Choices for the names of VMs: the server's id or the server's name.
BY_ID, BY_NAME = "id", "name"
#: Kind of reboot of a server.
SOFT, HARD = "soft", "hard"


@value
class NovaConfig:
    """All settings of the driver."""

    #: The cloud's name in `clouds.yaml`; empty: the environment variables `OS_…` describe the
    #: cloud.
    cloud: str = ""
    #: Path of `clouds.yaml`; empty: the default paths of openstacksdk.
    clouds_file: str = ""
    region: str = ""
    vm_names: str = BY_ID
    #: Maximum number of servers that an operation moves or evacuates in parallel.
    parallel_moves: int = 2
    migration_timeout_s: int = 1800
    migration_fallback: str = GIVE_UP
    reboot_type: str = SOFT
    #: Time limit of Nova's work on one server, except a live migration.
    server_timeout_s: int = 900
    #: Time without Nova's API after which a task fails.
    unreachable_timeout_s: int = 300
    #: Time limit for a compute service to return after its host's reboot.
    host_timeout_s: int = 1800
    #: Whether the driver enables a host's compute service after moving the VMs away.
    enable_after_drain: bool = True
    #: Command that reboots a host; `{host}` is replaced. Empty: the driver reboots only the
    #: servers.
    reboot_command: tuple[str, ...] = ()
    #: Command that updates a host while its servers are paused.
    update_command: tuple[str, ...] = ()
    #: Command that ensures that a lost host is off, before its servers are evacuated.
    fence_command: tuple[str, ...] = ()
    command_timeout_s: int = 600
    #: Seconds of a compute service's failure after which `topology import --follow` reports the
    #: host as lost; 0: never.
    lost_after_s: int = 0


_SECONDS = Integer(1, DAY_S)


def _one_of(*words: str) -> Text:
    return Text(pattern="|".join(words), wanted=f"one of {', '.join(words)}")


FORM = Form(
    "NovaDriver",
    "A driver for OpenStack Nova.",
    (
        Field("cloud", Text(255), "The cloud's name in clouds.yaml."),
        Field("clouds_file", Text(4096), "The file clouds.yaml."),
        Field("region", Text(255), "Region, if the cloud has several."),
        Field("vm_names", _one_of(BY_ID, BY_NAME), "Name of a VM: its server's id or name."),
        Field("parallel_moves", Integer(1, 1000), "Maximum number of servers moved in parallel."),
        Field("migration_timeout_s", _SECONDS, "Time limit of a live migration."),
        Field(
            "migration_fallback",
            _one_of(GIVE_UP, FORCE_COMPLETE),
            "Action when a migration exceeds its time limit.",
        ),
        Field("reboot_type", _one_of(SOFT, HARD), "Kind of reboot of a server."),
        Field("server_timeout_s", _SECONDS, "Time limit of each action on a server."),
        Field(
            "unreachable_timeout_s", _SECONDS, "Time without Nova's API after which a task fails."
        ),
        Field("host_timeout_s", _SECONDS, "Time limit for a compute service to return."),
        Field(
            "enable_after_drain", Boolean(), "Whether to enable a host again after it is drained."
        ),
        Field("reboot_command", COMMAND_TYPE, "Command that reboots a host."),
        Field(
            "update_command",
            COMMAND_TYPE,
            "Command that updates a host while its servers are paused.",
        ),
        Field("fence_command", COMMAND_TYPE, "Command that ensures that a lost host is off."),
        Field("command_timeout_s", _SECONDS, "Time limit of a command."),
        Field(
            "lost_after_s",
            Integer(0, DAY_S),
            "Seconds of failure after which a host is reported as lost.",
        ),
    ),
)
assert {each.name for each in FORM.fields} == {each.name for each in fields(NovaConfig)}


def read_options(name: str, options: Mapping[str, object]) -> NovaConfig:
    """Parse the driver's table in the service's settings.

    Raises:
        ValidationFailed: an option is unknown, missing or invalid.
    """
    return NovaConfig(**FORM.read(dict(options), f"[drivers.{name}]"))
