"""Coordination: whose turn it is to approve an event that names several VMs."""

import pytest

from forewarn.agent.core.coordination import Turn, turn
from forewarn.agent.core.identity import Identity
from forewarn.agent.core.records import EventRecord
from tests.agent.making import NOW, event

THREE = ("vm_0", "vm_1", "vm_2")


def asked(name: str, *, after_s: float = 0, **fields: object) -> Turn:
    """Return what the VM of that name decides this many seconds after it is ready."""
    record = EventRecord(event(resources=THREE), NOW)
    record.ready_ms = NOW
    record.stand_in_s = 120.0
    for field, value in fields.items():
        setattr(record, field, value)
    return turn(record, Identity(name), now_ms=NOW + int(after_s * 1000))


@pytest.mark.parametrize(
    ("name", "after_s", "go"),
    [
        ("vm_0", 0, True),
        ("vm_1", 0, False),
        ("vm_1", 119.9, False),
        ("vm_1", 120, True),
        ("vm_2", 120, False),
        ("vm_2", 240, True),
        ("stranger", 359, False),
        ("stranger", 360, True),
    ],
)
def test_first_in_resources_leads_and_the_next_stand_in(
    name: str, after_s: float, go: bool
) -> None:
    """One VM approves; each further one only after its own delay. Source: C-5."""
    assert asked(name, after_s=after_s).go is go


def test_no_stand_in_where_none_is_wanted() -> None:
    """With a delay of 0 only the leader ever approves."""
    assert asked("vm_1", after_s=1e6, stand_in_s=0.0) == Turn("vm_0 is the leader and approves")


def test_self_approves_its_own_share() -> None:
    """In a strict group every VM must approve. Source: A-7."""
    assert asked("vm_2", coordination="self").go


@pytest.mark.parametrize(
    ("name", "peers", "missing", "go"),
    [
        ("vm_0", (), ("vm_1", "vm_2"), False),
        ("vm_0", ("vm_1",), ("vm_2",), False),
        ("vm_0", ("VM_1", "_vm_2"), (), True),
        ("vm_1", ("vm_0", "vm_2"), (), False),
    ],
)
def test_all_needs_every_vm_prepared(
    name: str, peers: tuple[str, ...], missing: tuple[str, ...], go: bool
) -> None:
    """Nobody approves for a VM that still prepares, not even as a stand-in. Source: A-4, C-5."""
    decided = asked(name, coordination="all", peers=peers)
    assert (decided.missing, decided.go) == (missing, go)
    assert asked(name, after_s=1e6, coordination="all", peers=peers).go is not bool(missing)


@pytest.mark.parametrize("resources", [("_vm_0", "_vm_1"), ("vm_0", "VM_1")])
def test_all_knows_a_vm_by_each_spelling_of_its_name(resources: tuple[str, ...]) -> None:
    """The oldest api-version names it with an underscore; case is ignored. Source: C-5, V-1."""
    record = EventRecord(event(resources=resources), NOW)
    record.coordination, record.peers = "all", ("vm_1",)
    assert turn(record, Identity("vm_0"), now_ms=NOW).go
