"""A certificate for this machine's own names, made by the program `openssl`.

Azure's tools refuse to send a token over plain HTTP. Source: Z-3.
"""

from __future__ import annotations

from pathlib import Path

from forewarn.errors import CallerError
from forewarn.programs import ProgramFailed, ProgramLimits, program_output
from forewarn.values import value

#: How long the program may take, in seconds; it takes some 20 ms.
TIMEOUT_S = 30
#: How long a certificate is good for; it is made again at each start.
DAYS = 30

_NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1"


class CertificateUnmade(CallerError):
    """A certificate that could not be made."""

    code = "certificate-unmade"
    status = 422
    message = "No certificate could be made with openssl: {reason}."
    advice = "Install openssl 1.1.1 or newer, or name a certificate and a key of your own."


@value
class Certificate:
    """Where a certificate and its key are."""

    path: Path
    key: Path


def make_certificate(directory: Path) -> Certificate:
    """Make a certificate for localhost and its key in a directory that only its owner reads.

    Raises:
        CertificateUnmade: there is no `openssl`, or it failed.
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


def openssl(*words: str, given: bytes = b"") -> bytes:
    """Run the program `openssl` with these words and this input, and return what it printed.

    Raises:
        CertificateUnmade: there is none, or it failed.
    """
    try:
        return program_output(("openssl", *words), given, ProgramLimits(TIMEOUT_S))
    except ProgramFailed as error:
        raise CertificateUnmade(reason=str(error).removesuffix(".")) from error
