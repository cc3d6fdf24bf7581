"""Credentials of the service: certificates of its addresses, and credentials for NATS servers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator

    from forewarn.nats_client import NatsConnection, NatsLogin
    from forewarn.settings import FeedSettings, OperatorSettings, Settings


class ServedCertificates:
    """The certificates of the service's addresses, by settings section."""

    def __init__(self) -> None:
        self._contexts: dict[str, ssl.SSLContext] = {}
        #: Expiry of the certificates in use, in seconds since the epoch UTC, by section.
        self.expiries: dict[str, float] = {}

    def load(
        self, section: str, settings: FeedSettings | OperatorSettings
    ) -> ssl.SSLContext | None:
        """Return the TLS context of a section's address; None: without TLS.

        Raises:
            TlsFilesInvalid: a file cannot be used.
        """
        context = tls_of(settings)
        if context is not None:
            self._contexts[section] = context
            self.note_expiry(section, settings.certificate)
        return context

    def note_expiry(self, section: str, certificate: str) -> None:
        """Record the expiry of a section's certificate file."""
        from forewarn.replication.tls import expiry_of  # noqa: PLC0415 - most need no TLS

        self.expiries[section] = expiry_of(certificate)

    def check(self, settings: Settings) -> list[Callable[[], None]]:
        """Return functions that reload the certificates, after checking each.

        Raises:
            TlsFilesInvalid: a file cannot be used.
        """
        loaders: list[Callable[[], None]] = []
        for name, context in self._contexts.items():
            section = getattr(settings, name)
            if tls_of(section) is not None:
                loaders.append(partial(context.load_cert_chain, section.certificate, section.key))
                loaders.append(partial(self.note_expiry, name, section.certificate))
        return loaders


async def connect_feed(feed: FeedSettings, turns: Iterator[int]) -> NatsConnection:
    """Connect to the next NATS server; the credential files are read each time. Source: M-7.

    Raises:
        TlsFilesInvalid: a certificate or key cannot be used.
        NatsUnreachable: the server cannot be used.
    """
    from forewarn.nats_client import connect_nats  # noqa: PLC0415 - most use no NATS

    server = feed.nats[next(turns) % len(feed.nats)]
    return await connect_nats(server, login_of(feed), name="forewarn")


def login_of(feed: FeedSettings) -> NatsLogin:
    """Return the control plane's credentials for NATS servers.

    Raises:
        NatsMissing: the client of NATS is not installed.
        TlsFilesInvalid: a file cannot be used.
    """
    from forewarn.nats_client import NatsLogin, check_nats  # noqa: PLC0415 - most use no NATS
    from forewarn.replication.access import TlsFiles  # noqa: PLC0415
    from forewarn.replication.tls import client_context  # noqa: PLC0415 - most need no TLS

    check_nats()
    files = TlsFiles(feed.certificate, feed.key, feed.nats_ca)
    tls = client_context(files) if feed.nats_ca else None
    return NatsLogin(credentials_file=feed.nats_credentials, tls=tls)


def tls_of(settings: FeedSettings | OperatorSettings) -> ssl.SSLContext | None:
    """Return the TLS context of the feed or the operator API; None: without TLS.

    Raises:
        TlsFilesInvalid: a file cannot be used.
    """
    if not settings.certificate:
        return None
    from forewarn.replication.access import TlsFiles  # noqa: PLC0415
    from forewarn.replication.tls import server_context  # noqa: PLC0415 - most need no TLS

    files = TlsFiles(settings.certificate, settings.key, settings.client_ca)
    return server_context(files)
