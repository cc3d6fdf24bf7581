"""A window whose time zone this machine does not know: closed, named, and planned again."""

import zoneinfo
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn_base import time_zones
from forewarn_core.fleet import stimulus as words
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.refusals import MaintenanceImpossible
from forewarn_core.fleet.stimulus import Recover
from forewarn_core.fleet.why import why_host
from forewarn_core.planning.policy import MaintenancePolicy
from forewarn_core.rules import local_time
from forewarn_core.rules.blockers import Blocker, code_of
from forewarn_core.rules.local_time import UNREADABLE, Window
from tests.core.maintenance import MaintenanceRig, fleet
from tests.core.rig import MINUTE_MS

SITE = "Site/Local"


class Machine:
    """This machine's time zones, one of which is its own."""

    def __init__(self, folder: Path) -> None:
        """Know the zone of the site, whose time is UTC."""
        self._file = folder / SITE
        self._file.parent.mkdir()
        zoneinfo.reset_tzpath((str(folder), *zoneinfo.TZPATH))
        self.learn()

    def learn(self) -> None:
        """Install the data."""
        data = next(Path(each) / "Etc/UTC" for each in zoneinfo.TZPATH[1:] if Path(each).is_dir())
        self._file.write_bytes(data.read_bytes())
        self._restart()

    def forget(self) -> None:
        """Remove the data, as an upgrade may."""
        self._file.unlink()
        self._restart()

    def _restart(self) -> None:
        zoneinfo.ZoneInfo.clear_cache()
        for each in (
            *(time_zones.zone_of, local_time._stretches, local_time._spans),
            local_time._spans_of_blocks,
        ):
            each.cache_clear()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine whose time zones may be lost."""
    yield Machine(tmp_path)
    zoneinfo.reset_tzpath()


def nights() -> MaintenanceRig:
    """A fleet that is maintained at any time of the site."""
    rig = fleet()
    rig.tell(words.ApplyPolicy(MaintenancePolicy(windows=(Window("nights", SITE),))))
    return rig


def blocker(rig: MaintenanceRig, number: int) -> Blocker:
    """Why h0 waits."""
    draft = Draft(rig.state, rig.now_ms, rig.terms())
    found = why_host(draft, rig.maintenance(number), "h0")
    assert found
    return found


def test_work_in_a_window_of_an_unknown_time_zone_cannot_be_started(machine: Machine) -> None:
    """The refusal names the window and its zone. Source: F-4, F-7."""
    rig = nights()
    machine.forget()
    number = rig.create("h0", "h1")
    refused = rig.refuses(words.StartMaintenance(number), MaintenanceImpossible)
    assert f"window nights ({UNREADABLE} {SITE}) to open" in str(refused)


def test_announced_work_is_withdrawn_where_the_time_zone_is_lost(machine: Machine) -> None:
    """It would start in time that counts as closed; once the zone is back, it is planned again."""
    rig = nights()
    number = rig.start("h0", "h1")
    assert rig.working(number)
    machine.forget()
    rig.tell(Recover())
    assert not rig.working(number)
    found = blocker(rig, number)
    assert (found.code, found.clears_ms) == (code_of("window"), 0)
    assert found.subject == f"window nights ({UNREADABLE} {SITE})"
    rig.wait(10 * MINUTE_MS)
    assert not rig.state.operations
    machine.learn()
    rig.tell(Recover())
    assert rig.working(number)
    rig.check_replay()
