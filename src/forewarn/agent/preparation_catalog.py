"""The ready-made preparations with their settings; `agent/preparations` has a module for each."""

from __future__ import annotations

from forewarn.agent.value import Value


class Preparation(Value):
    """The settings of one ready-made preparation."""

    needed: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    words: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Permitted words of the settings without free text; the first is the default."""


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
            "grace_s",
            "taint",
            "evict",
            "ignore_daemonsets",
            "delete_local",
            "force",
            "wait_s",
        ),
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
    "webhook": Preparation(
        needed=("url",),
        optional=("secret_file", "tries", "headers", "ca_file", "cloudevents"),
    ),
}
"""Name in `use = "…"` and of the module -> its settings."""
