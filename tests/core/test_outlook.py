"""What a plan means for each group, held against a count of everything."""

from __future__ import annotations

from collections import Counter

from forewarn.control.planning import asked_of, plan_of
from forewarn.core.maintenance.outlook import GroupOutlook, outlook
from forewarn.core.stimulus import ChangeTopology
from forewarn.core.topology import Group, Health, Vm
from forewarn.planning.plan import Plan
from tests.core.maintenance import MaintenanceRig, fleet


def planned(rig: MaintenanceRig, number: int) -> Plan:
    """Make a plan of what is true now."""
    return plan_of(rig.planned(number).plan, asked_of(rig.state.maintenances[number]))


def counted(rig: MaintenanceRig, number: int, occupied: set[str]) -> dict[str, tuple[object, ...]]:
    """Count, for each group that a plan disturbs, everything that is said about it."""
    topology, entries = rig.state.topology, planned(rig, number).entries
    found: dict[str, tuple[object, ...]] = {}
    for group in topology.groups.values():
        vms = [vm for vm in topology.vms.values() if vm.group == group.name]
        up = sum(
            vm.host not in occupied and topology.hosts[vm.host].health is not Health.FAILED
            for vm in vms
        )
        hits = [entry for entry in entries for vm in vms if vm.host == entry.host]
        if hits:
            waves = Counter(entry.wave for entry in hits)
            told = [entry.shown_ms for entry in hits]
            least = max(up - max(waves.values()), 0)
            times = len(waves), min(told), max(told)
            found[group.name] = (group.owner, len(vms), up, least, *times)
    return found


def rows(found: tuple[GroupOutlook, ...]) -> dict[str, tuple[object, ...]]:
    """Return what an outlook says, in the same form."""
    return {
        row.group: (
            *(row.owner, row.vms, row.up_before, row.up_least),
            *(row.waves, row.first_notice_ms, row.last_notice_ms),
        )
        for row in found
    }


def test_outlook_is_what_a_count_of_everything_gives() -> None:
    """Every disturbed group has a row, the worst first; the others have none. Source: F-2."""
    rig = fleet()
    groups = Group("db", owner="data"), Group("far")
    vms = Vm("db_0", "h0", "db"), Vm("db_1", "h3", "db"), Vm("far_0", "h5", "far")
    rig.tell(ChangeTopology(groups=groups, vms=vms))
    number = rig.create("h0", "h1", "h2", "h3")
    for occupied in (set[str](), {"h5"}, {"h0", "h3"}):
        found = outlook(planned(rig, number), rig.state.topology, occupied)
        assert rows(found) == counted(rig, number, occupied)
        assert [row.group for row in found] == ["db", "web"]
