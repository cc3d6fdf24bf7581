"""The certificates of the service's addresses."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from forewarn_base.settings import FeedSettings, OperatorSettings, Settings


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
        from forewarn_metadata.replication.tls import expiry_of  # noqa: PLC0415 - most need no TLS

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


def tls_of(settings: FeedSettings | OperatorSettings) -> ssl.SSLContext | None:
    """Return the TLS context of the feed or the operator API; None: without TLS.

    Raises:
        TlsFilesInvalid: a file cannot be used.
    """
    if not settings.certificate:
        return None
    from forewarn_metadata.replication.access import TlsFiles  # noqa: PLC0415
    from forewarn_metadata.replication.tls import server_context  # noqa: PLC0415 - most need no TLS

    files = TlsFiles(settings.certificate, settings.key, settings.client_ca)
    return server_context(files)
