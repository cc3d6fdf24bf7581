"""`forewarn upgrade check`: show whether two versions can run together, and the next step.

The command only reads the store of the settings and the version of the service. Source: H-8.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from forewarn_base.errors import ForewarnError
from forewarn_base.exit_codes import OK, REFUSED
from forewarn_base.values import value
from forewarn_server.cli.api_client import client_of, client_of_settings
from forewarn_server.cli.application import noun_app
from forewarn_server.cli.output import noun, print_facts, print_json, print_list
from forewarn_server.cli.parameters import (
    COMMON,
    Config,
    ServerOptions,
    Store,
    settings_files,
)

if TYPE_CHECKING:
    from forewarn_store.processes import ControlProcess

upgrade = noun_app("upgrade")
#: The one exception from side by side, while nodes of version 0.1 are in use. Source: H-8.
NODES = "control planes first: nodes of version 0.1 follow again once they have this version"


@value
class UpgradeState:
    """The progress of an upgrade to this version."""

    #: This version, and the service's version; empty if the service does not answer.
    version: str
    running: str
    #: Whether several processes may use the store.
    shared: bool
    #: Schema steps that the store lacks.
    steps: tuple[str, ...]
    #: Recently seen control planes, the active process first.
    processes: tuple[ControlProcess, ...]

    @property
    def beside(self) -> bool:
        """Whether this version and the previous version can use the store at the same time."""
        from forewarn_store.migrations import EXPANDING  # noqa: PLC0415

        return self.shared and all(EXPANDING.search(step) for step in self.steps)

    @property
    def next_act(self) -> str:
        """The operator's next step."""
        if not self.shared and self.running == self.version and not self.steps:
            return "The service has this version. Restart any metadata nodes with this version."
        if not self.shared:
            return "Restart the service with this version, which upgrades the store at its start."
        if self.steps and not self.beside:
            return (
                "Stop every control plane, run `forewarn store upgrade`, then start this version."
            )
        if self.steps:
            return "Run `forewarn store upgrade`; the running processes continue."
        others = [each for each in self.processes if each.version != self.version]
        followers = [each.url or "a follower without a URL" for each in others if not each.active]
        if followers:
            return f"Restart the followers with this version, one at a time: {', '.join(followers)}"
        if others:
            return (
                "Run `forewarn leader step-down`, then start this version in place of the process "
                f"that was active ({others[0].url or 'without a URL'})."
            )
        unsigned = self.running and not any(each.active for each in self.processes)
        if unsigned or self.running not in {"", self.version}:
            return "Restart the control planes with this version, the active process last."
        return "Every control plane has this version. Restart the metadata nodes with this version."


@upgrade.default
@upgrade.command(name="check")
def _check(
    *,
    store: Store = None,
    config: Config = (),
    common: ServerOptions = COMMON,
) -> int:
    """Check whether this version can run beside the running one."""
    state = _state(store, config, common)
    if common.structured:
        names = ("url", "version", "active", "behind")
        rows = [{name: getattr(each, name) for name in names} for each in state.processes]
        print_json(
            {
                "version": state.version,
                "running": state.running,
                "beside": state.beside,
                "steps": state.steps,
                "processes": rows,
                "nodes": NODES,
                "next": state.next_act,
            }
        )
        return OK if state.beside or not state.shared else REFUSED
    beside = "can run side by side" if state.beside else "cannot run side by side"
    print_facts(
        (
            ("this version", state.version),
            ("running version", state.running or "unknown: the service does not answer"),
            ("both versions", beside),
            ("schema steps due", ", ".join(state.steps) or "none"),
            ("metadata nodes", NODES),
        )
    )
    if state.shared:
        columns = (
            ("control plane", lambda each: each.url or "-"),
            ("version", lambda each: each.version),
            ("role", lambda each: "active" if each.active else "follower"),
            ("lag", lambda each: f"{each.behind} {noun(each.behind, 'commit')}"),
        )
        empty = "No control plane has been seen in the last seconds."
        print_list(state.processes, columns, empty=empty)
    print(f"\nNext: {state.next_act}")
    return OK if state.beside or not state.shared else REFUSED


def _state(store: str | None, config: Sequence[Path], common: ServerOptions) -> UpgradeState:
    from forewarn_base.version import version  # noqa: PLC0415 - the same
    from forewarn_server.cli.store import store_address  # noqa: PLC0415 - the same
    from forewarn_server.settings_loader import load_settings  # noqa: PLC0415 - the same
    from forewarn_store.addresses import location_of  # noqa: PLC0415 - the same
    from forewarn_store.errors import StoreContradiction  # noqa: PLC0415 - the same
    from forewarn_store.migrations import missing_steps  # noqa: PLC0415 - the same
    from forewarn_store.processes import processes  # noqa: PLC0415 - the same

    engine = location_of(store_address(store, config)).open_for_reading()
    try:
        steps = missing_steps(engine)
        try:
            seen = processes(engine)
        except StoreContradiction:  # an older version does not write this value
            seen = ()
    finally:
        engine.close()
    files = settings_files(config)
    try:
        client = client_of_settings(common, load_settings(files)) if files else client_of(common)
        running = client.get("/v1/version")["version"]
    except ForewarnError:
        running = ""
    alive = tuple(each for each in seen if each.runs)
    return UpgradeState(version(), running, engine.is_shared, steps, alive)
