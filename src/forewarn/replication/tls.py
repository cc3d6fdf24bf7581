"""TLS contexts for both ends of the feed between machines.

`access.py` decides which node may follow which hosts.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from forewarn.errors import CallerError

if TYPE_CHECKING:
    from forewarn.replication.access import TlsFiles


class TlsFilesInvalid(CallerError):
    """Certificates or keys are unusable."""

    code = "tls-files-invalid"
    message = "The TLS files {files} cannot be used: {reason}."
    advice = "Each must be in PEM, and readable by the user of the service."


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the context of the control plane's end.

    Args:
        files: its certificate and key, and the CA of the nodes' certificates.

    Raises:
        TlsFilesInvalid: a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_NONE
    if files.ca:
        context.verify_mode = ssl.CERT_OPTIONAL  # a node may have a token instead
    return _loaded(context, files)


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the context of a node's end; the control plane's name is always checked.

    Raises:
        TlsFilesInvalid: a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not files.ca:
        context.load_default_certs()
    return _loaded(context, files)


def expiry_of(certificate: str) -> float:
    """Return when the first certificate of a file expires, in seconds since the epoch UTC."""
    from cryptography.x509 import load_pem_x509_certificate  # noqa: PLC0415 - slow to import

    return load_pem_x509_certificate(Path(certificate).read_bytes()).not_valid_after_utc.timestamp()


def _loaded(context: ssl.SSLContext, files: TlsFiles) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3  # both ends are Forewarn's
    try:
        if files.certificate:
            context.load_cert_chain(files.certificate, files.key or None)
        if files.ca:
            context.load_verify_locations(files.ca)
    except OSError as error:  # includes ssl errors
        named = ", ".join(each for each in files if each)
        raise TlsFilesInvalid(files=named, reason=error.strerror or error) from error
    return context
