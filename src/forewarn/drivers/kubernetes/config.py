"""The driver's settings: API server, time limits, and how nodes are rebooted.

Nothing is connected to here.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from forewarn.drivers.host_command import COMMAND
from forewarn.urls import is_protected
from forewarn.validation.fields import Boolean, Integer, Number, Text
from forewarn.validation.forms import Field, Form
from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Where a pod finds the token and the CA certificate of its service account.
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
#: A day, in seconds.
DAY_S = 86_400


@value
class KubernetesConfig:
    """All settings of the driver."""

    server: str = "https://kubernetes.default.svc"
    token_file: str = f"{ACCOUNT}/token"
    ca_file: str = f"{ACCOUNT}/ca.crt"
    #: Namespace of the driver's records, which are ConfigMaps; no other program may use it.
    namespace: str = "forewarn"
    #: Time limit of one request.
    timeout_s: int = 10
    #: Interval between looks at a task.
    poll_s: float = 1.0
    #: How long the API server may be unavailable before an operation is stuck.
    unreachable_timeout_s: int = 300
    #: Maximum VMs of one operation that are migrated at a time.
    parallel_migrations: int = 2
    migration_timeout_s: int = 1800
    #: Whether a VM with a slower migration is restarted on another node.
    restart_when_late: bool = False
    #: Time limit of a node's reboot, counted from the driver's request.
    reboot_timeout_s: int = 1800
    #: Annotation that makes an agent on the node reboot it; empty: people reboot the node.
    reboot_annotation: str = ""
    #: Reboots a node; `{host}` and `{address}`, its internal address, are filled in. Empty: the
    #: annotation or people reboot it.
    reboot_command: tuple[str, ...] = ()
    #: Time limit of that command.
    command_timeout_s: int = 600
    #: Whether to evict pods that no controller would start again.
    evict_unmanaged: bool = False
    #: Seconds without a report of a node's kubelet before `topology import --follow` reports the
    #: host lost; 0: never.
    lost_after_s: int = 0


_SECONDS = Integer(1, DAY_S)
FORM = Form(
    "KubernetesDriver",
    "A driver for Kubernetes and KubeVirt.",
    (
        Field("server", Text(2048), "Address of the API server; https, unless on this machine."),
        Field("token_file", Text(4096), "File with the token, read again for each request."),
        Field("ca_file", Text(4096), "CA certificates to trust; empty: the system's."),
        Field("namespace", Text(63), "Namespace of the driver's records."),
        Field("timeout_s", _SECONDS, "Time limit of one request."),
        Field("poll_s", Number(0.01, 3600), "Interval between looks at a task."),
        Field("unreachable_timeout_s", _SECONDS, "How long the API server may be unavailable."),
        Field("parallel_migrations", Integer(1, 1000), "VMs migrated at a time."),
        Field("migration_timeout_s", _SECONDS, "Time limit of a live migration."),
        Field("restart_when_late", Boolean(), "Restart a VM whose migration exceeds the limit."),
        Field("reboot_timeout_s", _SECONDS, "Time limit of a node's reboot."),
        Field("reboot_annotation", Text(253), "Annotation that requests a node's reboot."),
        Field("reboot_command", COMMAND, "Reboots a node."),
        Field("command_timeout_s", _SECONDS, "Longest command."),
        Field("evict_unmanaged", Boolean(), "Evict also pods that no controller starts again."),
        Field(
            "lost_after_s", Integer(0, DAY_S), "Seconds of silence before a node is reported lost."
        ),
    ),
)
assert {each.name for each in FORM.fields} == {each.name for each in fields(KubernetesConfig)}


def read_options(name: str, options: Mapping[str, object]) -> KubernetesConfig:
    """Return the configuration of a driver by its table in the service's settings.

    Raises:
        ValidationFailed: an option is unknown or wrong.
        ValueError: the token would cross a network unencrypted, or two ways to reboot are set.
    """
    read: dict[str, Any] = FORM.read(dict(options), f"[drivers.{name}]")
    config = KubernetesConfig(**read)
    if not is_protected(config.server):
        raise ValueError("its server is neither https nor on this machine")
    if config.reboot_annotation and config.reboot_command:
        raise ValueError("reboot_annotation and reboot_command are both set")
    return config
