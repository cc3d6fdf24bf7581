"""Checks a start without serving: `forewarn serve --check`.

The check opens and closes all parts in the order of a start and with the same functions, so that
errors are the same. A running service holds its store and its ports, so ports in use are only
notes.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from forewarn_base.extensions import ExtensionMissing, ExtensionUnusable
from forewarn_metadata.endpoint.http import addresses
from forewarn_server.api.listener import OperatorAddressTaken
from forewarn_server.service.address_probes import address_probes
from forewarn_server.service.configured import ConfiguredParts
from forewarn_server.service.credentials import tls_of
from forewarn_server.service.observers import traces_module
from forewarn_server.service.operators import azure_problem
from forewarn_store.errors import StoreInUse
from forewarn_store.inspection import inspect_store

if TYPE_CHECKING:
    from forewarn_base.settings import Settings, StoreSettings


#: Interval between two checks of a lease, in seconds; the holder renews the lease more often.
LEASE_LOOK_S = 2.0


async def check_start(settings: Settings) -> tuple[str, ...]:
    """Return a sentence about each problem that would not prevent a start.

    Raises:
        ForewarnError: the error that would prevent a start.
    """
    held, notes = await _check_store(settings.store)
    return (*notes, *await check_start_beside(settings, held=held))


async def check_start_beside(settings: Settings, *, held: bool) -> tuple[str, ...]:
    """Return the notes of `check_start`, except notes about the store.

    `held`: whether a running service may use the ports.

    Raises:
        ForewarnError: the error that would prevent a start.
    """
    configured = ConfiguredParts(settings)
    configured.check_installed()
    notes = []
    if settings.otlp.endpoint:
        await traces_module()
    for section in (settings.feed, settings.operator):
        tls_of(section)
    if settings.azure.listen:
        from forewarn_server.api.further_apis import find_api  # noqa: PLC0415 - if wanted

        try:
            find_api("azure").check(settings)
        except (ExtensionMissing, ExtensionUnusable) as error:
            notes.append(azure_problem(error))
    for probe in address_probes(settings):
        try:
            await probe()
        except (OperatorAddressTaken, addresses.AddressUnavailable) as error:
            if not held:
                raise
            notes.append(str(error))
    return tuple(notes)


async def _check_store(settings: StoreSettings) -> tuple[bool, list[str]]:
    """Return whether another process holds the store, and notes about the store."""
    inspect = partial(
        asyncio.to_thread, inspect_store, settings.url, must_exist=settings.must_exist
    )
    try:
        facts = await inspect()
        held = False
        if facts.lease is not None and facts.lease.holder:
            await asyncio.sleep(LEASE_LOOK_S)
            held = (await inspect()).lease != facts.lease
    except StoreInUse as error:
        return True, [str(error)]
    notes = {
        "The store does not exist yet; the service creates it when it starts.": facts.missing,
        "An earlier version wrote the store; the service upgrades it when it starts.": (
            facts.outdated
        ),
        "Another process holds the store's lease; the service would start as a standby.": held,
    }
    return held, [note for note, holds in notes.items() if holds]
