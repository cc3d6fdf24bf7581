"""The journal: whole at any moment, whatever is cut short."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.agent import journal as module
from forewarn.agent.journal import Journal, JournalLocked, JournalLost, JournalOpen, newest
from tests.agent.power_cuts import SECTOR, CutDisk, PowerCutError


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return where a journal is."""
    return tmp_path / "state"


def test_last_state_is_read_back(directory: Path) -> None:
    """Each state replaces the one before; its boot is known. Source: C-9."""
    journal = Journal(str(directory))
    assert journal.read() is None
    for number in range(5):
        journal.write({"number": number, "long": "x" * 50_000 * number})
    journal.close()
    again = Journal(str(directory))
    assert again.read() == {"number": 4, "long": "x" * 200_000}
    assert again.boot_id
    again.write({"number": 5})
    assert newest(str(directory))[1] == {"number": 5, "boot_id": again.boot_id}
    again.close()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory in which three states were written, numbers 0 to 2."""
    directory = tmp_path_factory.mktemp("journal")
    journal = Journal(str(directory))
    for number in range(3):
        journal.write({"number": number})
    journal.close()
    (directory / "journal.1").rename(directory / "whole")  # the third state, number 2
    return directory


@given(cut=st.integers(0, 300), noise=st.binary(max_size=40))
def test_write_that_is_cut_short_leaves_the_state_before(
    written: Path, cut: int, noise: bytes
) -> None:
    """A power cut in the middle of a write costs nothing but that write."""
    whole = (written / "whole").read_bytes()
    (written / "journal.1").write_bytes(whole[:cut] + noise + whole[cut + len(noise) :])
    again = Journal(str(written))
    assert again.read() in ({"number": 1}, {"number": 2})
    assert again.corrupt == ""
    again.close()


def test_state_that_cannot_be_written_is_said_so(directory: Path) -> None:
    """What is not on disk is not pretended to be."""
    journal = Journal(str(directory))
    journal.write({"number": 1})
    (directory / "journal.0").mkdir()
    with pytest.raises(JournalLost):
        journal.write({"number": 2})
    (directory / "journal.0").rmdir()
    journal.write({"number": 3})
    assert newest(str(directory))[0] == 2
    journal.close()


def test_second_user_of_a_directory_is_refused(directory: Path) -> None:
    """Two agents would do everything twice."""
    journal = Journal(str(directory))
    with pytest.raises(JournalLocked):
        Journal(str(directory))
    journal.close()
    Journal(str(directory)).close()


def test_first_state_finds_its_room_made(directory: Path) -> None:
    """The first event need not wait for files to be made; empty ones are not called damaged."""
    journal = Journal(str(directory))
    journal.make_room()
    sizes = [path.stat().st_size for path in sorted(directory.glob("journal.*"))]
    assert len(sizes) == 2
    assert journal.read() is None
    assert journal.corrupt == ""
    journal.write({"number": 1})
    assert [path.stat().st_size for path in sorted(directory.glob("journal.*"))] == sizes
    journal.make_room()
    assert newest(str(directory))[0] == 1
    journal.close()


def test_flipped_bit_in_the_turn_costs_that_state_alone(directory: Path) -> None:
    """The head is checked like the rest: the other half is whole, and is used."""
    journal = Journal(str(directory))
    for number in range(3):
        journal.write({"number": number})
    journal.close()
    last = max(directory.glob("journal.[01]"), key=lambda path: path.read_bytes()[9:10])
    whole = last.read_bytes()
    for bit in range(8):
        last.write_bytes(whole[:9] + bytes([whole[9] ^ 1 << bit]) + whole[10:])
        _, form = newest(str(directory))
        assert form is not None
        assert form["number"] == 1


@pytest.mark.parametrize("mode", [0o770, 0o707], ids=["group", "everybody"])
def test_directory_that_others_can_write_is_refused(directory: Path, mode: int) -> None:
    """Commands are kept there, which the agent runs."""
    directory.mkdir()
    directory.chmod(mode)
    with pytest.raises(JournalOpen):
        Journal(str(directory))


# -- the journal on a disk whose power is cut at any call, with torn and lost writes -------------


LIVES = 100
CALLS_MAX = 12
#: Characters of a state: some are shorter than a sector, most take several.
SIZE_MAX = 5000


def lost(monkeypatch: pytest.MonkeyPatch, root: Path, *, honest: bool, grows: bool = False) -> int:
    """Live and lose power again and again; return how often a written state was not read.

    `grows`: each state is larger than the one before, and a file has room for one state alone.
    """
    chance, count = random.Random(20261123), 0
    if grows:
        monkeypatch.setattr(module, "SLOT_BYTES", SECTOR)
    acknowledged = begun = 0
    for life in range(LIVES):
        directory, after = root / f"{life}", root / f"{life + 1}"
        directory.mkdir(mode=0o700, exist_ok=True)
        after.mkdir(mode=0o700)
        disk = CutDisk(chance, calls=chance.randint(0, CALLS_MAX), honest=honest)
        disk.holds(directory)
        monkeypatch.setattr(module, "os", disk)
        journal = Journal(str(directory))
        read = journal.read()
        number = int(str(read["number"])) if read and "number" in read else 0
        count += number not in (acknowledged, begun)
        acknowledged = begun = number
        try:
            journal.make_room()
            while True:
                begun = acknowledged + 1
                size = begun * SECTOR if grows else chance.randint(0, SIZE_MAX)
                journal.write({"number": begun, "text": "x" * size})
                acknowledged = begun
        except PowerCutError:
            journal.close()
            disk.after_the_cut(after)
    return count


@pytest.mark.parametrize("grows", [False, True], ids=["fits", "grows"])
def test_state_that_was_written_survives_every_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, grows: bool
) -> None:
    """What is read is the last state that was written, or the one being written. Source: C-9.

    Also where each state outgrows its file, whose new size must be synced.
    """
    count = lost(monkeypatch, tmp_path, honest=True, grows=grows)
    assert count == 0, f"C-9: {count} of the written states were lost, of {LIVES} power cuts"


def test_disk_that_lies_about_synchronising_loses_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same cuts lose states where nothing is synchronised: the test above can fail."""
    assert lost(monkeypatch, tmp_path, honest=False) > LIVES / 10
