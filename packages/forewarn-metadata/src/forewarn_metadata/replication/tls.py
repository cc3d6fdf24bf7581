"""TLS contexts for both ends of the feed between machines.

`access.py` checks the permissions of nodes.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

from forewarn_base.errors import CallerError
from forewarn_metadata.replication.access import TlsFiles


class TlsFilesInvalid(CallerError):
    """Certificates or keys are unusable."""

    code = "tls-files-invalid"
    message = "The TLS files {files} cannot be used: {reason}."
    advice = "Each file must be in PEM form, and readable by the user of the service."


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the TLS context for the control plane, as the server.

    Raises:
        TlsFilesInvalid: a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_NONE
    context.num_tickets = 0  # nodes resume no sessions: they return to another control plane
    if files.ca:
        context.verify_mode = ssl.CERT_OPTIONAL  # a node may have a token instead of a certificate
    return _loaded(context, files)


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the TLS context for a node, as the client; it checks the control plane's name.

    Raises:
        TlsFilesInvalid: a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not files.ca:
        context.load_default_certs()
    return _loaded(context, files)


def expiry_of(certificate: str) -> float:
    """Return the expiry of a file's first certificate, in seconds since the epoch UTC."""
    from cryptography.x509 import load_pem_x509_certificate  # noqa: PLC0415 - slow to import

    return load_pem_x509_certificate(Path(certificate).read_bytes()).not_valid_after_utc.timestamp()


def expiries(files: Mapping[str, str]) -> dict[str, int]:
    """Return when certificates expire, ms since the epoch UTC; a missing file is left out."""
    there = {name: file for name, file in files.items() if Path(file).is_file()}
    return {name: int(expiry_of(file) * 1000) for name, file in there.items()}


def _loaded(context: ssl.SSLContext, files: TlsFiles) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3  # both ends run Forewarn
    try:
        if files.certificate:
            context.load_cert_chain(files.certificate, files.key or None)
        if files.ca:
            context.load_verify_locations(files.ca)
    except OSError as error:  # OSError includes ssl.SSLError
        named = ", ".join(each for each in files if each)
        raise TlsFilesInvalid(files=named, reason=error.strerror or error) from error
    return context
