"""The libvirt driver's settings from one file: hosts with URIs, time limits, commands.

This module opens no connections.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated

from forewarn_base.errors import CallerError
from forewarn_base.validation.complexity import FileTooComplex
from forewarn_base.validation.fields import Boolean, Choice, Integer, Text
from forewarn_base.validation.forms import Named, form_of, read_table
from forewarn_base.validation.toml_reader import read_toml
from forewarn_base.values import replace, value
from forewarn_drivers.host_command import COMMAND_TYPE

#: Maximum number of hosts in one file.
HOSTS_MAX = 100_000
#: A day, in seconds.
DAY_S = 86_400
_SECONDS, _DOMAIN = Integer(1, DAY_S), Integer(0, 1_000_000)


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


_FALLBACK = Choice({each.value: each for each in Fallback})


@value
class HostConfig:
    """The URIs of one host, and its location in the fleet."""

    uri: Annotated[str, Text(1024)]
    #: URI of this host for migrations from other hosts; empty: `uri`.
    migration_uri: Annotated[str, Text(1024)] = ""
    fault_domain: Annotated[int, _DOMAIN] = 0
    update_domain: Annotated[int, _DOMAIN] = 0
    zone: Annotated[str, Text(128)] = ""


_HOST = form_of(HostConfig)


@value
class LibvirtConfig:
    """All settings of the driver."""

    hosts: Annotated[Mapping[str, HostConfig], Named(_HOST, HOSTS_MAX)]
    #: Directory for the list of begun commands, and for the definitions of domains, from which the
    #: driver starts a lost host's domains elsewhere.
    directory: Annotated[str, Text(4096)] = "/var/lib/forewarn/libvirt"
    migration_timeout_s: Annotated[int, _SECONDS] = 300
    migration_fallback: Annotated[Fallback, _FALLBACK] = Fallback.GIVE_UP
    #: Whether to treat disks as shared if libvirt cannot detect shared disks.
    storage_is_shared: Annotated[bool, Boolean()] = False
    #: Maximum speed of a migration in MiB per second; 0: libvirt's default.
    migration_mib_s: Annotated[int, Integer(0, 1_000_000)] = 0
    #: Whether migrations encrypt guest memory with QEMU's TLS.
    migration_tls: Annotated[bool, Boolean()] = False
    #: Time for the shutdown of a guest, before the driver destroys the guest.
    shutdown_timeout_s: Annotated[int, Integer(0, DAY_S)] = 60
    #: Time limit of a host's reboot.
    reboot_timeout_s: Annotated[int, _SECONDS] = 900
    #: Command that reboots a host; `{host}` and `{uri}` are replaced. Empty: the driver reboots
    #: only the guests.
    reboot_command: Annotated[tuple[str, ...], COMMAND_TYPE] = ()
    #: Command for an update of a host with suspended guests.
    update_command: Annotated[tuple[str, ...], COMMAND_TYPE] = ()
    #: Command that ensures that a lost host is off, before its guests are started elsewhere.
    fence_command: Annotated[tuple[str, ...], COMMAND_TYPE] = ()
    #: Time limit of a command.
    command_timeout_s: Annotated[int, _SECONDS] = 600
    #: How long a host may be unreachable, or busy with a guest, before an operation is stuck.
    unreachable_timeout_s: Annotated[int, _SECONDS] = 300
    #: Seconds without contact after which `topology import --follow` reports a host as lost; 0:
    #: never.
    lost_after_s: Annotated[int, Integer(0, DAY_S)] = 0

    def migration_uri(self, host: str) -> str:
        """Return the URI of a host for migrations from other hosts."""
        uris = self.hosts.get(host)
        return (uris.migration_uri or uris.uri) if uris else host


@value
class _LibvirtOptions:
    """The table of a libvirt driver."""

    #: File with the hosts.
    config: Annotated[str, Text(4096)]


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
    config = read_table(LibvirtConfig, written, str(path))
    hosts = {name: HostConfig(**each) for name, each in config.hosts.items()}  # type: ignore[arg-type]
    return replace(config, hosts=hosts)


def read_options(options: Mapping[str, object]) -> LibvirtConfig:
    """Parse the driver's table in the service's settings.

    Raises:
        LibvirtConfigUnreadable: the file named in the options cannot be read.
        ValidationFailed: a setting is unknown or invalid.
    """
    return read_config(Path(read_table(_LibvirtOptions, options, "the table").config))


def config_of_uris(uris: Mapping[str, str]) -> LibvirtConfig:
    """Return a configuration with default settings from the URIs of hosts by name."""
    hosts = {
        name: HostConfig(uri, fault_domain=number, update_domain=number)
        for number, (name, uri) in enumerate(uris.items())
    }
    return LibvirtConfig(hosts)
