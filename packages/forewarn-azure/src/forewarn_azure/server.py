"""Azure Resource Manager on its own TLS port, by default with a self-signed certificate."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import tempfile
from pathlib import Path

from forewarn_azure.app import build_arm, every_route
from forewarn_base.errors import CallerError
from forewarn_base.openssl import make_certificate
from forewarn_base.settings import Settings
from forewarn_base.values import value
from forewarn_server.api.further_apis import FurtherApi
from forewarn_server.api.listener import AZURE
from forewarn_server.api.server import OperatorServer, start_operator
from forewarn_server.control.run_loop import ControlLoop
from forewarn_store import Store


class CertificateUnusable(CallerError):
    """The certificate in `[azure]` is unusable."""

    code = "certificate-unusable"
    status = 422
    message = "The certificate {path} cannot be used: {reason}."
    advice = "Set a certificate and its key in PEM form ([azure] certificate, key)."


@value
class ArmServer:
    """A running server of Azure Resource Manager."""

    url: str
    #: Path of the certificate file, for `REQUESTS_CA_BUNDLE`.
    certificate: str
    _server: OperatorServer
    #: Temporary directory of the certificate; None if the operator set a certificate.
    _directory: Path | None

    async def stop(self) -> None:
        """Close the server, and delete the temporary directory."""
        await self._server.stop()
        _remove(self._directory)


async def start_arm(loop: ControlLoop, store: Store, settings: Settings) -> ArmServer:
    """Serve Azure Resource Manager at the address in the settings.

    Raises:
        OperatorAddressUnusable: the address is malformed or in use.
        CertificateUnmade, CertificateUnusable: no certificate is usable.
    """
    azure, directory = settings.azure, None
    path, key = azure.certificate, azure.key or azure.certificate
    if not path:
        directory = Path(tempfile.mkdtemp(prefix="forewarn-azure-"))
    try:
        if directory is not None:
            certificate = await asyncio.to_thread(make_certificate, directory)
            path, key = str(certificate.path), str(certificate.key)
        key_of_tokens = azure.token_key.encode()
        tls = _tls(path, key)
        app = build_arm(
            loop, store, clock=loop.clock, settings=settings.operator, token_key=key_of_tokens
        )
        server = await start_operator(app, azure.listen, settings.operator, tls=tls, purpose=AZURE)
    except OSError as error:  # an unreadable file; OSError includes ssl.SSLError
        _remove(directory)
        raise CertificateUnusable(path=path, reason=error.strerror or error) from error
    except BaseException:
        _remove(directory)
        raise
    # Use a name, because Azure's tools look for the name in the certificate.
    url = server.address.replace("http://127.0.0.1:", "http://localhost:")
    return ArmServer(url.replace("http://", "https://", 1), path, server, directory)


def check_certificate(settings: Settings) -> None:
    """Check the certificate in the settings, if one is set.

    Raises:
        CertificateUnusable: the certificate or key cannot be read, or they do not match.
    """
    azure = settings.azure
    if not azure.certificate:
        return
    try:
        _tls(azure.certificate, azure.key or azure.certificate)
    except OSError as error:
        raise CertificateUnusable(path=azure.certificate, reason=error.strerror or error) from error


def _tls(path: str, key: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path, key)
    return context


def _remove(directory: Path | None) -> None:
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)


#: The entry point `azure` of the group `forewarn.apis`.
API = FurtherApi(every_route, check_certificate, start_arm)
