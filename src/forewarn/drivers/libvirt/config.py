"""The libvirt driver's settings from one file: hosts with URIs, time limits, commands.

This module opens no connections.
"""

from __future__ import annotations

from dataclasses import field, fields
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forewarn.drivers.host_command import COMMAND_TYPE
from forewarn.errors import CallerError
from forewarn.validation.complexity import FileTooComplex
from forewarn.validation.fields import Boolean, Integer, Text
from forewarn.validation.forms import Field, Form, Named
from forewarn.validation.toml_reader import read_toml
from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Maximum number of hosts in one file.
HOSTS_MAX = 100_000
#: A day, in seconds.
DAY_S = 86_400


class LibvirtConfigUnreadable(CallerError):
    """The libvirt driver's file is invalid."""

    code = "libvirt-config-unreadable"
    message = "The libvirt configuration {path} cannot be read: {reason}."
    advice = "See 'The libvirt driver' in the documentation for the valid settings."


class Fallback(Enum):
    """The action when a live migration exceeds its time limit."""

    GIVE_UP = "give-up"
    SUSPEND = "suspend"
    POSTCOPY = "postcopy"


@value
class HostConfig:
    """The URIs of one host, and its location in the fleet."""

    uri: str
    #: URI of this host for migrations from other hosts; empty: `uri`.
    migration_uri: str = ""
    fault_domain: int = 0
    update_domain: int = 0
    zone: str = ""


@value
class LibvirtConfig:
    """All settings of the driver."""

    hosts: Mapping[str, HostConfig]
    #: Directory for the list of begun commands, and for the definitions of domains, from which the
    #: driver starts a lost host's domains elsewhere.
    directory: str = "/var/lib/forewarn/libvirt"
    migration_timeout_s: int = 300
    migration_fallback: Fallback = Fallback.GIVE_UP
    #: Whether to treat disks as shared if libvirt cannot detect shared disks.
    storage_is_shared: bool = False
    #: Maximum speed of a migration in MiB per second; 0: libvirt's default.
    migration_mib_s: int = 0
    #: Whether migrations encrypt guest memory with QEMU's TLS.
    migration_tls: bool = False
    #: Time for the shutdown of a guest, before the driver destroys the guest.
    shutdown_timeout_s: int = 60
    #: Time limit of a host's reboot.
    reboot_timeout_s: int = 900
    #: Command that reboots a host; `{host}` and `{uri}` are replaced. Empty: the driver reboots
    #: only the guests.
    reboot_command: tuple[str, ...] = ()
    #: Command for an update of a host with suspended guests.
    update_command: tuple[str, ...] = ()
    #: Command that ensures that a lost host is off, before its guests are started elsewhere.
    fence_command: tuple[str, ...] = ()
    #: Time limit of a command.
    command_timeout_s: int = 600
    #: Seconds without contact after which `topology import --follow` reports a host as lost; 0:
    #: never.
    lost_after_s: int = 0

    def migration_uri(self, host: str) -> str:
        """Return the URI of a host for migrations from other hosts."""
        uris = self.hosts.get(host)
        return (uris.migration_uri or uris.uri) if uris else host


_SECONDS = Integer(1, DAY_S)
_DOMAIN = Integer(0, 1_000_000)
_HOST = Form(
    "LibvirtHost",
    "The addresses of one host.",
    (
        Field("uri", Text(1024), "libvirt's URI, as the service connects to it.", required=True),
        Field("migration_uri", Text(1024), "libvirt's URI, as other hosts connect to it."),
        Field("fault_domain", _DOMAIN, "Fault domain."),
        Field("update_domain", _DOMAIN, "Update domain."),
        Field("zone", Text(128), "Zone."),
    ),
)


@value
class _OneOf:
    """A setting with a fixed set of words."""

    words: tuple[str, ...] = field(default=tuple(each.value for each in Fallback))

    def read(self, value: object, where: str) -> Fallback:
        """Return the word."""
        return Fallback(Text(pattern="|".join(self.words), wanted=self._wanted).read(value, where))

    def read_text(self, text: str, where: str) -> Fallback:
        """Return the word from its text in a request or in the environment."""
        return self.read(text, where)

    @property
    def _wanted(self) -> str:
        return f"one of {', '.join(self.words)}"

    def schema(self) -> dict[str, object]:
        """Return the JSON schema of the setting."""
        return {"type": "string", "enum": list(self.words)}


FORM = Form(
    "LibvirtConfig",
    "Configuration of the libvirt driver.",
    (
        Field("hosts", Named(_HOST, HOSTS_MAX), "Hosts by name.", required=True),
        Field("directory", Text(4096), "Directory for the definitions of domains."),
        Field("migration_timeout_s", _SECONDS, "Time limit of a live migration."),
        Field("migration_fallback", _OneOf(), "Action when a migration exceeds its time limit."),
        Field("storage_is_shared", Boolean(), "Whether to treat disks as shared."),
        Field("migration_mib_s", Integer(0, 1_000_000), "Maximum speed of a migration in MiB/s."),
        Field("migration_tls", Boolean(), "Whether guest memory is sent over TLS."),
        Field("shutdown_timeout_s", Integer(0, DAY_S), "Time limit of the shutdown of a guest."),
        Field("reboot_timeout_s", _SECONDS, "Time limit of a host's reboot."),
        Field("reboot_command", COMMAND_TYPE, "Command that reboots a host."),
        Field("update_command", COMMAND_TYPE, "Command that updates a host with suspended guests."),
        Field("fence_command", COMMAND_TYPE, "Command that ensures that a lost host is off."),
        Field("command_timeout_s", _SECONDS, "Time limit of a command."),
        Field(
            "lost_after_s",
            Integer(0, DAY_S),
            "Seconds without an answer after which a host is reported as lost.",
        ),
    ),
)
_OPTIONS = Form(
    "LibvirtOptions",
    "The table of a libvirt driver.",
    (Field("config", Text(4096), "File with the hosts.", required=True),),
)
assert {each.name for each in FORM.fields} == {each.name for each in fields(LibvirtConfig)}


def read_config(path: Path) -> LibvirtConfig:
    """Read the driver's file.

    Raises:
        LibvirtConfigUnreadable: the file does not exist, or is not TOML.
        ValidationFailed: a setting is unknown or invalid.
    """
    try:
        written = read_toml(path.read_text("utf-8"))
    except OSError as error:
        raise LibvirtConfigUnreadable(path=path, reason=error.strerror) from error
    except (ValueError, FileTooComplex) as error:
        raise LibvirtConfigUnreadable(path=path, reason=error) from error
    form: dict[str, Any] = FORM.read(written, str(path))
    hosts = {name: HostConfig(**each) for name, each in form.pop("hosts").items()}
    return LibvirtConfig(hosts, **form)


def read_options(options: Mapping[str, object]) -> LibvirtConfig:
    """Parse the driver's table in the service's settings.

    Raises:
        LibvirtConfigUnreadable: the file named in the options cannot be read.
        ValidationFailed: a setting is unknown or invalid.
    """
    return read_config(Path(_OPTIONS.read(dict(options), "the table")["config"]))


def config_of_uris(uris: Mapping[str, str]) -> LibvirtConfig:
    """Return a configuration with default settings from the URIs of hosts by name."""
    hosts = {
        name: HostConfig(uri, fault_domain=number, update_domain=number)
        for number, (name, uri) in enumerate(uris.items())
    }
    return LibvirtConfig(hosts)
