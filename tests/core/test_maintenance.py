"""Maintenances: states, waves, pausing, stopping, and what they withdraw."""

from __future__ import annotations

from forewarn.core.maintenance.records import MaintenanceState
from tests.core.maintenance import fleet

S = MaintenanceState


def test_maintenance_goes_wave_by_wave_until_done() -> None:
    """Hosts of one fault domain go together, the next follow, and then it is done. F-1, F-3."""
    rig = fleet()
    number = rig.start("h0", "h1", "h2", "h3", "h4", "h5")
    waves = rig.run()
    assert sorted(map(sorted, waves)) == [["h0", "h3"], ["h1", "h4"], ["h2", "h5"]]
    assert rig.maintenance(number).state is S.DONE
    assert not rig.state.maintenances
    assert not rig.state.targets
    rig.check_replay()


def test_draft_announces_nothing() -> None:
    """A draft is planned, and nothing of it is announced. Source: F-1."""
    rig = fleet()
    number = rig.create("h0", "h1")
    rig.wait(24 * 3_600_000)
    made = rig.maintenance(number)
    assert made.state is S.DRAFT
    assert rig.state.plans[made.plan].waves
    assert not rig.state.operations
