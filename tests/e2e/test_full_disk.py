"""A disk that is full: changes are refused, and nothing that was answered is lost."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn_base.audit_chain import SIGNED, CallRecord, first_fault
from forewarn_server.cli.api_client import ApiClient, ApiRefused, ServerUnreachable
from tests.e2e.small_disk import CASES
from tests.waiting import wait_until

#: More changes than the disk has room for.
CHANGES_MAX = 2000
#: Mounts a small disk that only the service and what it starts sees, and gives some of it away.
MOUNTED = (
    'mount -t tmpfs -o size=2m none "$0" && cd "$0" && head -c 500k /dev/zero >filler && exec "$@"'
)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[ApiClient, Path]]:
    """A service whose store is on a small disk, and where that disk can be reached."""
    mount, socket = tmp_path / "disk", tmp_path / "operator.sock"
    mount.mkdir()
    namespace = ["unshare", "--map-root-user", "--mount", "sh", "-c", MOUNTED, str(mount)]
    if not shutil.which("unshare") or subprocess.run([*namespace, "true"], check=False).returncode:
        pytest.skip("needs a mount namespace")
    settings = tmp_path / "forewarn.toml"
    settings.write_text(
        f'[store]\nurl = "{mount}/forewarn.db"\n[listen]\nmetadata = ["127.0.0.1:0"]\n'
        f'operator = "unix:{socket}"\n'
    )
    serve = [sys.executable, "-m", "forewarn_server.cli.main", "serve", "--config", str(settings)]
    with subprocess.Popen([*namespace, *serve]) as process:
        client = ApiClient(f"unix:{socket}")
        wait_until(lambda: answers(client))
        yield client, Path(f"/proc/{process.pid}/cwd")
        process.kill()


def answers(client: ApiClient) -> bool:
    """Whether the service is there."""
    try:
        return bool(client.get("/v1/whoami"))
    except (ServerUnreachable, ApiRefused):
        return False


def test_full_disk_refuses_changes_and_loses_nothing(disk: tuple[ApiClient, Path]) -> None:
    """Each change is there with its record, or neither is; with room it goes on. Source: P-7."""
    client, mount = disk
    done: list[str] = []
    names = (f"h{number:04}" for number in range(CHANGES_MAX))
    with pytest.raises(ApiRefused, match="disk is full"):
        done.extend(name for name in names if client.put(f"/v1/hosts/{name}", {}))
    (mount / "filler").unlink()
    wait_until(lambda: client.get("/v1/health")["ready"])
    client.put("/v1/hosts/last", {})
    assert [each["name"] for each in client.get("/v1/hosts", limit=1000)["hosts"]] == [
        *done,
        "last",
    ]
    records = client.get("/v1/audit", after=0, limit=10_000)["records"]
    chain = [(e["sequence"], CallRecord(*(e[n] for n in SIGNED)), e["digest"]) for e in records]
    assert first_fault(chain, {}) == (0, "")
    changed = [each["object"] for each in records if each["outcome"] == "done"]
    assert changed == [*done, "last"]


@pytest.mark.parametrize("case", CASES)
def test_disk_without_space_or_writes(case: str, tmp_path: Path) -> None:
    """Shows what is durable, refuses changes as `store-full`, and names the cause. Source: L-7."""
    namespace = ["unshare", "--map-root-user", "--mount"]
    if not shutil.which("unshare") or subprocess.run([*namespace, "true"], check=False).returncode:
        pytest.skip("needs a mount namespace")
    words = [*namespace, sys.executable, "-m", "tests.e2e.small_disk", case, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
