"""`forewarn leader` and `reload`: control the running service."""

from __future__ import annotations

from forewarn_server.cli.api_client import client_of
from forewarn_server.cli.application import noun_app
from forewarn_server.cli.output import show_done, show_record
from forewarn_server.cli.parameters import COMMON, WATCHED, ServerOptions, WatchOptions

reload = noun_app("reload")
leader = noun_app("leader")


@reload.default
def _reload(
    *,
    common: ServerOptions = COMMON,
) -> int:
    """Reload the settings of the service."""
    answer = client_of(common).post("/v1/reload")
    needs = ", ".join(answer["needs_restart"])
    more = f"\na restart is needed for {needs}" if needs else ""
    return show_done(common, answer, f"settings reloaded{more}")


@leader.default
@leader.command(name="show")
def _show(
    *,
    common: WatchOptions = WATCHED,
) -> int:
    """Show which process is active."""
    return show_record(common, client_of(common).get("/v1/leader"))


@leader.command(name="step-down")
def _step_down(
    *,
    common: ServerOptions = COMMON,
) -> int:
    """Make the active process hand over to a follower."""
    answer = client_of(common).post("/v1/leader/step-down")
    return show_done(common, answer, "the active process stops; a follower takes over")
