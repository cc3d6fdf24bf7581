"""The gate: a maintenance goes on only while every host is healthy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from acme_forewarn.platform import Platform
from forewarn_server.control.gate_checks import GateCall, GateUnanswered


def create(_: str, options: Mapping[str, object]) -> Callable[[GateCall], str]:
    """Create the check of a table `[gates.NAME]`.

    Raises:
        ValueError: an option is missing or unknown.
    """
    platform = Platform(options)

    def check(call: GateCall) -> str:
        """Return why the gate fails; empty if it passes."""
        try:
            hosts = platform.hosts()
        except OSError as error:
            raise GateUnanswered(name=call.gate, reason=str(error)) from error
        sick = [name for name, content in hosts.items() if not content.get("healthy", True)]
        return f"{', '.join(sick)} is not healthy" if sick else ""

    return check
