"""Applies changed settings while the service runs: all reloadable settings, or none.

All new objects are created before any replacement, so a faulty file changes nothing. Tokens and
bindings are in the store, and need no reload. Source: P-9.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from forewarn_base.log_format import configure_logs
from forewarn_drivers.registry import AbsentDriver, make_driver, make_drivers
from forewarn_server.service.configured import check_destinations, new_destinations, new_gates
from forewarn_server.service.settings_check import check_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from forewarn_base.settings import NamedTable, Settings
    from forewarn_server.service.daemon import Daemon

log = logging.getLogger("forewarn")


class Reload:
    """Reloads the settings when called, one call after the other."""

    def __init__(self, daemon: Daemon, read: Callable[[], Settings]) -> None:
        self._daemon = daemon
        self._read = read
        self._lock = asyncio.Lock()

    async def __call__(self) -> tuple[str, ...]:
        """Apply reloadable settings; return the sections that need a restart.

        Raises:
            ForewarnError: a setting is invalid; nothing was changed.
        """
        async with self._lock:
            return await take_over(self._daemon, await asyncio.to_thread(self._read))


async def take_over(daemon: Daemon, settings: Settings) -> tuple[str, ...]:
    """Replace the settings; return the sections that need a restart.

    Raises:
        ForewarnError: a setting is invalid; nothing was changed.
    """
    check_settings(settings)
    before, after = (_tables(each.drivers.tables) for each in (daemon.settings, settings))
    changed = {name: table for name, table in after.items() if before.get(name) != table}
    store = settings.store.url
    drivers = {name: make_driver(name, table, store) for name, table in changed.items()}
    absent = {name for name, each in daemon.drivers.items() if isinstance(each, AbsentDriver)}
    left_absent = {name: after[name] for name in absent & after.keys() - changed.keys()}
    drivers |= make_drivers(left_absent, store) if left_absent else {}
    gates = new_gates(settings)
    destinations = new_destinations(settings)
    sent_before, sent_after = (_tables(s.outbox.tables) for s in (daemon.settings, settings))
    unchanged = [name for name, table in sent_after.items() if sent_before.get(name) == table]
    check_destinations(destinations, unchanged)
    certificates = await asyncio.to_thread(daemon.certificates.check, settings)
    configure_logs(settings.log.level, settings.log.format)  # refuses invalid files first

    daemon.configured.adopt(drivers, gates, destinations)
    for load in certificates:
        load()
    oidc = daemon.operators.oidc
    if oidc and settings.oidc != daemon.settings.oidc:
        oidc.adopt(settings.oidc)
    kept = [each for each in daemon.settings.drivers.tables if each.name not in after]
    adopted = replace(
        daemon.settings,
        log=settings.log,
        drivers=replace(daemon.settings.drivers, tables=settings.drivers.tables),
        gates=settings.gates,
        outbox=settings.outbox,
        audit=settings.audit,
        oidc=settings.oidc,
    )
    await daemon.adopt(adopted)
    left = [f"[drivers.{each.name}]" for each in kept]  # work may have begun with the old driver
    left += [
        f"[{section.name}]"
        for section in fields(adopted)
        if getattr(adopted, section.name) != getattr(settings, section.name)
    ]
    waiting = f"; a restart is needed for {', '.join(left)}" if left else ""
    log.info("the settings were reloaded%s", waiting, extra={"action": "settings.reloaded"})
    return tuple(left)


def _tables(tables: Sequence[NamedTable]) -> dict[str, Mapping[str, object]]:
    return {each.name: each.values for each in tables}
