"""Changes of the fleet's layout, and of the work that they are about."""

from __future__ import annotations

from collections import Counter

from forewarn_core.fleet import fleet_changes, transitions
from forewarn_core.fleet import stimulus as stimuli
from forewarn_core.fleet.approvals import recount
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.host_admission import plan_without
from forewarn_core.fleet.state import Entry

#: Actions of entries about records of the fleet's layout.
_LAYOUT = frozenset(
    f"{kind}.{verb}" for kind in ("host", "group", "vm") for verb in ("added", "changed", "removed")
)


def change(draft: Draft, change: stimuli.ChangeTopology) -> None:
    """Change the fleet's layout; VMs that leave a host leave its announced work. See L-9."""
    names = [vm.name for vm in change.vms]
    names += [name for kind, name in change.removed if kind == "vm"]
    before = {name: draft.topology.vms.get(name) for name in names}
    fleet_changes.change(draft, change)
    transitions.follow_vms(draft, before)
    recount(draft, change.groups)
    plan_without(draft, frozenset(name for kind, name in change.removed if kind == "host"))
    if change.revision:
        _log_revision(draft, change.revision)


def _log_revision(draft: Draft, revision: str) -> None:
    """Write which revision of a file changed the fleet, if it changed anything."""
    entries = draft.changes.entries
    kinds = Counter(entry.action.partition(".")[2] for entry in entries if entry.action in _LAYOUT)
    if kinds:
        counts = ", ".join(f"{count} {verb}" for verb, count in kinds.items())
        text = f"revision {revision} of the topology is applied: {counts}"
        entries.append(Entry(draft.now_ms, draft.actor, "topology.applied", text))
