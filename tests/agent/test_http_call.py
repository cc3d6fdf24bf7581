"""The one HTTP request of preparations, notifications and conditions of nodes."""

import contextlib
import shutil
import socket
import ssl
import threading
from pathlib import Path

import pytest

from forewarn.agent.preparations import http_call
from forewarn.agent.preparations.http_call import CallFailed, CallUnanswered, call
from tests.e2e.certificates import make_certificates
from tests.serving import HttpServer
from tests.waiting import LIMIT_S


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes certificates")
def test_untrusted_certificate_fails_and_is_not_asked_again(tmp_path: Path) -> None:
    """Only the CA of the settings is trusted, and no time makes another one trusted."""
    make_certificates(tmp_path, server="DNS:localhost,IP:127.0.0.1")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    with HttpServer(lambda asked: (200, asked.path.encode(), {}), tls=tls) as server:
        trusted = str(tmp_path / "ca.pem")
        for host in ("127.0.0.1", "localhost"):
            url = f"https://{host}:{server.port}/a?b=1"
            assert call("GET", url, ca_file=trusted).body == b"/a?b=1"
        with pytest.raises(CallFailed, match="certificate") as failed:
            call("GET", server.url)
    assert not isinstance(failed.value, CallUnanswered)


@pytest.mark.parametrize(("length", "fits"), [(64, True), (65, False)])
def test_answer_beyond_the_limit_is_refused(
    monkeypatch: pytest.MonkeyPatch, length: int, *, fits: bool
) -> None:
    """A part of an answer is never taken for the whole."""
    monkeypatch.setattr(http_call, "BODY_BYTES_MAX", 64)
    with HttpServer(lambda _: (200, b"x" * length, {"Connection": "close"})) as server:
        if fits:
            assert len(call("GET", server.url).body) == length
        else:
            with pytest.raises(CallUnanswered, match="Content-Length"):
                call("GET", server.url)


def test_answer_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that sends a byte now and then does not hold a preparation."""
    monkeypatch.setattr(http_call, "TIMEOUT_S", 1.0)
    ended = threading.Event()

    def drip(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection, contextlib.suppress(ConnectionError):
            while not ended.wait(0.05):
                connection.sendall(b"H")

    with socket.create_server(("127.0.0.1", 0)) as server:
        dripping = threading.Thread(target=drip, args=(server,))
        dripping.start()
        try:
            with pytest.raises(CallUnanswered, match=r"timed out|takes more"):
                call("GET", f"http://127.0.0.1:{server.getsockname()[1]}")
        finally:
            ended.set()
            dripping.join(LIMIT_S)


@pytest.mark.parametrize("header", ["a\r\nX-Other: b", "é"])
def test_malformed_header_is_not_shown(header: str) -> None:
    """A header may be a token, which no log should have."""
    with pytest.raises(CallFailed, match="HTTP does not allow") as failed:
        call("GET", "http://127.0.0.1:9", headers={"Authorization": header})
    assert header not in str(failed.value)
