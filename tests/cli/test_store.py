"""`forewarn store`: a backup, a restore, and what each says."""

import sqlite3
from contextlib import closing
from pathlib import Path

from forewarn_base import exit_codes
from forewarn_core.access.confirmations import Confirmation
from forewarn_core.access.roles import Role
from forewarn_core.access.stimulus import AddToken, AskConfirmation, Grant
from forewarn_core.access.tokens import AccessToken
from forewarn_core.fleet.state import Changes
from forewarn_store import Retention, open_store
from tests.cli.conftest import Run
from tests.store.story import begin, entry


def test_backup_is_checked_and_restored(run: Run, tmp_path: Path) -> None:
    """The three commands, one after the other, beside a process that writes the store."""
    missing = run("store", "backup", "b", "--store", f"sqlite://{tmp_path}/none.db")
    assert f"no store at {tmp_path}/none.db. [store-missing]" in missing.err
    store = open_store(f"sqlite://{tmp_path}/forewarn.db")
    begin(store)
    backup = str(tmp_path / "backup")
    done = run("store", "backup", backup, "--store", f"sqlite://{tmp_path}/forewarn.db")
    assert "3 VMs" in done.out
    assert run("--json", "store", "verify", backup).json["vms"] == 3
    assert store.backup_ms() > 0
    store.close()
    again = run("store", "restore", backup, "--store", f"sqlite://{tmp_path}/forewarn.db")
    assert (again.status, "A store already exists" in again.err) == (exit_codes.REFUSED, True)
    nowhere = run("store", "restore", backup, "--store", f"sqlite://{tmp_path}/none/forewarn.db")
    assert "[store-unavailable]" in nowhere.err
    assert all("--config" in each.err for each in (again, nowhere, missing))
    (tmp_path / "forewarn.db").unlink()  # a lost store's place takes a backup, no empty store
    done = run("store", "restore", backup, "--store", f"sqlite://{tmp_path}/forewarn.db")
    assert "store restored" in done.err
    done = run("store", "restore", backup, "--store", f"sqlite://{tmp_path}/new.db")
    assert "store restored" in done.err
    done = run("store", "upgrade", "--store", f"sqlite://{tmp_path}/new.db")
    assert "the schema is up to date" in done.err
    missing = run("store", "upgrade", "--store", f"sqlite://{tmp_path}/none.db")
    assert "[store-missing]" in missing.err


def test_restore_names_what_an_administrator_must_look_at(run: Run, tmp_path: Path) -> None:
    """Tokens that are suspended, calls that are dropped, and roles of the backup. Source: U-5."""
    address = f"sqlite://{tmp_path}/forewarn.db"
    store = open_store(address)
    story = begin(store)
    token = AccessToken("id-of-kim", "kim", Role.ADMIN, "", "digest", 0, None)
    call = Confirmation(
        *(0, "ben", "operator ben", "POST /v1/hosts/h1/fail", "{}", "", 0, 0),
        sentence="fail host h1",
    )
    story.tell(AddToken(token), AskConfirmation(call), Grant("group:sre", Role.OPERATOR))
    store.close()
    backup = str(tmp_path / "backup")
    run("store", "backup", backup, "--store", address)
    done = run("store", "restore", backup, "--store", f"sqlite://{tmp_path}/new.db")
    assert "token id-of-kim of kim: suspended" in done.err
    assert "of ben (fail host h1): no longer waits" in done.err
    assert "roles of 1 principal are those of the backup" in done.err
    again = run("--json", "store", "restore", backup, "--store", f"sqlite://{tmp_path}/more.db")
    assert again.json["suspended"] == [{"id": "id-of-kim", "principal": "kim"}]


def test_file_of_an_earlier_version_is_compacted(run: Run, tmp_path: Path) -> None:
    """It loses its free pages, and returns later ones step by step."""
    path = tmp_path / "forewarn.db"
    store = open_store(str(path))
    story = begin(store)
    texts = [entry("x" * 30_000) for _ in range(50)]
    store.commit(Changes(last_number=story.state.last_number, entries=texts))
    store.trim(Retention(None, max_age_ms=1), story.now_ms + 86_400_000)
    store.close()
    with closing(sqlite3.connect(path)) as database:
        database.executescript("PRAGMA auto_vacuum = NONE; VACUUM; CREATE TABLE more (x);")
        database.executemany("INSERT INTO more VALUES (?)", [("x" * 30_000,)] * 50)
        database.executescript("DROP TABLE more;")
    full = path.stat().st_size
    done = run("--json", "store", "compact", "--store", str(path))
    assert (done.json["bytes_before"], done.json["bytes_after"]) == (full, path.stat().st_size)
    assert path.stat().st_size < full / 2
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    assert "before" in run("store", "compact", "--store", str(path)).err
    nothing = run("store", "compact", "--store", "postgresql://nobody@nowhere.invalid/none")
    assert "on its own" in nothing.err
