"""The driver's settings: API server, time limits and reboots of nodes.

This module opens no connections.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from forewarn.drivers.host_command import COMMAND_TYPE
from forewarn.urls import is_protected
from forewarn.validation.fields import Boolean, Integer, Number, Text
from forewarn.validation.forms import Field, Form
from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Directory in a pod with the token and the CA certificate of its service account.
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
#: A day, in seconds.
DAY_S = 86_400


@value
class KubernetesConfig:
    """All settings of the driver."""

    server: str = "https://kubernetes.default.svc"
    token_file: str = f"{ACCOUNT}/token"
    ca_file: str = f"{ACCOUNT}/ca.crt"
    #: Namespace of the driver's records, which are ConfigMaps; reserved for the driver.
    namespace: str = "forewarn"
    #: Time limit of one request.
    timeout_s: int = 10
    #: Interval between checks of a task.
    poll_s: float = 1.0
    #: Time without the API server after which an operation is stuck.
    unreachable_timeout_s: int = 300
    #: Maximum number of parallel migrations of one operation.
    parallel_migrations: int = 2
    migration_timeout_s: int = 1800
    #: Whether to restart a VM on another node after its migration exceeds `migration_timeout_s`.
    restart_when_late: bool = False
    #: Time limit of a node's reboot, counted from the driver's request.
    reboot_timeout_s: int = 1800
    #: Annotation with which an agent on the node reboots the node; empty: operators reboot the
    #: node.
    reboot_annotation: str = ""
    #: Command that reboots a node; `{host}` and `{address}` are replaced by the node's name and
    #: internal address. Empty: the annotation or an operator reboots the node.
    reboot_command: tuple[str, ...] = ()
    #: Time limit of `reboot_command`.
    command_timeout_s: int = 600
    #: Whether to evict pods without a controller that starts them again.
    evict_unmanaged: bool = False
    #: Seconds without a report of a node's kubelet after which `topology import --follow` reports
    #: the host as lost; 0: never.
    lost_after_s: int = 0


_SECONDS = Integer(1, DAY_S)
FORM = Form(
    "KubernetesDriver",
    "A driver for Kubernetes and KubeVirt.",
    (
        Field(
            "server",
            Text(2048),
            "Address of the API server; https is required unless the server is on this machine.",
        ),
        Field(
            "token_file",
            Text(4096),
            "File with the token; the driver reads the file for each request.",
        ),
        Field("ca_file", Text(4096), "Trusted CA certificates; empty: the system's certificates."),
        Field("namespace", Text(63), "Namespace of the driver's records."),
        Field("timeout_s", _SECONDS, "Time limit of one request."),
        Field("poll_s", Number(0.01, 3600), "Interval between checks of a task."),
        Field(
            "unreachable_timeout_s",
            _SECONDS,
            "Time without the API server after which an operation is stuck.",
        ),
        Field("parallel_migrations", Integer(1, 1000), "Maximum number of parallel migrations."),
        Field("migration_timeout_s", _SECONDS, "Time limit of a live migration."),
        Field(
            "restart_when_late",
            Boolean(),
            "Whether to restart a VM after its migration exceeds the limit.",
        ),
        Field("reboot_timeout_s", _SECONDS, "Time limit of a node's reboot."),
        Field("reboot_annotation", Text(253), "Annotation that requests a node's reboot."),
        Field("reboot_command", COMMAND_TYPE, "Reboots a node."),
        Field("command_timeout_s", _SECONDS, "Time limit of a command."),
        Field(
            "evict_unmanaged",
            Boolean(),
            "Whether to evict pods without a controller that starts them again.",
        ),
        Field(
            "lost_after_s",
            Integer(0, DAY_S),
            "Seconds without a report after which a node is reported as lost.",
        ),
    ),
)
assert {each.name for each in FORM.fields} == {each.name for each in fields(KubernetesConfig)}


def read_options(name: str, options: Mapping[str, object]) -> KubernetesConfig:
    """Parse the driver's table in the service's settings.

    Raises:
        ValidationFailed: an option is unknown or invalid.
        ValueError: the token would be sent unencrypted, or two methods of reboot are set.
    """
    read: dict[str, Any] = FORM.read(dict(options), f"[drivers.{name}]")
    config = KubernetesConfig(**read)
    if not is_protected(config.server):
        raise ValueError("its server is neither https nor on this machine")
    if config.reboot_annotation and config.reboot_command:
        raise ValueError("reboot_annotation and reboot_command are both set")
    return config
