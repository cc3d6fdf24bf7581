"""The nginx of the page on Neutron's agent, with an agent in front and Nova behind it."""

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import asking
from tests.agent.programs import free_port
from tests.metadata.live import EVENTS, FREEZE, approval, serving
from tests.metadata.test_neutron import PROXY, by_agent
from tests.serving import HttpServer, Request
from tests.waiting import wait_until

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "openstack-metadata.md"
NGINX = """
daemon off; master_process off; pid {directory}/pid; error_log stderr;
events {{ }}
http {{
  access_log off; client_body_temp_path {directory}/body; proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/f; uwsgi_temp_path {directory}/u; scgi_temp_path {directory}/s;
  {server}
}}
"""


@pytest.fixture
def nova() -> Iterator[int]:
    """Run Nova's metadata API, which says for whom it answers; return its port."""

    def respond(request: Request) -> tuple[int, bytes, dict[str, str]]:
        return 200, f"nova for {request.headers['x-instance-id']}".encode(), {}

    with HttpServer(respond) as server:
        yield server.port


def ask(port: int, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    """Ask as Neutron's agent does in the name of a VM."""
    headers = {name.replace("_", "-"): text for name, text in by_agent("instance-a").items()}
    del headers["metadata"]
    reply = asking.ask(f"127.0.0.1:{port}", method, path, body=body, headers=headers)
    return reply.status, reply.body


def accepts(port: int) -> bool:
    """Whether somebody listens on a port."""
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_reverse_proxy_of_the_page_splits_the_paths(nova: int, tmp_path: Path) -> None:
    """Events are Forewarn's, read and approved in the VM's name; the rest is Nova's. S-6."""
    found = re.search(r"```nginx\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found, "the page has no nginx"
    with serving(PROXY) as live:
        live.show(FREEZE)
        port = free_port()
        block = found[1].replace("10.0.0.5:8775", f"127.0.0.1:{port}")
        block = block.replace("127.0.0.1:8169", f"127.0.0.1:{live.port}")
        block = block.replace("10.0.0.6:8775", f"127.0.0.1:{nova}")
        path = tmp_path / "nginx.conf"
        path.write_text(NGINX.format(directory=tmp_path, server=block))
        with subprocess.Popen(["nginx", "-p", tmp_path, "-c", path]) as nginx:
            try:
                wait_until(lambda: accepts(port), what="nginx")
                status, body = ask(port, "GET", EVENTS)
                assert (status, json.loads(body)["Events"][0]["EventType"]) == (200, "Freeze")
                assert ask(port, "POST", EVENTS, approval(FREEZE.event_id))[0] == 200
                assert [each.vm for each in live.control.approvals] == ["vm-a"]
                assert ask(port, "GET", "/openstack")[1] == b"nova for instance-a"
            finally:
                nginx.terminate()
