"""The nova driver's settings: the cloud, time limits, policies and commands.

Nothing is connected to here.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from forewarn.drivers.host_command import COMMAND
from forewarn.validation.fields import Boolean, Integer, Text
from forewarn.validation.forms import Field, Form
from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Mapping

#: A day, in seconds.
DAY_S = 86_400
#: Action when a live migration exceeds its time limit.
GIVE_UP, FORCE_COMPLETE = "give-up", "force-complete"
#: Names of VMs: their server's id, or its name.
BY_ID, BY_NAME = "id", "name"
#: How a server is rebooted.
SOFT, HARD = "soft", "hard"


@value
class NovaConfig:
    """All settings of the driver."""

    #: The cloud's name in `clouds.yaml`; empty: the environment variables `OS_…` describe it.
    cloud: str = ""
    #: The file `clouds.yaml`; empty: openstacksdk's usual places.
    clouds_file: str = ""
    region: str = ""
    vm_names: str = BY_ID
    #: Maximum servers moved or evacuated at a time, for each operation.
    parallel_moves: int = 2
    migration_timeout_s: int = 1800
    migration_fallback: str = GIVE_UP
    reboot_type: str = SOFT
    #: Time limit of Nova's work on one server, except a live migration.
    server_timeout_s: int = 900
    #: How long Nova's API may be unavailable before a task fails.
    unreachable_timeout_s: int = 300
    #: Time limit for a compute service to return after its host's reboot.
    host_timeout_s: int = 1800
    #: Whether a host's compute service is enabled again once its VMs have been migrated away.
    enable_after_drain: bool = True
    #: Reboots a host; `{host}` is filled in. Empty: only its servers are rebooted.
    reboot_command: tuple[str, ...] = ()
    #: Updates a host while its servers are paused.
    update_command: tuple[str, ...] = ()
    #: Ensures that a lost host is off, before its servers are evacuated.
    fence_command: tuple[str, ...] = ()
    command_timeout_s: int = 600
    #: Seconds that a compute service may be down before `topology import --follow` reports its host
    #: lost; 0: never.
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
        Field("vm_names", _one_of(BY_ID, BY_NAME), "Whether VMs have their server's id or name."),
        Field("parallel_moves", Integer(1, 1000), "Maximum servers moved at a time."),
        Field("migration_timeout_s", _SECONDS, "Time limit of a live migration."),
        Field(
            "migration_fallback",
            _one_of(GIVE_UP, FORCE_COMPLETE),
            "Action when a migration exceeds the limit.",
        ),
        Field("reboot_type", _one_of(SOFT, HARD), "How a server is rebooted."),
        Field("server_timeout_s", _SECONDS, "Time limit of other work on one server."),
        Field("unreachable_timeout_s", _SECONDS, "How long Nova's API may be unavailable."),
        Field("host_timeout_s", _SECONDS, "Time limit for a compute service to return."),
        Field("enable_after_drain", Boolean(), "Whether a drained host is enabled again."),
        Field("reboot_command", COMMAND, "Reboots a host."),
        Field("update_command", COMMAND, "Updates a host while its servers are paused."),
        Field("fence_command", COMMAND, "Ensures that a lost host is off."),
        Field("command_timeout_s", _SECONDS, "Longest command."),
        Field("lost_after_s", Integer(0, DAY_S), "Seconds down before a host is reported lost."),
    ),
)
assert {each.name for each in FORM.fields} == {each.name for each in fields(NovaConfig)}


def read_options(name: str, options: Mapping[str, object]) -> NovaConfig:
    """Return the configuration of a driver by its table in the service's settings.

    Raises:
        ValidationFailed: an option is unknown, missing or wrong.
    """
    return NovaConfig(**FORM.read(dict(options), f"[drivers.{name}]"))
