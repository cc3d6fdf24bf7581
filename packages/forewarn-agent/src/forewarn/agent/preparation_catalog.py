"""The ready-made preparations with their settings; `agent/preparations` has a module for each."""

from __future__ import annotations

from forewarn.agent.core.rules import TIMEOUT_S
from forewarn.agent.value import Value

DAY_S = 86_399.0  # the longest time that a step can have


class Preparation(Value):
    """The settings of one ready-made preparation."""

    needed: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    #: Permitted words of the settings without free text; the first is the default.
    words: tuple[tuple[str, tuple[str, ...]], ...] = ()
    #: Settings that are addresses of the form `http://…` or `https://…`.
    urls: tuple[str, ...] = ()
    #: Default of `timeout_s`, the longest time of a hook; NotBefore always ends a preparation.
    timeout_s: float = TIMEOUT_S
    #: Whether the preparation is asked again right before the approval.
    checks: bool = False
    #: Program that the preparation runs; empty: none. The setting `command` names another.
    program: str = ""


FLAGS = (
    *("cloudevents", "delete_local", "evict", "exclude_from_load_balancers", "force"),
    *("ignore_daemonsets", "ignore_system_jobs"),
)
COUNTS = ("grace_s", "sessions_max", "tries")
LISTS = ("servers", "units", "workers")


def problem_of(use: str, name: str, setting: object) -> str:
    """Return why a value is wrong for a setting of a preparation; empty if it is right."""
    of_systemd, of_jobs = (use, name) == ("systemd", "user"), (use, name) == ("job", "jobs")
    if name in FLAGS or of_systemd:
        return "" if isinstance(setting, bool) else "must be true or false"
    if name == "taint":
        return "" if isinstance(setting, (bool, str)) else "must be true, false or a key"
    if name in LISTS or of_jobs:
        names = setting if isinstance(setting, list) else [setting]
        right = all(isinstance(one, str) for one in names)
        return "" if right else "must be a name or a list of names"
    if name == "headers":
        return "" if isinstance(setting, dict) else "must be a table"
    if name in COUNTS or name.endswith("_s"):
        kinds = int if name in COUNTS else (int, float)
        number = isinstance(setting, kinds) and not isinstance(setting, bool)
        what = "whole number" if name in COUNTS else "number"
        return "" if number and float(str(setting)) >= 0 else f"must be a {what} of 0 or more"
    if not isinstance(setting, str):
        return "must be a text"
    if name in PREPARATIONS[use].urls and not setting.startswith(("http://", "https://")):
        return "must begin with http:// or https://"
    return ""


#: Name in `use = "…"` and of the module -> its settings.
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
        urls=("server",),
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
        urls=("server",),
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
        program="ray",
    ),
    "dask": Preparation(
        optional=("address", "workers"),
        urls=("address",),
        timeout_s=DAY_S,
    ),
    "nomad": Preparation(
        optional=("node", "address", "token_file", "ca_file", "ignore_system_jobs"),
        urls=("address",),
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
        program="scontrol",
    ),
    "webhook": Preparation(
        needed=("url",),
        urls=("url",),
        optional=("secret_file", "tries", "headers", "ca_file", "cloudevents"),
    ),
}
