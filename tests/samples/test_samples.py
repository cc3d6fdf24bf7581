"""What earlier versions wrote is read: stores, feeds, answers of the API, journals of agents."""

import asyncio
import json
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from forewarn.agent.core.agent_core import AgentCore
from forewarn.agent.core.identity import Identity
from forewarn.agent.core.values import DocumentPolled, HookIntent, RecoverIntent, Resumed
from forewarn_base.clock import SystemClock
from forewarn_base.protocol.documents import Document
from forewarn_cli.maintenance_output import print_full
from forewarn_cli.outbox import COLUMNS
from forewarn_metadata.replication.feed_client import FeedClient
from forewarn_metadata.replication.messages import DocumentChange
from forewarn_metadata.replication.node_files import NodeDirectory
from forewarn_metadata.replication.node_store import NodeStore
from forewarn_server.cli.output import call_in_words, print_list
from forewarn_store import open_store
from forewarn_store.addresses import location_of
from forewarn_store.backup import restore, verify
from forewarn_store.migrations import migrate
from tests.postgres import PostgresServer
from tools.samples import Service, answers

VERSIONS = sorted(each for each in Path(__file__).parent.iterdir() if (each / "api.json").exists())
every_version = pytest.mark.parametrize("sample", VERSIONS, ids=lambda sample: sample.name)
#: What differs from one process or moment to the next.
MOVING = {"used", "place"}
#: Sentences for people, whose wording may change.
SENTENCES = {"text"}


def unkept(before: object, now: object, place: str = "") -> list[str]:
    """Return the places at which an answer has lost or changed something."""
    if isinstance(before, dict) and isinstance(now, dict):
        return [
            each
            for name in before.keys() - MOVING
            if name not in SENTENCES or name not in now
            for each in unkept(before[name], now.get(name, "missing"), f"{place}/{name}")
        ]
    if place == "/whoami/can":  # a set of names: a new route may come anywhere
        return [] if set(before) <= set(now) else [f"{place}: {before!r} is {now!r}"]  # type: ignore[call-overload]
    if isinstance(before, list) and isinstance(now, list) and len(before) <= len(now):
        pairs = enumerate(zip(before, now, strict=False))
        return [each for n, (b, a) in pairs for each in unkept(b, a, f"{place}/{n}")]
    return [] if before == now else [f"{place}: {before!r} is {now!r}"]


@every_version
def test_store_and_api_of_an_earlier_version_are_read(sample: Path, tmp_path: Path) -> None:
    """A service on its store answers each question with at least what was answered then."""
    shutil.copy(sample / "store.db", tmp_path)
    service = Service(f"sqlite://{tmp_path}/store.db")
    now = answers(service)
    service.stop()
    before = json.loads((sample / "api.json").read_text("utf-8"))
    assert not unkept(before, now)


@every_version
@pytest.mark.postgres
def test_postgres_store_of_an_earlier_version_is_read(sample: Path, server: PostgresServer) -> None:
    """Upgraded on command, it has the fleet, the live work and the history of the same story."""
    with server.database("template0") as address:
        load = ["psql", "--quiet", "--set=ON_ERROR_STOP=1", f"--dbname={address}"]
        subprocess.run([*load, f"--file={sample / 'store.dump'}"], check=True, capture_output=True)
        engine = location_of(address).open(must_exist=True)
        migrate(engine, upgrade=True)
        engine.close()
        store = open_store(address, must_exist=True)
        state = store.load()
        assert (len(state.topology.vms), len(state.maintenances)) == (3, 2)
        assert {each.state.value for each in state.operations.values()} == {"announced", "running"}
        assert store.history_bounds()[1] > 20
        store.close()


@every_version
@pytest.mark.parametrize("engine", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_backup_of_an_earlier_version_is_restored(
    engine: str, sample: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """It is verified, and brought up to date as it is restored. Source: U-1, H-8."""
    backup = tmp_path / "backup"
    shutil.copy(sample / "store.db", backup)
    assert verify(backup).vms == 3
    with ExitStack() as stack:
        address = f"sqlite://{tmp_path}/restored.db"
        if engine == "postgres":
            server: PostgresServer = request.getfixturevalue("server")
            address = stack.enter_context(server.database("template0"))
        restore(backup, address, now_ms=SystemClock().now_ms())
        store = open_store(address, must_exist=True)
        assert len(store.load().topology.vms) == 3
        store.close()


@every_version
def test_node_of_an_earlier_version_shows_what_it_kept(sample: Path, tmp_path: Path) -> None:
    """An upgraded node answers its VMs before it has reached a control plane. M-2, H-8."""
    *lines, _ = (sample / "feed.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "feed").write_bytes(b"".join(lines))
    changes: list[DocumentChange] = []
    store = NodeStore(NodeDirectory(tmp_path))

    async def take_up() -> None:
        assert FeedClient("127.0.0.1:1", changes.append, store=store).take_up()

    asyncio.run(take_up())
    store.close()
    shown = {each.view: each.document for change in changes for each in change.publications}
    assert {event.event_type for event in shown["web"].events} == {"Reboot"}


@every_version
def test_command_line_prints_answers_of_an_earlier_version(
    sample: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A new command line works with a control plane of the version before. Source: H-8."""
    before = json.loads((sample / "api.json").read_text("utf-8"))
    print_full(before["maintenances/m-7"], 0)
    assert "waits" in capsys.readouterr().out
    assert call_in_words({"request": "POST /v1/hosts/h1/fail"}) == "POST /v1/hosts/h1/fail"
    destination = {"name": "hook", "kind": "webhook", "state": "idle", "sequence": 4, "behind": 0}
    print_list([{**destination, "behind_s": 0, "error": ""}], COLUMNS)  # without `skipped`
    assert capsys.readouterr().out.split("\n")[1].split() == ["hook", "webhook", "idle", "4", "0"]


@every_version
def test_journal_of_an_agent_of_an_earlier_version_is_read(sample: Path) -> None:
    """After an upgrade the agent undoes what it prepared before. Source: C-9."""
    journal = json.loads((sample / "journal.json").read_text("utf-8"))
    agent = AgentCore(Identity("web-0"), (), journal=journal)
    agent.step(Resumed({}), 1)
    assert [each.stage for each in agent.events] == ["approving"]
    [intent] = [
        each for each in agent.step(DocumentPolled(Document(2)), 1) if isinstance(each, HookIntent)
    ]
    assert (type(intent), intent.key) == (RecoverIntent, "drain")
