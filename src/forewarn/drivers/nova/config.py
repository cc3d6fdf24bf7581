"""The nova driver's settings: which cloud, time limits, policies and commands.

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
#: What is done with a live migration that does not end in time.
GIVE_UP, FORCE_COMPLETE = "give-up", "force-complete"
#: What VMs are called: their server's id, or its name.
BY_ID, BY_NAME = "id", "name"
#: How a server is rebooted.
SOFT, HARD = "soft", "hard"


@value
class NovaConfig:
    """Everything that can be set."""

    #: The cloud's name in `clouds.yaml`; empty: by the environment's variables `OS_…`.
    cloud: str = ""
    #: The file `clouds.yaml`; empty: where openstacksdk looks for one.
    clouds_file: str = ""
    region: str = ""
    vm_names: str = BY_ID
    #: Servers that are moved or evacuated at a time, for each operation.
    parallel_moves: int = 2
    migration_timeout_s: int = 1800
    migration_fallback: str = GIVE_UP
    reboot_type: str = SOFT
    #: How long Nova may take with one server, for everything but a live migration.
    server_timeout_s: int = 900
    #: How long Nova's API may be away before a task fails.
    unreachable_timeout_s: int = 300
    #: How long a compute service may take to be back after its host's reboot.
    host_timeout_s: int = 1800
    #: Whether a host's compute service is enabled again once its VMs have been migrated away.
    enable_after_drain: bool = True
    #: Reboots a host; `{host}` is filled in. Empty: only its servers are rebooted.
    reboot_command: tuple[str, ...] = ()
    #: Updates a host while its servers are paused.
    update_command: tuple[str, ...] = ()
    #: Makes sure that a lost host is off, before its servers are evacuated.
    fence_command: tuple[str, ...] = ()
    command_timeout_s: int = 600
    #: Seconds a compute service may be down before `topology import --follow` reports its host
    #: lost; 0: never.
    lost_after_s: int = 0


_SECONDS = Integer(1, DAY_S)


def _one_of(*words: str) -> Text:
    return Text(pattern="|".join(words), wanted=f"one of {', '.join(words)}")


FORM = Form(
    "NovaDriver",
    "A driver whose work is done by OpenStack Nova.",
    (
        Field("cloud", Text(255), "The cloud's name in clouds.yaml."),
        Field("clouds_file", Text(4096), "The file clouds.yaml."),
        Field("region", Text(255), "Region, where the cloud has several."),
        Field("vm_names", _one_of(BY_ID, BY_NAME), "What VMs are called."),
        Field("parallel_moves", Integer(1, 1000), "Servers moved at a time."),
        Field("migration_timeout_s", _SECONDS, "Longest live migration."),
        Field("migration_fallback", _one_of(GIVE_UP, FORCE_COMPLETE), "What is done after that."),
        Field("reboot_type", _one_of(SOFT, HARD), "How a server is rebooted."),
        Field("server_timeout_s", _SECONDS, "Longest work on one server."),
        Field("unreachable_timeout_s", _SECONDS, "Longest silence of Nova's API."),
        Field("host_timeout_s", _SECONDS, "Longest absence of a compute service."),
        Field("enable_after_drain", Boolean(), "Whether a drained host is enabled again."),
        Field("reboot_command", COMMAND, "Reboots a host."),
        Field("update_command", COMMAND, "Updates a host under paused servers."),
        Field("fence_command", COMMAND, "Makes sure that a host is off."),
        Field("command_timeout_s", _SECONDS, "Longest command."),
        Field("lost_after_s", Integer(0, DAY_S), "When a host that is down is reported lost."),
    ),
)
assert {each.name for each in FORM.fields} == {each.name for each in fields(NovaConfig)}


def read_options(name: str, options: Mapping[str, object]) -> NovaConfig:
    """Return the configuration of a driver by its table in the service's settings.

    Raises:
        ValidationFailed: an option is unknown, missing or wrong.
    """
    return NovaConfig(**FORM.read(dict(options), f"[drivers.{name}]"))
