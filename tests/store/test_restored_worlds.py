"""Random work, lost stores and commits, and restores: what VMs, nodes and drivers see of it all."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from forewarn_base.errors import ForewarnError
from forewarn_base.ids import Ids
from forewarn_base.protocol.documents import Document
from forewarn_core.fleet.draft import Terms
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.state import State
from forewarn_core.fleet.step import step
from forewarn_core.fleet.stimulus import PlaneStimulus, Recover
from forewarn_store import Store, open_store
from forewarn_store.backup import back_up, restore
from forewarn_store.errors import StoreWentBack
from tests.store.random_work import RandomWork
from tests.store.rewinding import Snapshot
from tests.store.story import START_MS

STEPS = 400
#: Who knows the lost commits: the process that goes on, its file, or a metadata node.
WITNESSES = ("memory", "file", "node")
#: Steps that are tried while nothing may be decided.
REFUSED = 5


@dataclass
class World:
    """One control plane, what was seen of it, and what its drivers have begun."""

    folder: Path
    seed: int
    now_ms: int = START_MS
    stores: int = 0
    #: View -> its documents as they were read, by incarnation.
    read: dict[str, dict[int, Document]] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)
    #: Operation -> the store under which it was first begun.
    begun: dict[int, int] = field(default_factory=dict)
    numbers: int = 0

    def __post_init__(self) -> None:
        """Begin with an empty store."""
        self.ids = Ids(self.seed)
        self._open(f"sqlite://{self.folder}/store-0.db")

    def _open(self, address: str) -> None:
        self.address = address
        self.store: Store = open_store(address)
        self.state = self.store.load()
        self.take(lambda _: Recover())

    def take(self, draw: Callable[[State], PlaneStimulus]) -> None:
        """Decide, commit, show and begin.

        Raises:
            StoreWentBack: nothing was committed, shown or begun.
        """
        terms = Terms(NoticePolicy(), "operator", lambda: self.ids.guid("event"))
        try:
            outcome = step(self.state, draw(self.state), now_ms=self.now_ms, terms=terms)
        except ForewarnError:
            return
        try:
            self.store.commit(outcome.changes)
        except StoreWentBack:
            self.state.rollback()
            raise
        self.state.keep()
        assert self.state.last_number >= self.numbers, "numbers go back"
        self.numbers = self.state.last_number
        for entry in outcome.changes.entries:
            if entry.action in {"group.disabled", "group.removed"}:  # it begins afresh. B-2
                for key in [each for each in self.read if each.split("/")[0] == entry.group]:
                    del self.read[key]
        for key, view in sorted(outcome.changes.views.items()):
            if view is not None:
                self._show(key, view.document)
        for operation in outcome.begin:
            number = operation.number
            if operation.execution.attempt == 1:  # later ones are an operator's word
                first = self.begun.setdefault(number, self.stores)
                assert first == self.stores, "begun again after a restore"

    def _show(self, key: str, document: Document) -> None:
        read = self.read.setdefault(key, {})
        assert read.setdefault(document.incarnation, document) == document
        assert document.incarnation >= max(read), "an incarnation goes back"
        shown = {event.event_id for event in document.events}
        for event_id in (e.event_id for each in read.values() for e in each.events):
            if event_id not in shown:
                self.left.add(f"{key} {event_id}")
        assert not {f"{key} {each}" for each in shown} & self.left, "an event returns"

    def lose(self, backup: Path) -> None:
        """Lose the store, and go on from a backup, once it is begun again by nobody."""
        self.store.close()
        self.stores += 1
        self.now_ms += 10_000
        address = f"sqlite://{self.folder}/store-{self.stores}.db"
        restore(backup, address, now_ms=self.now_ms)
        self._open(address)
        for key, view in self.state.views.items():
            self._show(key, view.document)

    def go_back(self, snapshot: Snapshot, witness: str, work: RandomWork) -> None:
        """Lose the commits since a moment; nothing is decided until the restore is finished."""
        known = self.store.newest_commit()
        if witness == "memory":
            snapshot.put_back()
        else:
            self.store.close()
            snapshot.put_back()
            if witness == "node":
                Path(f"{self.address.removeprefix('sqlite://')}.commit").unlink()
            self.store = open_store(self.address)
            self.state = self.store.load()
        if witness == "node":
            with pytest.raises(StoreWentBack):
                self.store.check_commits({known: "node n1"})
        for _ in range(REFUSED):
            self.now_ms += work.wait_ms()
            with pytest.raises(StoreWentBack):
                self.take(lambda _: Recover())
        self.store.close()
        self.stores += 1
        restore(None, self.address, now_ms=self.now_ms)
        self._open(self.address)
        for key, view in self.state.views.items():
            self._show(key, view.document)


@pytest.mark.parametrize("witness", WITNESSES)
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(1, 20))]
)
def test_nobody_sees_a_store_go_back(seed: int, witness: str, tmp_path: Path) -> None:
    """No incarnation, number, id or begin comes again. Source: H-10, invariants 2, 3, 9 and 21."""
    world, work, draw = World(tmp_path, seed), RandomWork(seed), random.Random(seed)
    snapshot: Snapshot | None = None
    for _ in range(STEPS // 3):
        world.now_ms += work.wait_ms()
        world.take(work.next)
        if snapshot is None and draw.random() < 0.05:
            snapshot = Snapshot(world.address)
            world.take(lambda _: Recover())  # a commit that is lost
        elif snapshot is not None and draw.random() < 0.1:
            world.now_ms += 10_000
            world.go_back(snapshot, witness, work)
            snapshot = None
    assert world.stores
    world.store.close()


@pytest.mark.parametrize(
    "seed", [0, 1, 2, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(3, 30))]
)
def test_nobody_sees_a_restore_go_back(seed: int, tmp_path: Path) -> None:
    """No incarnation, number, id or begin comes again. Source: U-1, U-2, U-3."""
    world, work, draw = World(tmp_path, seed), RandomWork(seed), random.Random(seed)
    backups: list[Path] = []
    for turn in range(STEPS):
        world.now_ms += work.wait_ms()
        world.take(work.next)
        if turn % 40 == 20:
            backups.append(tmp_path / f"backup-{turn}")
            back_up(world.address, backups[-1])
        elif backups and draw.random() < 0.02:
            world.lose(draw.choice(backups))
    assert world.stores
    world.store.close()
