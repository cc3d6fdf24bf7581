"""The webhook driver over TLS: it talks to who it is meant for, and tells an impostor nothing."""

import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn_drivers import Driver
from forewarn_drivers.registry import make_driver
from forewarn_drivers.webhook.driver import WebhookFailed
from tests.drivers.tasks import task
from tests.drivers.ticket_system import SECRET, TicketSystem
from tests.e2e.certificates import make_certificates

pytestmark = pytest.mark.skipif(
    not shutil.which("openssl"), reason="openssl makes the certificates"
)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of the ticket system and of another, and an authority that signed neither."""
    directory = tmp_path_factory.mktemp("certificates")
    make_certificates(directory, far="IP:127.0.0.1", other="DNS:tickets.example")
    (directory / "foreign").mkdir()
    make_certificates(directory / "foreign")
    return directory


@pytest.fixture
def far(certificates: Path, request: pytest.FixtureRequest) -> Iterator[TicketSystem]:
    """A ticket system with the certificate that the test names."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    name = certificates / str(request.param)
    context.load_cert_chain(f"{name}.pem", f"{name}.key")
    system = TicketSystem(context)
    yield system
    system.close()


def driver_of(far: TicketSystem, directory: Path, ca: Path) -> Driver:
    """Return a driver that believes an authority."""
    (directory / "secret").write_bytes(SECRET)
    settings = {"url": far.url, "secret_file": str(directory / "secret"), "backoff_s": 0}
    files = {"ca_file": str(ca)}
    return make_driver("tickets", {"kind": "webhook", **settings, **files})


@pytest.mark.parametrize("far", ["far"], indirect=True)
def test_webhook_speaks_tls(far: TicketSystem, tmp_path: Path, certificates: Path) -> None:
    """A task reaches the far side whose certificate the named authority signed. Source: R-4."""
    driver_of(far, tmp_path, certificates / "ca.pem").begin(task())
    assert far.opened == {"op-12/1": 1}


@pytest.mark.parametrize(
    ("far", "ca", "reason"),
    [
        ("far", "foreign/ca.pem", "certificate verify failed"),
        ("other", "ca.pem", "IP address mismatch"),
    ],
    indirect=["far"],
    ids=["authority", "name"],
)
def test_webhook_tells_an_impostor_nothing(
    far: TicketSystem, ca: str, reason: str, tmp_path: Path, certificates: Path
) -> None:
    """Who cannot prove the name in the URL is sent no task. Source: R-4."""
    with pytest.raises(WebhookFailed, match=reason):
        driver_of(far, tmp_path, certificates / ca).begin(task())
    assert far.requests == []
