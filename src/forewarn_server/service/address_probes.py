"""Probes of the service's addresses: each binds and closes a socket.

A start runs them before it opens the store, so that a busy port changes nothing. The
listeners themselves open later, because connections would wait in their queues while a large store
loads.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from forewarn_base.host_port import host_and_port
from forewarn_metadata.connection_table import listeners_at
from forewarn_metadata.endpoint.http import addresses
from forewarn_server.api.listener import (
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

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from forewarn_base.settings import Settings
    from forewarn_server.api.listener import Purpose


async def check_addresses(settings: Settings) -> None:
    """Raise the error of the first address that is in use.

    The metadata addresses of several control planes may be one address of a machine, which only
    the active process opens; they are checked only without a shared store.

    Raises:
        OperatorAddressTaken: an address of operators, nodes or metrics cannot be bound.
        AddressUnavailable: a metadata address cannot be bound.
    """
    shared_store = settings.store.shared
    for probe in address_probes(settings, metadata=not shared_store):
        await probe()


def address_probes(
    settings: Settings, *, metadata: bool = True
) -> Iterator[Callable[[], Awaitable[None]]]:
    """Yield a function that tries each address, in the order of a start."""
    listen = settings.listen
    if listen.metrics:
        yield partial(_probe, listen.metrics, METRICS)
    if settings.feed.listen:
        yield partial(_probe_feed, settings.feed.listen)
    for address in listen.metadata if metadata else ():
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
