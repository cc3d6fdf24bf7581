"""`GET /metrics` as an application: what counters hold, and what is asked when somebody scrapes.

It is rendered on a thread of its own, so that no VM waits for it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Info, ProcessCollector
from prometheus_client.exposition import choose_encoder

from forewarn.version import version

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
    from typing import Any, TypeAlias

    from prometheus_client.core import Metric

    Scope: TypeAlias = MutableMapping[str, Any]

PATH = "/metrics"


def new_registry() -> CollectorRegistry:
    """Return a registry with what every process says: its version, CPU, memory, files."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    Info("forewarn_build", "Version of Forewarn.", registry=registry).info({"version": version()})
    return registry


class ScrapeApp:
    """Answers scrapes; an ASGI application."""

    def __init__(
        self, registry: CollectorRegistry, sources: Sequence[Callable[[], Awaitable[list[Metric]]]]
    ) -> None:
        """Serve a registry and what the sources say at each scrape."""
        self._registry = registry
        self._sources = sources

    async def __call__(
        self,
        scope: Scope,
        _receive: object,
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        """Answer one request."""
        status, media, body = 404, "text/plain", b"Ask for /metrics.\n"
        if scope["path"] == PATH:
            status, body = 405, b"Only GET is answered.\n"
        if scope["path"] == PATH and scope["method"] in {"GET", "HEAD"}:
            accept = dict(scope["headers"]).get(b"accept", b"").decode("latin-1")
            status, (media, body) = 200, await self._exposition(accept)
        headers = [(b"content-type", media.encode()), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _exposition(self, accept: str) -> tuple[str, bytes]:
        families = [family for source in self._sources for family in await source()]
        encode, media = choose_encoder(accept)
        body = await asyncio.to_thread(encode, _Families(self._registry, families))
        return media, body


class _Families:
    """Looks like a registry to an encoder."""

    def __init__(self, registry: CollectorRegistry, more: list[Metric]) -> None:
        self._registry = registry
        self._more = more

    def collect(self) -> Iterator[Metric]:
        yield from self._registry.collect()
        yield from self._more
