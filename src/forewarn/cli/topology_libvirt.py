"""`forewarn topology import libvirt`: hosts and VMs as libvirt has them, once or from then on.

What is found is in `drivers/libvirt/discovery.py`; `topology_import.py` takes it over.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from forewarn.cli.topology_import import EVERY_S, add_options, run_import
from forewarn.errors import CallerError

if TYPE_CHECKING:
    import argparse
    import threading

    from forewarn.cli.parsing import Commands
    from forewarn.drivers.found import Found
    from forewarn.drivers.libvirt.config import LibvirtConfig
    from forewarn.drivers.libvirt.records import Records


class HypervisorsUnnamed(CallerError):
    """Neither URIs nor a configuration."""

    code = "hypervisors-unnamed"
    message = "No hypervisor is named."
    advice = "Give NAME=URI for each host, or --config FILE, but not both."


def add_import_libvirt(group: Commands) -> None:
    """Add `topology import libvirt`."""
    parser = group.command("libvirt", "take hosts and VMs over from libvirt", run=_import)
    parser.add_argument(
        "uris", metavar="[NAME=]URI", nargs="*", help="such as h1=qemu+tls://h1.example/system"
    )
    parser.add_argument("--config", metavar="FILE", help="the libvirt driver's file")
    add_options(parser)


def _import(arguments: argparse.Namespace) -> int:
    from forewarn.drivers.libvirt.records import Records  # noqa: PLC0415 - `--help` needs it not

    config = _config(arguments)
    records = Records(config) if arguments.config else None
    return run_import(arguments, LibvirtSource(config, records))


class LibvirtSource:
    """Hosts that run libvirt."""

    every_s = EVERY_S

    def __init__(self, config: LibvirtConfig, records: Records | None = None) -> None:
        """Connect to nobody yet."""
        from forewarn.drivers.libvirt.connection import Connections  # noqa: PLC0415

        self._config = config
        self._connections = Connections(config)
        self._records = records
        self.lost_after_s = config.lost_after_s

    def discover(self) -> Found:
        """Ask every host."""
        from forewarn.drivers.libvirt.discovery import discover  # noqa: PLC0415

        return discover(self._config, self._connections, self._records)

    def has_host(self, host: str) -> bool:
        """Whether a host is in the configuration."""
        return host in self._config.hosts

    def watch(self) -> threading.Event:
        """Return what is set when a domain starts, moves or stops."""
        return self._connections.watch()


def _config(arguments: argparse.Namespace) -> LibvirtConfig:
    from forewarn.drivers.libvirt.config import config_of_uris, read_config  # noqa: PLC0415
    from forewarn.drivers.libvirt.connection import host_name  # noqa: PLC0415

    if bool(arguments.uris) == bool(arguments.config):
        raise HypervisorsUnnamed
    if arguments.config:
        return read_config(Path(arguments.config))
    uris = {}
    for word in arguments.uris:
        name, equals, uri = word.partition("=")
        # A URI's own query holds equals signs, too; a name holds no colon.
        uris.update({name: uri} if equals and ":" not in name else {host_name(word): word})
    return config_of_uris(uris)
