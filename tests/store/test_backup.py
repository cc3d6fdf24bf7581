"""Backups of a running store, and restores that do not go back in time."""

import sqlite3
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forewarn_core.access.confirmations import Confirmation
from forewarn_core.access.roles import Principal, Role
from forewarn_core.access.stimulus import AddToken, AskConfirmation, Grant, ResumeToken, RevokeToken
from forewarn_core.access.tokens import AccessToken
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import OperationState
from forewarn_core.fleet.stimulus import Acknowledge, NoticeShown, RequestMaintenance
from forewarn_store import HistoryPage, Store, open_store
from forewarn_store import backup as backups
from forewarn_store.backup import (
    BackupExists,
    BackupUnusable,
    RestoreOccupied,
    back_up,
    note_backup,
    restore,
    verify,
)
from forewarn_store.engine import Transaction, Value
from forewarn_store.errors import StoreMissing, StoreUnrestored
from tests.store.story import START_MS, Story, begin, live_records, replayed

Opened = Callable[[str], Store]


@pytest.fixture
def story(store: Store) -> Story:
    """A fleet with one ended reboot."""
    found = begin(store)
    found.reboot("h0")
    return found


@pytest.fixture
def elsewhere(address: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of another empty place, on the same engine."""
    if address.startswith("sqlite"):
        yield f"sqlite://{tmp_path}/restored.db"
        return
    with request.getfixturevalue("server").database("template1") as found:
        yield found


def announce(story: Story, target: str, cause: Cause = Cause.HOST_REBOOT) -> int:
    """Ask for work and have its notice shown, if it is announced; return its number."""
    story.tell(RequestMaintenance(cause=cause, targets=(target,)))
    number = story.state.last_number
    story.tell(NoticeShown((number,)))
    return number


def test_backup_of_a_running_store_is_private_and_sound(
    story: Story, address: str, tmp_path: Path
) -> None:
    """U-1: nobody else reads it, and the store goes on."""
    facts = back_up(address, tmp_path / "backup")
    assert (facts.hosts, facts.vms, facts.generation) == (2, 3, story.store.generation)
    assert stat.S_IMODE((tmp_path / "backup").stat().st_mode) == 0o600
    assert verify(tmp_path / "backup") == facts
    assert [each.name for each in tmp_path.iterdir() if "backup" in each.name] == ["backup"]
    story.reboot("h1")  # the store goes on
    with pytest.raises(BackupExists):
        back_up(address, tmp_path / "backup")


def test_last_backup_is_noted_beside_a_process_that_writes(story: Story, address: str) -> None:
    """People learn when it began; until the first there is none. Source: U-1."""
    assert story.store.backup_ms() == 0
    note_backup(address, START_MS)
    assert story.store.backup_ms() == START_MS


def test_restore_goes_ahead_of_what_was_seen(
    story: Story, address: str, elsewhere: str, tmp_path: Path, opened: Opened
) -> None:
    """U-2: whatever was numbered since the backup is behind the restored store."""
    back_up(address, tmp_path / "backup")
    announce(story, "h0")  # seen by VMs, and not in the backup
    seen, seen_entry = story.state.views, story.store.history_seq
    restore(tmp_path / "backup", elsewhere, now_ms=story.now_ms)
    store = opened(elsewhere)
    state = store.load()
    assert store.epoch not in {"", story.store.epoch}
    assert store.generation > story.store.generation
    assert store.history_seq > seen_entry
    assert state.last_number > story.state.last_number
    for key, view in seen.items():
        assert state.views[key].document.incarnation > view.document.incarnation
    assert replayed(store) == live_records(state)


def test_restore_withdraws_what_was_announced_and_begins_nothing(
    story: Story, address: str, elsewhere: str, tmp_path: Path, opened: Opened
) -> None:
    """U-3: what waits ends, what runs is left to its driver."""
    started = announce(story, "h0")
    for event_id in story.state.operations[started].events:
        story.tell(Acknowledge((event_id,)))
    assert story.state.operations[started].state is OperationState.RUNNING
    announced = announce(story, "web_1", Cause.REDEPLOY)
    planned = announce(story, "h1")
    back_up(address, tmp_path / "backup")
    facts = restore(tmp_path / "backup", elsewhere, now_ms=story.now_ms)
    assert facts.withdrawn == (f"op-{announced}", f"op-{planned}")
    assert facts.unknown == (f"op-{started}",)
    state = opened(elsewhere).load()
    assert list(state.operations) == [started]
    assert state.operations[started].execution.begun_ms, "its driver is asked, and not had begin"
    shown = [event for view in state.views.values() for event in view.document.events]
    assert {each.status for each in shown} == {"Started"}


def test_restore_suspends_tokens_and_drops_calls_that_wait(
    story: Story, address: str, elsewhere: str, tmp_path: Path, opened: Opened
) -> None:
    """What was revoked or refused since the backup does not come back to life. Source: U-5."""
    kim = AccessToken("id-of-kim", "kim", Role.ADMIN, "", "digest", START_MS, None)
    call = Confirmation(
        *(0, "ben", "operator ben", "POST /v1/hosts/h1/fail", "{}", "", START_MS, 0),
        sentence="fail host h1",
    )
    story.tell(AddToken(kim), AskConfirmation(call), Grant("group:sre", Role.OPERATOR))
    back_up(address, tmp_path / "backup")
    story.tell(RevokeToken("id-of-kim"))
    facts = restore(tmp_path / "backup", elsewhere, now_ms=story.now_ms)
    assert ([each.id for each in facts.suspended], facts.principals) == (["id-of-kim"], 1)
    assert [each.text for each in facts.dropped] == ["fail host h1"]
    store = opened(elsewhere)
    state = store.load()
    assert state.access.tokens["id-of-kim"].suspended
    assert not state.access.confirmations
    assert store.sign_outs() == {"": story.now_ms}
    assert state.access.principals["group:sre"] == Principal("group:sre", (("operator", ""),))
    actions = [each.entry.action for each in store.history(HistoryPage())]
    assert {"token.suspended", "confirmation.dropped"} < set(actions)
    resumed = Story(store, state, story.now_ms)
    resumed.tell(ResumeToken("id-of-kim"))
    assert store.load().access.tokens["id-of-kim"] == kim


def test_restore_enables_every_group(
    store: Store, address: str, elsewhere: str, tmp_path: Path, opened: Opened
) -> None:
    """One that was first asked about after the backup may have read any incarnation since."""
    story = begin(store)
    back_up(address, tmp_path / "backup")
    restore(tmp_path / "backup", elsewhere, now_ms=story.now_ms)
    views = opened(elsewhere).load().views.values()
    assert {each.group for each in views} == {"web", "db"}
    assert all(each.document.incarnation > 1_000_000 for each in views)


def test_restore_writes_over_no_store(
    story: Story, address: str, tmp_path: Path, opened: Opened
) -> None:
    """What is there stays."""
    back_up(address, tmp_path / "backup")
    story.store.close()
    with pytest.raises(RestoreOccupied):
        restore(tmp_path / "backup", address, now_ms=START_MS)
    assert opened(address).load().topology.vms


def test_restore_that_was_cut_off_is_refused(
    story: Story,
    address: str,
    elsewhere: str,
    tmp_path: Path,
    opened: Opened,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No service goes on from half a restore."""
    back_up(address, tmp_path / "backup")
    monkeypatch.setattr(Store, "end_restore", lambda _: sys_exit())
    with pytest.raises(KeyboardInterrupt):
        restore(tmp_path / "backup", elsewhere, now_ms=START_MS)
    with pytest.raises(StoreUnrestored):
        opened(elsewhere).load()


@pytest.mark.parametrize("point", ["_reserve", "_copy", "lease_freed"])
def test_place_of_a_killed_restore_is_no_new_store(
    story: Story,
    address: str,
    elsewhere: str,
    tmp_path: Path,
    opened: Opened,
    point: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A service refuses it, wherever the restore was cut off; the same command finishes it."""
    back_up(address, tmp_path / "backup")
    with monkeypatch.context() as cut:
        if point == "lease_freed":
            cut.setattr(Transaction, "run", cut_at(point))
        else:
            cut.setattr(backups, point, lambda *_: sys_exit())
        with pytest.raises(KeyboardInterrupt):
            restore(tmp_path / "backup", elsewhere, now_ms=START_MS)
    if point != "_reserve" or elsewhere.startswith("sqlite"):  # an empty database was not touched
        with pytest.raises((StoreUnrestored, StoreMissing)):
            loaded_once(elsewhere)
    restore(tmp_path / "backup", elsewhere, now_ms=START_MS)
    assert opened(elsewhere).load().topology == story.state.topology


def loaded_once(address: str) -> None:
    """Start as a service does, and end."""
    store = open_store(address)
    try:
        store.load()
    finally:
        store.close()


def cut_at(name: str) -> Callable[..., None]:
    """A transaction that is interrupted at a statement."""
    run = Transaction.run

    def cut(self: Transaction, statement: str, /, **values: Value) -> None:
        if statement == name:
            sys_exit()
        run(self, statement, **values)

    return cut


def sys_exit() -> None:
    """End as a process that is interrupted does."""
    raise KeyboardInterrupt


def test_store_that_was_put_back_otherwise_is_raised_in_place(
    story: Story, address: str, opened: Opened
) -> None:
    """A database that was restored by its own tools goes ahead as well."""
    number = announce(story, "h0")
    story.store.close()
    facts = restore(None, address, now_ms=story.now_ms)
    assert facts.withdrawn == (f"op-{number}",)
    assert opened(address).load().last_number > 1_000_000


@pytest.mark.parametrize("content", [None, b"", b"{}", b"x" * 9000])
def test_file_that_nobody_backed_up_is_refused(tmp_path: Path, content: bytes | None) -> None:
    """A file of another kind: the advice is about the file, not about the service."""
    path = tmp_path / "backup"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BackupUnusable) as refused:
        verify(path)
    assert "store backup" in refused.value.advice_text()


def test_verify_finds_damage(story: Story, address: str, tmp_path: Path) -> None:
    """U-1: a page that is none."""
    backup = tmp_path / "backup"
    back_up(address, backup)
    raw = bytearray(backup.read_bytes())
    raw[len(raw) // 2 : len(raw) // 2 + 4096] = b"\xff" * 4096
    backup.write_bytes(raw)
    with pytest.raises(BackupUnusable):
        verify(backup)


def test_verify_finds_a_record_that_cannot_be(story: Story, address: str, tmp_path: Path) -> None:
    """U-1: a VM on a host that is not there."""
    back_up(address, tmp_path / "backup")
    with sqlite3.connect(tmp_path / "backup") as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("UPDATE vm SET host = 'h9'")
    with pytest.raises(BackupUnusable):
        verify(tmp_path / "backup")
