"""A VM that is moved or removed while its answer is held. S-3, S-4, S-6."""

import json
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from forewarn_base.protocol.documents import Document
from forewarn_metadata.replication.messages import Caller, DocumentChange, Publication
from tests.metadata.live import EVENTS, FREEZE, PREEMPT, VM_A, VM_C, Live, Raw, request, wait_for

FROZEN = Publication("group-1", True, Document(4, (FREEZE,)))
MOVED = replace(VM_A, group="group-2", view="group-2")
OWN = replace(VM_A, view="group-1/vm-a")


@pytest.fixture
def home(live: Live) -> Iterator[Live]:
    """The module's server; afterwards vm-a is in group-1 again, vm-c in group-2."""
    yield live
    live.apply(DocumentChange(99, callers=(VM_A, VM_C), gone=("vm-b",)))
    live.show(incarnation=0, view="group-2")


@pytest.fixture
def waiting(home: Live) -> Iterator[Raw]:
    """A long poll of vm-a, held in group-1."""
    with home.connect() as raw:
        raw.send(request(wait_for(100)))
        assert raw.silent()
        yield raw


def test_moved_vm_reads_its_new_group_at_once(home: Live, waiting: Raw) -> None:
    """Its old group's events are not its any more, whatever the number. Source: S-4, E-9."""
    home.apply(DocumentChange(99, callers=(MOVED,), publications=(FROZEN,)))
    assert waiting.reply().body == b'{"DocumentIncarnation":0,"Events":[]}'
    home.know(VM_A)
    waiting.send(request(EVENTS))
    assert json.loads(waiting.reply().body)["DocumentIncarnation"] == 4


def test_moved_vm_reads_what_came_with_the_move(home: Live, waiting: Raw) -> None:
    """The document of the same change is what it is moved to. Source: S-4."""
    news = (FROZEN, Publication("group-2", True, Document(7, (PREEMPT,))))
    home.apply(DocumentChange(99, callers=(MOVED,), publications=news))
    assert json.loads(waiting.reply().body)["DocumentIncarnation"] == 7


def test_address_stays_with_the_vm_that_has_taken_it(home: Live) -> None:
    """The VM that had it before is removed later, and takes nothing along. Source: S-6."""
    home.apply(DocumentChange(99, callers=(replace(VM_C, addresses=VM_A.addresses),)))
    home.apply(DocumentChange(99, gone=("vm-a",)))
    assert home.get().status == 200


def test_removed_vm_is_told_so_at_once(home: Live, waiting: Raw) -> None:
    """Who is nobody any more learns nothing, nor what it asked meanwhile. Source: S-6."""
    waiting.send(request(EVENTS))
    home.apply(DocumentChange(99, gone=("vm-a",), publications=(FROZEN,)))
    assert [waiting.reply().status for _ in range(2)] == [404, 404]


def test_vm_that_loses_its_own_document_reads_its_groups(home: Live) -> None:
    """It has a document, so it is not told that there is none. Source: S-3."""
    home.know(OWN)
    home.show(incarnation=0, view=OWN.view)
    with home.connect() as raw:
        raw.send(request(wait_for(100)))
        assert raw.silent()
        dropped = Publication(OWN.view, False, Document())
        home.apply(DocumentChange(99, callers=(VM_A,), publications=(dropped,)))
        assert raw.reply().body == b'{"DocumentIncarnation":0,"Events":[]}'


def test_vm_moved_to_a_silent_group_enables_it(home: Live, waiting: Raw) -> None:
    """It is held until its new group is enabled, as with its first request. Source: B-1, S-4."""
    silent = replace(VM_A, group="group-3", view="group-3")
    home.apply(DocumentChange(99, callers=(silent,), publications=(FROZEN,)))
    assert waiting.silent()
    assert home.control.enabled == ["vm-a"]
    home.show(incarnation=0, view="group-3")
    assert waiting.reply().body == b'{"DocumentIncarnation":0,"Events":[]}'
    home.apply(DocumentChange(99, publications=(Publication("group-3", False, Document()),)))


ELSEWHERE = replace(VM_C, addresses=("10.0.0.9",))
NEIGHBOUR = Caller("vm-b", "group-1", "group-1", ("127.0.0.1",))


@pytest.mark.parametrize(
    "move",
    [
        DocumentChange(99, callers=(ELSEWHERE,)),
        DocumentChange(99, callers=(NEIGHBOUR,), gone=("vm-a",)),
    ],
    ids=["elsewhere", "within the group"],
)
def test_other_moves_do_not_end_a_wait(home: Live, waiting: Raw, move: DocumentChange) -> None:
    """Who is shown the same document as before waits on for it. Source: E-9."""
    home.apply(move)
    assert waiting.silent()
    home.apply(DocumentChange(99, publications=(FROZEN,)))
    assert json.loads(waiting.reply().body)["DocumentIncarnation"] == 4
