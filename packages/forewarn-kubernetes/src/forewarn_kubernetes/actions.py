"""The entry points of the actions that keep a cluster in line with a service."""

from __future__ import annotations

from collections.abc import Mapping

from forewarn_base.clock import SystemClock
from forewarn_kubernetes.aks import AksRemediator
from forewarn_kubernetes.config import read_options
from forewarn_kubernetes.host_notices import HostNotices
from forewarn_kubernetes.resources import TenantResources


def mark_nodes(driver: str, options: Mapping[str, object], _: str) -> HostNotices:
    """Return the notices on nodes that `driver mark-nodes` writes."""
    return HostNotices(read_options(driver, options), driver, SystemClock())


def answer_resources(driver: str, options: Mapping[str, object], cluster: str) -> TenantResources:
    """Return the resources of a cluster that `driver answer-resources` answers."""
    return TenantResources(read_options(driver, options), cluster, SystemClock())


def play_aks(driver: str, options: Mapping[str, object], _: str) -> AksRemediator:
    """Return the part of AKS that `emulator play-aks` plays."""
    return AksRemediator(read_options(driver, options))
