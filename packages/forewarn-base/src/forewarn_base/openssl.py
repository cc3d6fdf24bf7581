"""Calls of the program `openssl`, and a self-signed certificate for this machine's names.

Azure's tools refuse to send a token over plain HTTP. Source: Z-3.
"""

from __future__ import annotations

from pathlib import Path

from forewarn_base.errors import CallerError
from forewarn_base.programs import ProgramFailed, ProgramLimits, program_output
from forewarn_base.values import value

#: Timeout of `openssl`, in seconds; a run takes about 20 ms.
TIMEOUT_S = 30
#: Validity of a certificate; each start creates a new certificate.
DAYS = 30

_NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1"


class CertificateUnmade(CallerError):
    """A certificate could not be created."""

    code = "certificate-unmade"
    status = 422
    message = "openssl could not create a certificate: {reason}."
    advice = "Install openssl 1.1.1 or newer, or set your own certificate and key."


@value
class Certificate:
    """The files of a certificate and its key."""

    path: Path
    key: Path


def make_certificate(directory: Path) -> Certificate:
    """Create a certificate for localhost and its key in a directory that only its owner can read.

    Raises:
        CertificateUnmade: `openssl` is missing or failed.
    """
    certificate = Certificate(directory / "certificate.pem", directory / "key.pem")
    openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
        *("-nodes", "-sha256", "-days", str(DAYS), "-subj", "/CN=Forewarn"),
        *("-addext", _NAMES, "-addext", "keyUsage=critical,digitalSignature,keyCertSign"),
        *("-addext", "extendedKeyUsage=serverAuth"),
        *("-keyout", str(certificate.key), "-out", str(certificate.path)),
    )
    certificate.key.chmod(0o600)
    return certificate


def openssl(*words: str, stdin: bytes = b"") -> bytes:
    """Run the program `openssl` with these arguments and input, and return its output.

    Raises:
        CertificateUnmade: the program is missing or failed.
    """
    try:
        return program_output(("openssl", *words), stdin, ProgramLimits(TIMEOUT_S))
    except ProgramFailed as error:
        raise CertificateUnmade(reason=error.clause) from error
