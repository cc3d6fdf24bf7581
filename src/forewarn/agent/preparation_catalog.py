"""The ready-made preparations with their settings; `agent/preparations` has a module for each."""

from __future__ import annotations

from forewarn.agent.core.rules import TIMEOUT_S
from forewarn.agent.value import Value

DAY_S = 86_399.0  # the longest time that a step can have


class Preparation(Value):
    """The settings of one ready-made preparation."""

    needed: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    words: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Permitted words of the settings without free text; the first is the default."""
    timeout_s: float = TIMEOUT_S
    """Default of `timeout_s`, the longest time of a hook; NotBefore always ends a preparation."""
    checks: bool = False
    """Whether the preparation is asked again right before the approval."""


PREPARATIONS = {
    "systemd": Preparation(
        needed=("units",),
        optional=("action", "user"),
        words=(("action", ("stop", "start")),),
    ),
    "kubernetes": Preparation(
        optional=(
            "node",
            "server",
            "token_file",
            "ca_file",
            "owner",
            "grace_s",
            "taint",
            "exclude_from_load_balancers",
            "evict",
            "ignore_daemonsets",
            "delete_local",
            "force",
            "wait_s",
            "jobs",
            "at_deadline",
            "reserve_s",
            "freeze_tolerated_s",
        ),
        words=(("at_deadline", ("hold", "delete")), ("jobs", ("last", "wait"))),
        timeout_s=DAY_S,
        checks=True,
    ),
    "drain_request": Preparation(
        needed=("via",),
        optional=(
            "node",
            "server",
            "token_file",
            "ca_file",
            "namespace",
            "force",
            "delete_local",
        ),
        words=(("via", ("nvsentinel", "maintenance-operator")),),
        timeout_s=DAY_S,
    ),
    "haproxy": Preparation(
        needed=("socket", "servers"),
        optional=("wait_s", "sessions_max", "state"),
        words=(("state", ("drain", "maint")),),
    ),
    "consul": Preparation(
        optional=("address", "service", "token_file", "reason"),
    ),
    "patroni": Preparation(
        optional=("address", "candidate", "username", "password_file", "wait_s", "ca_file"),
    ),
    "job": Preparation(
        needed=("address",),
        optional=("jobs", "token_file"),
    ),
    "pacemaker": Preparation(
        optional=("node", "wait_s", "lifetime"),
    ),
    "ray": Preparation(
        optional=("node", "address", "command"),
        timeout_s=DAY_S,
    ),
    "dask": Preparation(
        optional=("address", "workers"),
        timeout_s=DAY_S,
    ),
    "nomad": Preparation(
        optional=("node", "address", "token_file", "ca_file", "ignore_system_jobs"),
        timeout_s=DAY_S,
    ),
    "signal": Preparation(
        needed=("argument",),
        optional=("signal", "before_s"),
        words=(("signal", ("TERM", "INT", "USR1", "USR2", "HUP", "QUIT", "PWR")),),
        timeout_s=DAY_S,
    ),
    "slurm": Preparation(
        optional=("node", "drain_before_s", "users"),
    ),
    "webhook": Preparation(
        needed=("url",),
        optional=("secret_file", "tries", "headers", "ca_file", "cloudevents"),
    ),
}
"""Name in `use = "…"` and of the module -> its settings."""
