"""Checks a start without serving: `forewarn serve --check`.

The check opens and closes all parts in the order of a start and with the same functions, so that
errors are the same. A running service holds its store and its ports, so ports in use are only
notes.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from forewarn.api.listener import (
    AZURE,
    FEED,
    METRICS,
    OPERATOR,
    UNIX,
    OperatorAddressTaken,
    clean_up,
    open_listener,
    taken,
)
from forewarn.azure.server import check_certificate
from forewarn.clock import SystemClock
from forewarn.connection_table import listeners_at
from forewarn.host_port import host_and_port
from forewarn.ids import Ids
from forewarn.metadata.http import addresses
from forewarn.nats_client import NatsUnreachable
from forewarn.service.credentials import connect_feed, tls_of
from forewarn.service.daemon import Daemon
from forewarn.service.observers import traces_module
from forewarn.store.errors import StoreInUse
from forewarn.store.inspection import inspect_store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from forewarn.api.listener import Purpose
    from forewarn.settings import Settings, StoreSettings


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
    Daemon(settings, clock=SystemClock(), ids=Ids())
    notes = []
    if settings.otlp.endpoint:
        await traces_module()
    for section in (settings.feed, settings.operator):
        tls_of(section)
    for turn in range(len(settings.feed.nats)):
        try:
            await (await connect_feed(settings.feed, iter((turn,)))).close()
        except NatsUnreachable as error:  # a real start would retry
            notes.append(str(error))
    check_certificate(settings.azure)
    for probe in _probes(settings):
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


def _probes(settings: Settings) -> Iterator[Callable[[], Awaitable[None]]]:
    """Return a function that tries each address, in the order of a start."""
    listen = settings.listen
    if listen.metrics:
        yield partial(_probe, listen.metrics, METRICS)
    if settings.feed.listen:
        yield partial(_probe_feed, settings.feed.listen)
    for address in listen.metadata:
        yield partial(_probe_metadata, address, shared=listen.workers > 0)
    for address, purpose in (
        (listen.local, OPERATOR),
        (listen.operator, OPERATOR),
        (settings.azure.listen, AZURE),
    ):
        if address:
            yield partial(_probe, address, purpose)


async def _probe(address: str, purpose: Purpose) -> None:
    place = _beside(address)
    try:
        open_listener(place, purpose).close()
    except OperatorAddressTaken as error:
        raise taken(address, purpose, error.__cause__) from error
    if place != address:
        clean_up(place)


async def _probe_metadata(address: str, *, shared: bool) -> None:
    try:
        addresses.open_listener(addresses.parse(_beside(address)), shared=shared).close()
    except addresses.AddressUnavailable as error:
        reason = error.facts["reason"]
        raise addresses.AddressUnavailable(text=address, reason=reason) from error


async def _probe_feed(address: str) -> None:
    try:
        listeners = await listeners_at(*host_and_port(address))
    except OSError as error:
        raise taken(address, FEED, error) from error
    for listener in listeners:
        listener.close()


def _beside(address: str) -> str:
    """Return a temporary Unix socket path next to an address that a running service may use."""
    return f"{address[:-1]}~" if address.startswith(UNIX) else address
