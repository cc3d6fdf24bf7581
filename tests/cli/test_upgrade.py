"""`forewarn upgrade check`: what it says at each step of an upgrade. Source: H-8."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn_base import exit_codes
from forewarn_base.values import replace
from forewarn_base.version import version
from forewarn_core.fleet.state import Changes
from forewarn_server.cli.upgrade import UpgradeState
from forewarn_server.service.signs_of_life import SignsOfLife
from forewarn_store import open_store
from forewarn_store.lease import Tenure
from forewarn_store.processes import ControlProcess, processes
from tests.api.live import Live
from tests.cli.conftest import Run
from tests.postgres import PostgresServer
from tests.store.story import begin, entry
from tests.waiting import wait_until

OLD = ControlProcess("http://a", "0.1.0", behind=0, age_s=1, active=True)
FOLLOWER = ControlProcess("http://b", "0.1.0", behind=3, age_s=1, active=False)
NEW = ControlProcess("http://b", "0.2.0", behind=0, age_s=1, active=False)


@pytest.mark.parametrize(
    ("steps", "seen", "beside", "act"),
    [
        (("0009_contract",), (OLD, FOLLOWER), False, "Stop every control plane"),
        (("0009_expand_a", "0010_contract"), (OLD,), False, "Stop every control plane"),
        (("0009_expand_a",), (OLD, FOLLOWER), True, "Run `forewarn store upgrade`"),
        ((), (OLD, FOLLOWER), True, "one at a time: http://b"),
        ((), (OLD, NEW), True, "Run `forewarn leader step-down`"),
        ((), (replace(NEW, active=True),), True, "Every control plane has this version"),
        ((), (NEW,), True, "the active process last"),
        ((), (), True, "the active process last"),
    ],
)
def test_next_act_follows_from_steps_and_processes(
    steps: tuple[str, ...], seen: tuple[ControlProcess, ...], beside: bool, act: str
) -> None:
    """Each state of an upgrade has one next act."""
    running = "0.2.0" if seen and {each.version for each in seen} == {"0.2.0"} else "0.1.0"
    state = UpgradeState("0.2.0", running, shared=True, steps=steps, processes=seen)
    assert state.beside is beside
    assert act in state.next_act


def test_file_is_upgraded_by_the_restart(run: Run, tmp_path: Path) -> None:
    """A SQLite store has one process, which upgrades it, unless it has this version already."""
    old = UpgradeState("0.2.0", "0.1.0", shared=False, steps=(), processes=())
    assert "Restart the service" in old.next_act
    open_store(f"sqlite://{tmp_path}/store.db").close()
    done = run("upgrade", "check", "--store", f"sqlite://{tmp_path}/store.db")
    assert (done.status, "The service has this version" in done.out) == (exit_codes.OK, True)


def test_service_of_the_settings_is_asked(
    run: Run, live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It listens where its settings say, and not at the default address."""
    monkeypatch.delenv("FOREWARN_SERVER")
    open_store(f"sqlite://{tmp_path}/store.db").close()
    config = tmp_path / "forewarn.toml"
    place = live.url.removeprefix("http://")
    listen = f'[listen]\noperator = "{place}"\n'
    config.write_text(f'{listen}[store]\nurl = "sqlite://{tmp_path}/store.db"\n')
    done = run("--json", "upgrade", "check", "--config", str(config))
    assert done.json["running"] == version()


@pytest.fixture
def address(server: PostgresServer) -> Iterator[str]:
    """An empty database."""
    with server.database("template0") as found:
        yield found


@pytest.mark.postgres
def test_processes_and_their_lag_are_listed(address: str, run: Run) -> None:
    """Each process writes who it is and how far; one that stops is gone. Source: H-8, U-4."""
    store = open_store(address)
    tenure = Tenure(store, 5000)
    assert tenure.attempt(0)
    active = SignsOfLife(store, tenure.token, lambda: "http://here")
    follower = SignsOfLife(store, "another")
    try:
        wait_until(lambda: len(processes(store._engine)) == 2)
        answer = run("--json", "upgrade", "check", "--store", address).json
        assert [each["active"] for each in answer["processes"]] == [True, False]
        assert {each["version"] for each in answer["processes"]} == {version()}
        assert answer["beside"]
    finally:
        active.stop()
        follower.stop()
    assert processes(store._engine) == ()
    store.close()


@pytest.mark.postgres
def test_process_is_behind_by_the_commits_that_it_lacks(address: str) -> None:
    """However many changes a commit has. Source: H-8."""
    store = open_store(address)
    story = begin(store)
    store.note_process("another", "http://b", "0.1.0", kept_ms=60_000)
    for _ in range(2):
        store.commit(Changes(last_number=story.state.last_number, entries=[entry()] * 3))
    assert [each.behind for each in processes(store._engine)] == [2]
    store.close()
