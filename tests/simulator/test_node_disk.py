"""The simulated disk of a metadata node: what a killed process and a loss of power leave."""

from __future__ import annotations

import pytest

from tests.simulator.world.dice import Dice
from tests.simulator.world.node_disk import NODE_POINTS, NodeDisk, NodeDiskFiles
from tests.simulator.world.virtual_loop import ProcessKilled

LINES = (b"one\n", b"two\n")


def opened(disk: NodeDisk) -> NodeDiskFiles:
    """Return the files of a process that ends where the disk says."""

    def end() -> None:
        files.end()

    files = NodeDiskFiles(disk, end)
    return files


def kept(disk: NodeDisk, name: str) -> bytes:
    """Return what the next process reads."""
    try:
        return b"".join(opened(disk).lines(name))
    except FileNotFoundError:
        return b""


@pytest.mark.parametrize("power", [False, True], ids=["process", "power"])
@pytest.mark.parametrize("point", NODE_POINTS)
def test_what_was_synced_is_there_after_any_end(point: str, *, power: bool) -> None:
    """Killed anywhere in a write, a file has what it had, and some of the new at most. M-2."""
    disk = NodeDisk(Dice(1, "disk"))
    files = opened(disk)
    files.replace("feed", LINES)
    disk.armed = point
    act = files.replace if "replaced" in point else files.append
    with pytest.raises(ProcessKilled):
        act("feed", (b"three\n",))
    if power:
        disk.lose_power()
    left = kept(disk, "feed")
    if act == files.append:
        assert b"one\ntwo\nthree\n".startswith(left)
        assert left.startswith(b"one\ntwo\n")
        assert (left == b"one\ntwo\nthree\n") or point != "after a sync"
    else:
        replaced = point == "after a file is replaced" and not power
        assert left == (b"three\n" if replaced else b"one\ntwo\n")
    assert disk.counts[f"killed {point}"] == 1
    with pytest.raises(ProcessKilled):
        files.append("feed", LINES)


def test_power_takes_what_was_not_synced() -> None:
    """A new file whose name is not safe is gone; one written to keeps its first part. M-3."""
    disk = NodeDisk(Dice(2, "disk"))
    files = opened(disk)
    disk.armed = "before a sync"
    with pytest.raises(ProcessKilled):
        files.append("approvals", LINES)
    assert kept(disk, "approvals") == b"one\ntwo\n"
    disk.lose_power()
    assert b"one\ntwo\n".startswith(kept(disk, "approvals"))
    assert disk.counts["write lost"] + disk.counts["torn write kept"] >= 1


def test_full_disk_takes_nothing() -> None:
    """It is refused, leaves no half line, and is noted until the file is written again. M-2."""
    disk = NodeDisk(Dice(3, "disk"))
    files = opened(disk)
    files.append("feed", LINES)
    disk.full = True
    with pytest.raises(OSError, match="No space"):
        files.append("feed", (b"three\n",))
    assert kept(disk, "feed") == b"one\ntwo\n"
    assert disk.refused == {"feed"}
    disk.full = False
    files.replace("feed", LINES)
    assert not disk.refused
