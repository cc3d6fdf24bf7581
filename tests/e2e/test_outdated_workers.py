"""Workers answer VMs only while their service proves that nobody else decides. Source: H-3."""

import os
import signal
import sys
from pathlib import Path

import psycopg
import pytest

from forewarn_core.access.roles import Role
from tests.access import seed_token
from tests.e2e.planes import FLEET, Plane
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.postgres]


@pytest.fixture(autouse=True)
def _with_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every service here has one worker, which alone answers VMs."""
    monkeypatch.setenv("FOREWARN_LISTEN_WORKERS", "1")


def started(folder: Path, address: str) -> Plane:
    """Return a service whose worker answers a VM."""
    seed_token(address, "tester", Role.ADMIN)
    plane = Plane(folder, address, "plane")
    plane.wait_started("/ready")
    assert plane.ask("PUT", "/v1/topology", FLEET)[0] == 200
    wait_until(lambda: plane.poll() == 200)
    return plane


@pytest.mark.parametrize("store", ["postgresql", "sqlite"])
def test_worker_of_a_stopped_service_answers_no_vm(
    store: str, tmp_path: Path, postgres_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default on PostgreSQL, by a setting on SQLite; it goes on once the service does. H-3."""
    address = postgres_address
    if store == "sqlite":
        address = f"sqlite:///{tmp_path}/forewarn.db"
        monkeypatch.setenv("FOREWARN_METADATA_SERVE_OUTDATED", "false")
    plane = started(tmp_path, address)
    try:
        os.kill(plane.process.pid, signal.SIGSTOP)
        wait_until(lambda: plane.poll() == 503)
        os.kill(plane.process.pid, signal.SIGCONT)
        wait_until(lambda: plane.poll() == 200)
    finally:
        plane.end()


def test_worker_of_a_service_without_its_database_answers_no_vm(
    tmp_path: Path, postgres_address: str
) -> None:
    """Another process may show newer documents by then. Source: H-3."""
    plane = started(tmp_path, postgres_address)
    try:
        with psycopg.connect(postgres_address) as held:
            held.execute("LOCK TABLE lease IN ACCESS EXCLUSIVE MODE")
            wait_until(lambda: plane.poll() == 503)
        wait_until(lambda: plane.poll() == 200)
    finally:
        plane.end()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_worker_answers_for_a_stopped_service_if_outdated_documents_may_be_served(
    tmp_path: Path, postgres_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The setting says so: the worker has no proof to wait for. Source: H-3."""
    monkeypatch.setenv("FOREWARN_METADATA_SERVE_OUTDATED", "true")
    plane = started(tmp_path, postgres_address)
    try:
        children = Path(f"/proc/{plane.process.pid}/task/{plane.process.pid}/children").read_text()
        words = Path(f"/proc/{children.split()[0]}/cmdline").read_text().split("\0")
        assert words[words.index("--proof") + 1] == "-1"
    finally:
        plane.end()
