"""`forewarn topology import kubernetes`: nodes and VMs of a cluster, once or from then on.

What is found is in `drivers/kubernetes/discovery.py`; `topology_import.py` takes it over.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from forewarn.cli.topology_import import add_options, add_settings, driver_options, run_import

if TYPE_CHECKING:
    import argparse

    from forewarn.cli.parsing import Commands
    from forewarn.drivers.found import Found
    from forewarn.drivers.kubernetes.config import KubernetesConfig
    from forewarn.drivers.kubernetes.discovery import Following

#: How often the topology is compared while nothing in the cluster changes, in seconds.
EVERY_S = 10.0


def add_import_kubernetes(group: Commands) -> None:
    """Add `topology import kubernetes`."""
    parser = group.command(
        "kubernetes", "take nodes and VMs over from Kubernetes and KubeVirt", run=_import
    )
    add_settings(parser, "kubernetes")
    add_options(parser)


def _import(arguments: argparse.Namespace) -> int:
    from forewarn.drivers.kubernetes.config import read_options  # noqa: PLC0415 - `--help`

    config = read_options(arguments.name, driver_options(arguments))
    return run_import(arguments, KubernetesSource(config, arguments.name))


class KubernetesSource:
    """A cluster."""

    every_s = EVERY_S

    def __init__(self, config: KubernetesConfig, driver: str) -> None:
        """Connect to nobody yet."""
        from forewarn.drivers.kubernetes.client import Kubernetes  # noqa: PLC0415 - `--help`

        self._driver = driver
        self._kubernetes = Kubernetes(config)
        self._following: Following | None = None
        self._hosts: set[str] = set()
        self.lost_after_s = config.lost_after_s

    def discover(self) -> Found:
        """Ask the API server, or say what has been followed."""
        from forewarn.drivers.kubernetes.discovery import discover  # noqa: PLC0415 - `--help`

        following = self._following
        found = following.found() if following else discover(self._kubernetes, self._driver)
        self._hosts.update(found.hosts)
        return found

    def has_host(self, host: str) -> bool:
        """Whether the cluster has, or had, a node of that name."""
        return host in self._hosts

    def watch(self) -> threading.Event:
        """Follow the cluster; return what is set when it changes."""
        from forewarn.drivers.kubernetes.discovery import Following  # noqa: PLC0415 - `--help`

        changed = threading.Event()
        self._following = Following(self._kubernetes, self._driver, changed)
        return changed

    def close(self) -> None:
        """Follow it no longer."""
        if self._following is not None:
            self._following.close()
