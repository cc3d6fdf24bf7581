"""The driver's settings: API server, time limits and reboots of nodes.

This module opens no connections.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated

from forewarn_base.kubernetes.node_notices import FACTS
from forewarn_base.urls import is_protected
from forewarn_base.validation.fields import Boolean, Choice, Integer, Number, Text
from forewarn_base.validation.forms import Named, read_table
from forewarn_base.values import value
from forewarn_drivers.host_command import COMMAND_TYPE

#: Directory in a pod with the token and the CA certificate of its service account.
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
#: A day, in seconds.
DAY_S = 86_400
_SECONDS = Integer(1, DAY_S)
#: Maximum number of condition types.
TYPES_MAX = 20


@value
class KubernetesConfig:
    """All settings of the driver."""

    server: Annotated[str, Text(2048)] = "https://kubernetes.default.svc"
    token_file: Annotated[str, Text(4096)] = f"{ACCOUNT}/token"
    ca_file: Annotated[str, Text(4096)] = f"{ACCOUNT}/ca.crt"
    #: Namespace of the driver's records, which are ConfigMaps; reserved for the driver.
    namespace: Annotated[str, Text(63)] = "forewarn"
    #: Time limit of one request.
    timeout_s: Annotated[int, _SECONDS] = 10
    #: Interval between checks of a task.
    poll_s: Annotated[float, Number(0.01, 3600)] = 1.0
    #: Time without the API server after which an operation is stuck.
    unreachable_timeout_s: Annotated[int, _SECONDS] = 300
    #: Maximum number of parallel migrations of one operation.
    parallel_migrations: Annotated[int, Integer(1, 1000)] = 2
    migration_timeout_s: Annotated[int, _SECONDS] = 1800
    #: Whether to restart a VM on another node after its migration exceeds `migration_timeout_s`.
    restart_when_late: Annotated[bool, Boolean()] = False
    #: Time limit of a node's reboot, counted from the driver's request.
    reboot_timeout_s: Annotated[int, _SECONDS] = 1800
    #: Annotation with which an agent on the node reboots the node; empty: operators reboot the
    #: node.
    reboot_annotation: Annotated[str, Text(253)] = ""
    #: Command that reboots a node; `{host}` and `{address}` are replaced by the node's name and
    #: internal address. Empty: the annotation or an operator reboots the node.
    reboot_command: Annotated[tuple[str, ...], COMMAND_TYPE] = ()
    #: Time limit of `reboot_command`.
    command_timeout_s: Annotated[int, _SECONDS] = 600
    #: Whether to evict pods without a controller that starts them again.
    evict_unmanaged: Annotated[bool, Boolean()] = False
    #: Seconds without a report of a node's kubelet after which `topology import --follow` reports
    #: the host as lost; 0: never.
    lost_after_s: Annotated[int, Integer(0, DAY_S)] = 0
    #: Types of the conditions that `driver mark-nodes` sets, each with what it says; empty: those
    #: of KEP-5683.
    condition_types: Annotated[
        Mapping[str, str], Named(Choice({fact: fact for fact in FACTS}), TYPES_MAX, Text(316))
    ] = field(default_factory=dict)


def read_options(name: str, options: Mapping[str, object]) -> KubernetesConfig:
    """Parse the driver's table in the service's settings.

    Raises:
        ValidationFailed: an option is unknown or invalid.
        ValueError: the token would be sent unencrypted, or two methods of reboot are set.
    """
    config = read_table(KubernetesConfig, options, f"[drivers.{name}]")
    if not is_protected(config.server):
        raise ValueError("its server is neither https nor on this machine")
    if config.reboot_annotation and config.reboot_command:
        raise ValueError("reboot_annotation and reboot_command are both set")
    return config
