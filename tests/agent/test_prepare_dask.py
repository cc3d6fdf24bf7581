"""The Dask preparation against a real cluster where Dask is installed, and against a stand-in."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.agent.programs import answers, do, done, free_port, program, running
from tests.serving import HttpServer, Request
from tests.waiting import wait_until

ROUTES = ["distributed.http.health", "distributed.http.scheduler.api"]
HOLD = """
import sys
from dask.distributed import Client
client = Client(sys.argv[1])
client.wait_for_workers(2)
name = {one["name"]: address for address, one in client.scheduler_info(-1)["workers"].items()}
result = client.submit(lambda: "kept", workers=[name["leaves"]], allow_other_workers=True)
assert client.gather(result) == "kept"
print("held", flush=True)
sys.stdin.readline()
print(client.gather(result), sorted(
    one["name"] for one in client.scheduler_info(-1)["workers"].values()), flush=True)
"""


class Scheduler(HttpServer):
    """The scheduler's HTTP API over workers that leave some requests after they are retired."""

    def __init__(self, *workers: tuple[str, str], looks: int = 1) -> None:
        """Begin with workers, by name and address."""
        self.workers = list(workers)
        self.retired: list[str] = []
        self._looks = looks
        super().__init__(self._respond)

    def _respond(self, request: Request) -> tuple[int, bytes, dict[str, str]]:
        if request.path == "/api/v1/retire_workers":
            self.retired += request.json["workers"]
            self._looks -= 1
            if self._looks == 0:
                self.workers = [one for one in self.workers if one[1] not in self.retired]
        elif request.path != "/api/v1/get_workers":
            return 404, b"", {}
        found = [{"name": name, "address": address} for name, address in self.workers]
        return 200, json.dumps({"workers": found}).encode(), {}


def test_workers_of_this_machine_are_retired(tmp_path: Path) -> None:
    """Workers of other machines go on. Source: J-3."""
    here, there = "tcp://127.0.0.1:4001", "tcp://203.0.113.9:4001"
    with Scheduler(("a", here), ("b", there), looks=2) as scheduler:
        said = done("dask", "prepare", {"address": scheduler.url}, tmp_path / "s")
        assert (said, scheduler.workers) == (f"retired: {here}", [("b", there)])
        assert set(scheduler.retired) == {here}
        again = done("dask", "prepare", {"address": scheduler.url}, tmp_path / "s")
        assert again == "no Dask worker runs on this machine"


def test_workers_in_the_settings_are_retired(tmp_path: Path) -> None:
    """A name or an address selects workers."""
    workers = [(name, f"tcp://203.0.113.9:{port}") for port, name in enumerate("abc", 4001)]
    with Scheduler(*workers) as scheduler:
        names = ["a", "tcp://203.0.113.9:4003"]
        done("dask", "prepare", {"address": scheduler.url, "workers": names}, tmp_path / "s")
        assert [name for name, _ in scheduler.workers] == ["b"]


def test_scheduler_without_its_api_fails(tmp_path: Path) -> None:
    """Dask serves its API only where a setting adds it."""
    with HttpServer(lambda _: (404, b"404: Not Found", {})) as scheduler:
        result = do("dask", "prepare", {"address": scheduler.url}, tmp_path / "s")
    assert (result.returncode, "status 404" in result.stderr) == (1, True), result.stderr


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Run a scheduler and two workers; gives the scheduler's address and the URL of its API."""
    dask, port, dashboard = program("dask"), free_port(), free_port()
    scheduler = f"tcp://127.0.0.1:{port}"
    env = {"DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES": json.dumps(ROUTES)}
    where = ("--host", "127.0.0.1")
    with ExitStack() as stack:
        words = ("--port", str(port), "--dashboard-address", f"127.0.0.1:{dashboard}")
        log = tmp_path / "scheduler"
        stack.enter_context(running(dask, "scheduler", *where, *words, log=log, env=env))
        wait_until(lambda: answers(dashboard), what="the scheduler")
        for name in ("leaves", "stays"):
            one = ("--name", name, "--nthreads", "1", "--no-dashboard")
            command = (dask, "worker", scheduler, *where, *one)
            stack.enter_context(running(*command, log=tmp_path / name))
        yield scheduler, f"http://127.0.0.1:{dashboard}"


@pytest.mark.slow
def test_real_worker_gives_its_results_to_others(cluster: tuple[str, str], tmp_path: Path) -> None:
    """The only copy of a result survives the VM that holds it. Source: J-3."""
    python = Path(program("dask")).resolve().parent / "python"
    command = (str(python), "-c", HOLD, cluster[0])
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=os.environ) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "held\n"
        settings: dict[str, object] = {"address": cluster[1], "workers": ["leaves"]}
        assert done("dask", "prepare", settings, tmp_path / "s").startswith("retired: tcp://")
        assert client.communicate("\n")[0] == "kept ['stays']\n"
