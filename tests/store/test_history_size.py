"""How much history one piece of work leaves: what changed, and one entry for one transition."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from forewarn.core.lifecycle import OperationState
from forewarn.core.records import KIND_OF, columns_of, to_row
from forewarn.core.state import Image
from forewarn.core.stimulus import ChangeTopology, Enable
from forewarn.core.topology import Group, GroupKind, Host, Vm
from forewarn.store import HistoryPage, Store
from forewarn.store.images import PLAIN_MAX, images_text, read_images
from tests.store.story import Story, live_records, replayed

Opener = Callable[[str], Store]
GROUPS = 10
BYTES_MAX = 8 * 1024
"""What history may take for one reboot of a host of ten groups; it was 33 to 42 KB once."""


def fleet() -> ChangeTopology:
    """Two hosts of ten groups each."""
    groups = [f"group-{n}" for n in range(GROUPS)]
    return ChangeTopology(
        hosts=(Host("h0"), Host("h1", fault_domain=1)),
        groups=tuple(map(Group, groups)),
        vms=tuple(Vm(f"{group}-{n}", f"h{n}", group) for group in groups for n in range(2)),
    )


@pytest.fixture
def story(store: Store) -> Story:
    """Both hosts were rebooted."""
    story = Story(store, store.load())
    story.tell(fleet(), *(Enable(f"group-{n}") for n in range(GROUPS)))
    story.reboot("h0")
    story.reboot("h1")
    return story


def test_history_of_a_host_is_small(story: Story) -> None:
    """A reboot of a host of ten groups writes at most 8 KB, and what is needed. Source: A-6."""
    store = story.store
    first = store.history(HistoryPage(operation=2, limit=1))[0].seq
    with store._engine.reading() as transaction:
        rows = transaction.rows("history_sizes", after=first - 1, limit=1000)
    assert sum(int(size) for _, _, size in rows) <= BYTES_MAX
    assert len(rows) <= GROUPS + 10
    assert replayed(store) == live_records(store.load())


@pytest.mark.parametrize("group", ["group-0", "group-9"])
def test_group_finds_what_its_documents_became(story: Story, group: str) -> None:
    """One entry for the documents of one transition is each group's history. Source: A-6."""
    store = story.store
    found = store.history(HistoryPage(group=group, limit=1000))
    texts = [each.entry.text for each in found]
    assert texts.count("10 documents are updated for op-1") >= 3
    vm = [each.entry.text for each in store.history(HistoryPage(vm=f"{group}-0", limit=1000))]
    assert "10 documents are updated for op-1" in vm
    assert "10 documents are updated for op-2" not in vm
    assert story.store.operation(1).state is OperationState.SUCCEEDED  # type: ignore[union-attr]


@pytest.mark.parametrize("length", [0, PLAIN_MAX, 10_000])
def test_images_come_back(length: int) -> None:
    """Short ones are kept as they are, long ones are packed. Source: A-6."""
    images = (
        Image("vm", "web_0", {"name": "x" * length}),
        Image("operation", 7, {"state": "running", "attempt": 1}, {"attempt": 1}),
        Image("host", "h", None),
    )
    text = images_text(images)
    assert text.startswith("[") is (length == 0)
    assert read_images(text) == [
        ("vm", "web_0", {"name": "x" * length}),
        ("operation", 7, {"attempt": 1}),
        ("host", "h", None),
    ]


SHORT: dict[str, Host | Group | Vm] = {
    '[["+host","h",{"zone":"2"}]]': Host("h", zone="2"),
    '[["+group","g",{"kind":"lone"}]]': Group("g", GroupKind.LONE),
    '[["+vm","v",{"host":"h","group":"g","addresses":"[\\"10.0.0.4\\"]"}]]': Vm(
        "v", "h", "g", addresses=("10.0.0.4",)
    ),
}


@pytest.mark.parametrize("text", SHORT)
def test_new_record_is_written_without_what_most_have(text: str) -> None:
    """This form is in stores: it never changes, and comes back with every column. Source: A-6."""
    record = SHORT[text]
    kind, row = KIND_OF[type(record)], to_row(record)
    assert images_text((Image(kind, record.name, row),)) == text
    assert read_images(text) == [(kind, record.name, row)]
    assert list(read_images(text)[0][2] or ()) == list(columns_of(kind))


def test_new_record_of_many_columns_is_packed() -> None:
    """What stays long without what most have is packed, and comes back."""
    row = to_row(Vm("v", "h", "g", tags=tuple((f"t{n}", "x") for n in range(30))))
    text = images_text((Image("vm", "v", row),))
    assert not text.startswith("[")
    assert read_images(text) == [("vm", "v", row)]


@pytest.mark.parametrize("text", ["", "!", "AAAA", "[[1]]", "{}", '[["+event","e",{}]]'])
def test_text_that_is_none_is_refused(text: str) -> None:
    """Damage is told apart from history. Source: A-6."""
    with pytest.raises(ValueError):  # noqa: PT011 - of several kinds
        read_images(text)


def test_old_images_are_read() -> None:
    """History that an older version has written is as good as ever. Source: L-7."""
    old = '[["operation",2,{"number":2,"state":"announced"}],["vm","v",null]]'
    assert read_images(old) == [
        ("operation", 2, {"number": 2, "state": "announced"}),
        ("vm", "v", None),
    ]
