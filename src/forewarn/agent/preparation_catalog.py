"""The ready-made preparations: their names, settings and modules."""

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
            module: Its module below `forewarn.agent.preparations`.
            does: Its effect, in one line.
            needed: Its required settings.
            optional: Its optional settings.
            repeatable: Whether a preparation that was interrupted can be started again.
            words: The permitted words of each setting that is not free text.
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
        does="stops or starts units, and waits until that is done",
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
        does="drains servers at the runtime API and waits until their sessions are gone",
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
        does="posts the event to a URL, signed, and tries again until it is accepted",
        needed=("url",),
        optional=("secret_file", "tries", "headers", "ca_file", "cloudevents"),
    ),
}
"""Name in `use = "…"` -> its description."""
