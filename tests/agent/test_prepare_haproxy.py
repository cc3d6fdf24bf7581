"""The HAProxy preparation against a real HAProxy."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.programs import answers, do, done, free_port, program, running, until

CONFIG = """
global
  stats socket {socket} level admin
  stats socket ipv4@127.0.0.1:{admin} level admin
defaults
  mode tcp
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend front
  bind 127.0.0.1:{front}
  default_backend web
backend web
  server one 127.0.0.1:{back}
  server two 127.0.0.1:{back}
"""


class Proxy:
    """A running HAProxy before one listener that never answers."""

    def __init__(self, directory: Path) -> None:
        """Choose the ports and write the configuration."""
        self.socket = directory / "admin.sock"
        self.front, self.admin = free_port(), free_port()
        self.backend = socket.create_server(("127.0.0.1", 0))
        self.config = directory / "haproxy.cfg"
        back = self.backend.getsockname()[1]
        text = CONFIG.format(socket=self.socket, admin=self.admin, front=self.front, back=back)
        self.config.write_text(text)

    def ask(self, command: str) -> str:
        """Return what the runtime API answers."""
        with socket.socket(socket.AF_UNIX) as one:
            one.connect(str(self.socket))
            one.sendall(f"{command}\n".encode())
            return b"".join(iter(lambda: one.recv(65536), b"")).decode()

    def state(self, server: str) -> str:
        """Return the administrative state of a server."""
        lines = self.ask("show servers state web").splitlines()
        return next(line.split()[6] for line in lines if f" {server} " in line)


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Proxy]:
    """Run a real HAProxy."""
    haproxy = program("haproxy")
    one = Proxy(tmp_path)
    with running(haproxy, "-db", "-f", str(one.config), log=tmp_path / "haproxy.log"):
        until(lambda: answers(one.admin), "haproxy listens", seconds=60)
        yield one
    one.backend.close()


def test_servers_are_drained_and_ready_again(proxy: Proxy, tmp_path: Path) -> None:
    """New connections stop, and come back after the event. Source: C-3."""
    settings = {"socket": str(proxy.socket), "servers": ["web/one", "web/two"]}
    assert "drained" in done("haproxy", "prepare", settings, tmp_path / "state")
    assert (proxy.state("one"), proxy.state("two")) == ("8", "8")
    assert "ready" in done("haproxy", "recover", settings, tmp_path / "state")
    assert (proxy.state("one"), proxy.state("two")) == ("0", "0")


def test_server_taken_out_by_an_operator_stays_out(proxy: Proxy, tmp_path: Path) -> None:
    """Only what was done is undone."""
    proxy.ask("set server web/two state maint")
    settings = {"socket": f"127.0.0.1:{proxy.admin}", "servers": ["web/one", "web/two"]}
    done("haproxy", "prepare", {**settings, "state": "maint"}, tmp_path / "state")
    done("haproxy", "recover", settings, tmp_path / "state")
    assert (proxy.state("one"), proxy.state("two")) == ("0", "1")


def test_open_sessions_are_waited_for(proxy: Proxy, tmp_path: Path) -> None:
    """A session that goes on keeps the preparation from succeeding; its end lets it."""
    settings: dict[str, object] = {
        "socket": str(proxy.socket),
        "servers": ["web/one", "web/two"],
        "wait_s": 1,
    }
    session = socket.create_connection(("127.0.0.1", proxy.front))
    accepted, _ = proxy.backend.accept()
    with session, accepted:
        refused = do("haproxy", "prepare", settings, tmp_path / "state")
        assert refused.returncode == 1
        assert "sessions" in refused.stderr
    done("haproxy", "prepare", settings, tmp_path / "state")
    done("haproxy", "recover", settings, tmp_path / "state")
    assert proxy.state("one") == "0"


def test_unknown_server_is_an_error(proxy: Proxy, tmp_path: Path) -> None:
    """A server that is not there is not a server that is drained."""
    settings = {"socket": str(proxy.socket), "servers": ["web/three"]}
    assert do("haproxy", "prepare", settings, tmp_path / "state").returncode == 1
