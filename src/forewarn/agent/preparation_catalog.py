"""The ready-made preparations, with their names, settings and modules."""

from __future__ import annotations


class Preparation:
    """One ready-made preparation."""

    __slots__ = ("does", "module", "needed", "optional", "repeatable", "words")

    def __init__(
        self,
        *,
        module: str,
        does: str,
        needed: tuple[str, ...] = (),
        optional: tuple[str, ...] = (),
        repeatable: bool = True,
        words: dict[str, tuple[str, ...]] | None = None,
    ) -> None:
        """Describe a preparation.

        Args:
            module: Name of the module in `forewarn.agent.preparations`.
            does: Description of the effect, in one line.
            needed: Names of the required settings.
            optional: Names of the optional settings.
            repeatable: Whether an interrupted preparation can be repeated.
            words: Permitted words of the settings without free text.
        """
        self.module = module
        self.does = does
        self.needed = needed
        self.optional = optional
        self.repeatable = repeatable
        self.words = words or {}


PREPARATIONS = {
    "systemd": Preparation(
        module="systemd",
        does="stops or starts units, and waits for completion",
        needed=("units",),
        optional=("action", "user"),
        words={"action": ("stop", "start")},
    ),
    "kubernetes": Preparation(
        module="kubernetes",
        does="cordons and drains this node; uncordons it if the step cordoned it",
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
        module="haproxy",
        does="drains servers over the runtime API and waits until their sessions have ended",
        needed=("socket", "servers"),
        optional=("wait_s", "sessions_max", "state"),
        words={"state": ("drain", "maint")},
    ),
    "consul": Preparation(
        module="consul",
        does="puts the node, or one service, into maintenance",
        optional=("address", "service", "token_file", "reason"),
    ),
    "patroni": Preparation(
        module="patroni",
        does="switches the PostgreSQL leader over to another member",
        optional=("address", "candidate", "username", "password_file", "wait_s", "ca_file"),
    ),
    "pacemaker": Preparation(
        module="pacemaker",
        does="puts the cluster node into standby until its resources have moved",
        optional=("node", "wait_s", "lifetime"),
    ),
    "webhook": Preparation(
        module="webhook",
        does="posts the signed event to a URL, and retries until acceptance",
        needed=("url",),
        optional=("secret_file", "tries", "headers", "ca_file", "cloudevents"),
    ),
}
"""Name in `use = "…"` -> its description."""
