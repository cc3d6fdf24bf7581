"""TLS and client certificates at the operator API. Source: P-6."""

import shutil
import ssl
import time
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPSConnection
from pathlib import Path

import pytest

from forewarn_base.settings import OperatorSettings
from forewarn_core.access.roles import Role
from forewarn_core.access.stimulus import Grant
from forewarn_server.cli.api_client import ApiClient, ApiRefused, ServerUnreachable
from tests.api.live import SETTINGS, TOKEN, Live, rereading
from tests.e2e.certificates import make_certificates
from tests.telemetry.scraping import samples, scrape, value, with_metrics
from tests.waiting import LIMIT_S

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes certificates")
CI = "spiffe://example.org/ci"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of the service and of callers, and of another authority."""
    made = tmp_path_factory.mktemp("certificates")
    make_certificates(
        made, control="IP:127.0.0.1", ci=f"DNS:ci.example.org,URI:{CI}", dns="DNS:ops.example.org"
    )
    (made / "other").mkdir()
    make_certificates(made / "other", ci=f"URI:{CI}")
    return made


@pytest.fixture(scope="module")
def live(directory: Path) -> Iterator[Live]:
    """A service over TLS that knows two callers by their certificates."""
    operator = OperatorSettings(
        certificate=str(directory / "control.pem"),
        key=str(directory / "control.key"),
        client_ca=str(directory / "ca.pem"),
    )
    with Live(replace(SETTINGS, operator=operator)) as service:
        for word in (Grant(CI, Role.OPERATOR), Grant("dns:ops.example.org", Role.VIEWER)):
            service.daemon.control.submit(word, "test").result(LIMIT_S)
        yield service


@pytest.fixture
def client(live: Live, directory: Path, monkeypatch: pytest.MonkeyPatch) -> ApiClient:
    """A client without certificate or token."""
    monkeypatch.setenv("FOREWARN_CA", str(directory / "ca.pem"))
    return ApiClient(live.url)


@pytest.mark.parametrize(
    ("host", "expected"), [("ops.example.org", "max-age=31536000"), ("localhost:8470", None)]
)
def test_page_over_tls_forbids_plain_http(
    live: Live, directory: Path, host: str, expected: str | None
) -> None:
    """A browser that has seen it sends no token or cookie in clear. Source: P-6."""
    tls = ssl.create_default_context(cafile=str(directory / "ca.pem"))
    channel = HTTPSConnection("127.0.0.1", int(live.port), timeout=LIMIT_S, context=tls)
    channel.request("GET", "/", headers={"Host": host})
    assert channel.getresponse().headers["Strict-Transport-Security"] == expected
    channel.close()


def test_page_without_tls_says_nothing_about_it() -> None:
    """Browsers ignore the header there, and a proxy with TLS adds its own."""
    with Live() as plain:
        assert "strict-transport-security" not in plain.call("GET", "/").headers


def come_as(monkeypatch: pytest.MonkeyPatch, certificate: Path) -> None:
    """Have the client prove itself."""
    monkeypatch.setenv("FOREWARN_CERTIFICATE", f"{certificate}.pem")
    monkeypatch.setenv("FOREWARN_KEY", f"{certificate}.key")


def test_certificate_maps_to_bindings(
    client: ApiClient, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first name with a binding counts, and history has it. Source: P-6."""
    come_as(monkeypatch, directory / "ci")
    assert client.get("/v1/whoami")["principal"] == CI
    client.put("/v1/hosts/h1", {})
    entry = client.get("/v1/history", host="h1")["entries"][0]
    assert entry["actor"] == f"operator {CI} at 127.0.0.1"
    come_as(monkeypatch, directory / "dns")
    assert client.get("/v1/whoami")["principal"] == "dns:ops.example.org"
    with pytest.raises(ApiRefused, match="may not do this"):
        client.put("/v1/hosts/h2", {})


def test_token_works_over_tls(live: Live, client: ApiClient) -> None:
    """Without a certificate a caller needs a token. Source: P-6."""
    with pytest.raises(ApiRefused, match="bearer token"):
        client.get("/v1/hosts")
    assert ApiClient(live.url, TOKEN).get("/v1/whoami")["principal"] == "anna"


def test_plain_http_is_told_to_use_https(live: Live) -> None:
    """A TLS port that gets plain HTTP answers nothing readable."""
    address = live.url.replace("https://", "http://")
    with pytest.raises(ServerUnreachable, match=f"speaks TLS: use {live.url}"):
        ApiClient(address, TOKEN).get("/v1/hosts")


def test_renewed_certificate_is_served_after_a_reload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metrics say when the one in use expires, not the one that lies on the disk. P-9."""
    for name, days in (("old", 30), ("new", 60)):
        (tmp_path / name).mkdir()
        make_certificates(tmp_path / name, days, control="IP:127.0.0.1")
    place = Path(shutil.copytree(tmp_path / "old", tmp_path / "used"))
    operator = OperatorSettings(
        certificate=str(place / "control.pem"), key=str(place / "control.key")
    )
    settings = replace(with_metrics(), operator=operator)
    live = Live(settings, hooks=rereading(lambda: settings))

    def days_left() -> int:
        found = samples(scrape(live.daemon.metrics_address)[1])
        name = "forewarn_certificate_not_after_timestamp_seconds"
        return round((value(found, name, section="operator") - time.time()) / 86400)

    assert days_left() == 30
    shutil.copytree(tmp_path / "new", place, dirs_exist_ok=True)
    assert days_left() == 30
    monkeypatch.setenv("FOREWARN_CA", str(tmp_path / "old" / "ca.pem"))
    assert ApiClient(live.url, TOKEN).post("/v1/reload")["needs_restart"] == []
    served = ssl.get_server_certificate(("127.0.0.1", int(live.url.rpartition(":")[2])))
    assert served == (tmp_path / "new" / "control.pem").read_text()
    assert days_left() == 60
    live.stop()


@pytest.mark.parametrize("foreign", ["server", "caller"])
def test_foreign_authority_is_refused(
    client: ApiClient, directory: Path, monkeypatch: pytest.MonkeyPatch, foreign: str
) -> None:
    """Neither side believes a certificate of another authority. Source: P-6."""
    if foreign == "caller":
        come_as(monkeypatch, directory / "other" / "ci")
    else:
        monkeypatch.setenv("FOREWARN_CA", str(directory / "other" / "ca.pem"))
    with pytest.raises(ServerUnreachable) as refused:
        client.get("/v1/whoami")
    assert ("FOREWARN_CA" in refused.value.advice_text()) == (foreign == "server")
