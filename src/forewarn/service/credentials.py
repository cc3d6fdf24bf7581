"""Credentials of the service: TLS contexts, and credentials for NATS servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

    from forewarn.nats_client import NatsConnection, NatsLogin
    from forewarn.settings import FeedSettings, OperatorSettings


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
