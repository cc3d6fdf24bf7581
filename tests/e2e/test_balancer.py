"""Three control planes behind HAProxy, configured as the manual has it. Source: H-4."""

import http.client
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import asking
from tests.agent.programs import free_port
from tests.e2e.planes import BEARER, Plane, running_planes
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.postgres]

MANUAL = Path(__file__).parents[2] / "docs/howto/several-control-planes.md"


@contextmanager
def balanced(folder: Path, planes: list[Plane]) -> Iterator[int]:
    """Run HAProxy before these processes; yield its port."""
    [text] = re.findall(r"```haproxy\n(.*?)```", MANUAL.read_text("utf-8"), re.DOTALL)
    port = free_port()
    text = text.replace("192.0.2.10:8470", f"127.0.0.1:{port}")
    for number, plane in enumerate(planes, 1):
        text = text.replace(f"192.0.2.{number}:8470", f"127.0.0.1:{plane.port}")
    config = folder / "haproxy.cfg"
    config.write_text(text)
    with subprocess.Popen(["haproxy", "-db", "-f", str(config)]) as process:
        try:
            yield port
        finally:
            process.terminate()


def ask(port: int, method: str, path: str, key: str = "") -> tuple[int, str]:
    """Be a client that trusts its balancer; return status and text, 0 where it hangs up."""
    form = {"fault_domain": 0} if method == "PUT" else None
    try:
        reply = asking.ask(
            f"127.0.0.1:{port}", method, path, form, headers={**BEARER, "Idempotency-Key": key}
        )
    except (OSError, http.client.HTTPException):
        return 0, ""
    return reply.status, reply.body.decode()


def test_operators_notice_no_takeover_in_reads(tmp_path: Path, postgres_address: str) -> None:
    """The active process is killed: each read is answered, and changes go on after the term."""
    with (
        running_planes(tmp_path, postgres_address, 3) as planes,
        balanced(tmp_path, planes) as port,
    ):
        wait_until(lambda: ask(port, "PUT", "/v1/hosts/h0")[0] == 200)
        assert ask(port, "GET", "/v1/relay")[0] == 403
        wait_until(lambda: '"h0"' in ask(port, "GET", "/v1/hosts")[1])
        planes[0].end()
        statuses = set()

        def changed() -> bool:
            statuses.add(ask(port, "GET", "/v1/hosts")[0])
            return ask(port, "PUT", "/v1/hosts/h1")[0] == 200

        wait_until(changed)
        assert statuses == {200}
