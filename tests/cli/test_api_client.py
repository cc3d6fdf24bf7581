"""Talking to the server: where it is, who asks, and what may go wrong."""

import http.server
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from forewarn_base.exit_codes import REFUSED, UNREACHABLE, USAGE
from forewarn_base.settings import ListenSettings, OperatorSettings
from forewarn_server.cli.api_client import (
    ApiClient,
    ServerAddressInvalid,
    ServerUnreachable,
    client_of,
)
from forewarn_server.cli.main import main
from forewarn_server.cli.parameters import ServerOptions
from tests.api.live import SETTINGS, TOKEN, Live
from tests.cli.conftest import Run
from tests.serving import serving


class Foreign(http.server.BaseHTTPRequestHandler):
    """A server of somebody else."""

    length = "5"
    body = b"hello"

    def do_GET(self) -> None:
        """Answer something."""
        self.send_response(200)
        if self.path.startswith(("/v1/hosts", "/v1/watch")):
            self.send_header("Forewarn-Time", "2027-01-15T08:00:00Z")
        self.send_header("Content-Length", self.length)
        self.end_headers()
        self.wfile.write(self.body)
        if self.length != "5":
            self.rfile.readline()  # until the client hangs up


@pytest.fixture
def foreign() -> Iterator[str]:
    """The address of a server of somebody else."""
    with serving(Foreign) as url:
        yield url


@pytest.mark.parametrize("command", [("host", "list"), ("event",), ("watch",)])
def test_foreign_server_is_recognised(
    foreign: str, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """What answers in another way is not taken for the operator API."""
    assert main(["--server", foreign, *command]) == UNREACHABLE
    assert "is not Forewarn's operator API" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("server", "token", "warned"),
    [
        ("http://192.0.2.1:8470", "fw_a_b", True),
        ("http://ops.example.org", "fw_a_b", True),
        ("http://ops.example.org", "", False),
        ("https://ops.example.org", "fw_a_b", False),
        ("http://127.0.0.1:8470", "fw_a_b", False),
        ("http://[::1]:8470", "fw_a_b", False),
        ("http://localhost:8470", "fw_a_b", False),
        ("unix:/run/forewarn/operator.sock", "fw_a_b", False),
    ],
)
def test_token_in_clear_to_another_machine_is_warned_of_before(
    server: str,
    token: str,
    warned: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A warning once for each command: readers of the network could use the token."""
    monkeypatch.setenv("FOREWARN_TOKEN", token)
    monkeypatch.setattr("forewarn_server.cli.api_client._WARNED", set())
    for _ in range(2):
        client_of(ServerOptions(server=server))
    said = capsys.readouterr().err
    assert said.count("unencrypted") == warned
    assert "fw_a_b" not in said


def test_silent_stream_is_given_up(foreign: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream without any sign of life is taken for lost."""
    monkeypatch.setattr("forewarn_server.cli.api_client.SILENCE_S_MAX", 0.05)
    monkeypatch.setattr(Foreign, "length", "9")
    with pytest.raises(ServerUnreachable, match="fell silent"):
        list(ApiClient(foreign).lines("/v1/watch"))


def test_stream_that_breaks_off_is_told(foreign: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is gone in the middle is not one that has ended the stream."""
    monkeypatch.setattr(Foreign, "body", b"\n\n\n\n\n")
    with pytest.raises(ServerUnreachable, match="broke off"):
        list(ApiClient(foreign).lines("/v1/watch"))


def test_absent_server_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Where nothing listens, the sentence names the address and the advice helps."""
    assert main(["host", "list", "--server", "http://127.0.0.1:1"]) == UNREACHABLE
    told = capsys.readouterr().err
    assert "http://127.0.0.1:1 cannot be reached: connection refused" in told
    assert "forewarn emulate" in told


def test_server_without_tls_is_named(live: Live) -> None:
    """`https://` where `http://` is right is not reported as a server that is away."""
    with pytest.raises(ServerUnreachable, match=r"reached: it does not use TLS\."):
        ApiClient(live.url.replace("http:", "https:")).get("/v1/hosts")


@pytest.mark.parametrize("address", ["ftp://x", "localhost", "http://", "http://[x", "http://x:y"])
def test_wrong_address_is_refused(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An address that is none is refused before anything is sent."""
    with pytest.raises(ServerAddressInvalid):
        ApiClient(address)
    assert main(["host", "list", "--server", address]) == USAGE
    assert "is not an address of an operator API" in capsys.readouterr().err


def test_proxy_is_never_used(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator API is a private address: the environment's proxies do not count."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert run("host", "list").status == 0


def test_option_wins_over_the_environment(
    run: Run, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--server stands before or after the command, and wins over FOREWARN_SERVER."""
    monkeypatch.setenv("FOREWARN_SERVER", "http://127.0.0.1:1")
    assert run("host", "list").status == UNREACHABLE
    assert run("--server", live.url, "host", "list").status == 0
    assert run("host", "list", "--server", f"{live.url}/").status == 0


def test_token_comes_from_file_or_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A token is read from a file or FOREWARN_TOKEN, never from the command line itself."""
    service = Live(replace(SETTINGS, operator=OperatorSettings()))
    monkeypatch.setenv("FOREWARN_SERVER", service.url)
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    try:
        assert main(["host", "list"]) == REFUSED
        assert "requires a bearer token" in capsys.readouterr().err
        assert main(["host", "list", "--token-file", str(file)]) == 0
        assert main(["host", "list", "--token-file", str(tmp_path / "none")]) == USAGE
        (tmp_path / "empty").write_text("\n")
        assert main(["host", "list", "--token-file", str(tmp_path / "empty")]) == USAGE
        monkeypatch.setenv("FOREWARN_TOKEN", TOKEN)
        assert main(["host", "add", "h"]) == 0
        monkeypatch.setenv("FOREWARN_TOKEN", "\x07" * 20)
        assert main(["host", "list"]) == USAGE
    finally:
        service.stop()


def test_unix_socket_is_no_address_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has none there; it is said instead of a traceback."""
    monkeypatch.setattr("sys.platform", "win32")
    with pytest.raises(ServerAddressInvalid):
        ApiClient("unix:/run/forewarn.sock")


@pytest.mark.skipif(sys.platform == "win32", reason="Python has no Unix sockets there")
def test_unix_socket_is_an_address(tmp_path: Path) -> None:
    """`unix:PATH` talks over a Unix socket."""
    path = tmp_path / "s"
    listen = ListenSettings(metadata=("127.0.0.1:0",), operator=f"unix:{path}")
    with Live(replace(SETTINGS, listen=listen)):
        assert main(["host", "list", "--server", f"unix:{path}"]) == 0
    assert main(["host", "list", "--server", f"unix:{path}"]) == UNREACHABLE
