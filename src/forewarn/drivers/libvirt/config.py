"""The libvirt driver's settings: hosts and their URIs, time limits, commands, as one file.

Nothing is connected to here.
"""

from __future__ import annotations

from dataclasses import field, fields
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forewarn.drivers.host_command import COMMAND
from forewarn.errors import CallerError
from forewarn.validation.complexity import FileTooComplex
from forewarn.validation.fields import Boolean, Integer, Text
from forewarn.validation.forms import Field, Form, Named
from forewarn.validation.toml_reader import read_toml
from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Hosts of one file.
HOSTS_MAX = 100_000
#: A day, in seconds.
DAY_S = 86_400


class LibvirtConfigUnreadable(CallerError):
    """The libvirt driver's file cannot be read."""

    code = "libvirt-config-unreadable"
    message = "The libvirt configuration {path} cannot be read: {reason}."
    advice = "See 'The libvirt driver' in the documentation for the valid settings."


class Fallback(Enum):
    """What is done with a live migration that does not end in time."""

    GIVE_UP = "give-up"
    SUSPEND = "suspend"
    POSTCOPY = "postcopy"


@value
class HostConfig:
    """The address of one host, and its place in the layout."""

    uri: str
    #: How other hosts reach it for a migration; empty: by `uri`.
    migration_uri: str = ""
    fault_domain: int = 0
    update_domain: int = 0
    zone: str = ""


@value
class LibvirtConfig:
    """Everything that can be set."""

    hosts: Mapping[str, HostConfig]
    #: Where the definitions of domains are kept, so that a lost host's can be started elsewhere,
    #: and which commands were begun.
    directory: str = "/var/lib/forewarn/libvirt"
    migration_timeout_s: int = 300
    migration_fallback: Fallback = Fallback.GIVE_UP
    #: Whether disks are taken to be shared where libvirt cannot see that they are.
    storage_is_shared: bool = False
    #: Megabytes a second a migration may take; 0: as libvirt has it.
    migration_mib_s: int = 0
    #: Whether a guest's memory crosses the network encrypted, by QEMU's own TLS.
    migration_tls: bool = False
    #: How long a guest may take to shut down before it is destroyed.
    shutdown_timeout_s: int = 60
    #: How long a host may take to be back after its reboot.
    reboot_timeout_s: int = 900
    #: Reboots a host; `{host}` and `{uri}` are filled in. Empty: only its guests are rebooted.
    reboot_command: tuple[str, ...] = ()
    #: Updates a host while its guests are suspended.
    update_command: tuple[str, ...] = ()
    #: Makes sure that a lost host is off, before its guests are started elsewhere.
    fence_command: tuple[str, ...] = ()
    #: How long a command may take.
    command_timeout_s: int = 600
    #: Seconds a host may be silent before `topology import --follow` reports it lost; 0: never.
    lost_after_s: int = 0

    def migration_uri(self, host: str) -> str:
        """How other hosts reach one for a migration."""
        uris = self.hosts.get(host)
        return (uris.migration_uri or uris.uri) if uris else host


_SECONDS = Integer(1, DAY_S)
_DOMAIN = Integer(0, 1_000_000)
_HOST = Form(
    "LibvirtHost",
    "How one host is reached.",
    (
        Field("uri", Text(1024), "libvirt's URI, as the service reaches it.", required=True),
        Field("migration_uri", Text(1024), "The same, as other hosts reach it."),
        Field("fault_domain", _DOMAIN, "Fault domain."),
        Field("update_domain", _DOMAIN, "Update domain."),
        Field("zone", Text(128), "Zone."),
    ),
)


@value
class _OneOf:
    """One of a few words."""

    words: tuple[str, ...] = field(default=tuple(each.value for each in Fallback))

    def read(self, value: object, where: str) -> Fallback:
        """Return the word."""
        return Fallback(Text(pattern="|".join(self.words), wanted=self._wanted).read(value, where))

    def read_text(self, text: str, where: str) -> Fallback:
        """Return the word a query gives."""
        return self.read(text, where)

    @property
    def _wanted(self) -> str:
        return f"one of {', '.join(self.words)}"

    def schema(self) -> dict[str, object]:
        """Return its schema."""
        return {"type": "string", "enum": list(self.words)}


FORM = Form(
    "LibvirtConfig",
    "Configuration of the libvirt driver.",
    (
        Field("hosts", Named(_HOST, HOSTS_MAX), "Hosts by name.", required=True),
        Field("directory", Text(4096), "Where definitions of domains are kept."),
        Field("migration_timeout_s", _SECONDS, "Longest live migration."),
        Field("migration_fallback", _OneOf(), "What is done with one that takes longer."),
        Field("storage_is_shared", Boolean(), "Whether disks are taken to be shared."),
        Field("migration_mib_s", Integer(0, 1_000_000), "MiB/s a migration may take."),
        Field("migration_tls", Boolean(), "Whether a guest's memory is sent by TLS."),
        Field("shutdown_timeout_s", Integer(0, DAY_S), "Longest polite shutdown."),
        Field("reboot_timeout_s", _SECONDS, "Longest reboot of a host."),
        Field("reboot_command", COMMAND, "Reboots a host."),
        Field("update_command", COMMAND, "Updates a host under suspended guests."),
        Field("fence_command", COMMAND, "Makes sure that a host is off."),
        Field("command_timeout_s", _SECONDS, "Longest command."),
        Field("lost_after_s", Integer(0, DAY_S), "When a silent host is reported lost."),
    ),
)
_OPTIONS = Form(
    "LibvirtOptions",
    "What the table of a libvirt driver says.",
    (Field("config", Text(4096), "File with the hosts.", required=True),),
)
assert {each.name for each in FORM.fields} == {each.name for each in fields(LibvirtConfig)}


def read_config(path: Path) -> LibvirtConfig:
    """Read the driver's file.

    Raises:
        LibvirtConfigUnreadable: it is not there, or no TOML.
        ValidationFailed: it says what means nothing.
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
    """Return the configuration of a driver by its table in the service's settings.

    Raises:
        LibvirtConfigUnreadable: the file that it names cannot be read.
        ValidationFailed: it says what means nothing.
    """
    return read_config(Path(_OPTIONS.read(dict(options), "the table")["config"]))


def config_of_uris(uris: Mapping[str, str]) -> LibvirtConfig:
    """Return a configuration of hosts by name that says nothing but their URIs."""
    hosts = {
        name: HostConfig(uri, fault_domain=number, update_domain=number)
        for number, (name, uri) in enumerate(uris.items())
    }
    return LibvirtConfig(hosts)
