"""`forewarn topology import nova`: hosts and VMs as Nova has them, once or from then on.

What is found is in `drivers/nova/discovery.py`; `topology_import.py` takes it over.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from forewarn.cli.topology_import import add_options, add_settings, driver_options, run_import

if TYPE_CHECKING:
    import argparse

    from forewarn.cli.parsing import Commands
    from forewarn.drivers.found import Found
    from forewarn.drivers.nova.config import NovaConfig

#: How often Nova is asked while it is followed, in seconds: for all servers of the cloud.
EVERY_S = 10.0


def add_import_nova(group: Commands) -> None:
    """Add `topology import nova`."""
    parser = group.command("nova", "take hosts and VMs over from OpenStack Nova", run=_import)
    add_settings(parser, "nova")
    add_options(parser)


def _import(arguments: argparse.Namespace) -> int:
    from forewarn.drivers.nova.config import read_options  # noqa: PLC0415 - `--help` needs it not

    config = read_options(arguments.name, driver_options(arguments))
    return run_import(arguments, NovaSource(config, arguments.name))


class NovaSource:
    """A cloud."""

    every_s = EVERY_S

    def __init__(self, config: NovaConfig, driver: str) -> None:
        """Connect to nobody yet."""
        from forewarn.drivers.nova.client import Nova  # noqa: PLC0415 - `--help` needs it not

        self._config = config
        self._driver = driver
        self._nova = Nova(config)
        self._hosts: set[str] = set()
        self.lost_after_s = config.lost_after_s

    def discover(self) -> Found:
        """Ask Nova."""
        from forewarn.drivers.nova.discovery import discover  # noqa: PLC0415

        found = discover(self._nova, self._config, self._driver)
        self._hosts.update(found.hosts)
        return found

    def has_host(self, host: str) -> bool:
        """Whether Nova has named a host."""
        return host in self._hosts

    def watch(self) -> threading.Event:
        """Return an event that is never set: Nova has to be asked."""
        return threading.Event()
