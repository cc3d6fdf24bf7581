"""Checks documents: what is durable to be shown is true, and moves as is promised.

What a node shows of it and what a VM reads is checked in `invariants.py`.
"""

from collections import Counter
from collections.abc import Iterable

from forewarn_base.protocol.documents import Document, ScheduledEvent
from forewarn_core.fleet.document import View
from forewarn_core.fleet.state import Changes, State
from tests.simulator.checkers.contract import row_owed, row_shown, views_owed
from tests.simulator.world.crash_points import Violation

Events = tuple["ScheduledEvent", ...]


class DocumentChecker:
    """Every document that ever durably was."""

    def __init__(self, state: State, premises: Counter[str]) -> None:
        """Begin with none; `state` is what is durable now, as the state checker has it."""
        self._state = state
        self._premises = premises
        #: View -> every (incarnation, events) it ever durably had.
        self.ever: dict[str, dict[int, list[Events]]] = {}
        #: View -> the same since it was enabled last.
        self._since: dict[str, dict[int, Events]] = {}
        self._gone: dict[str, set[str]] = {}

    def durable(self, changes: Changes) -> None:
        """Check documents that have become durable, before the state has them."""
        moved_groups = self._check_view_moves(changes)
        for key, view in changes.views.items():
            self._check_view(key, view, went_on=view is not None and view.group in moved_groups)

    def check_groups(self, groups: Iterable[str]) -> None:
        """What is durable to be shown is exactly what is live. Source: D-3 to D-9, S-1 to S-5."""
        state = self._state
        for group in groups:
            if group not in state.enrolments or group not in state.topology.groups:
                continue
            live = [state.events[each] for each in state.event_ids_of(group)]
            for key in sorted(views_owed(group, state.topology)):
                vm = key.partition("/")[2]
                owed = {
                    event.id: row_owed(state.operations[event.operation], event)
                    for event in live
                    if not vm or vm in event.resources
                }
                if key not in state.views:
                    raise Violation("S-3", f"{key} is owed a document of its own")
                events = state.views[key].document.events
                shown = {event.event_id: row_shown(event) for event in events}
                if shown != owed:
                    text = f"{key} shows {list(shown.values())} where {list(owed.values())} is true"
                    raise Violation("13", text)

    def _check_view_moves(self, changes: Changes) -> set[str]:
        """Invariant 2 for VMs that read another document of their group from now on (S-3).

        Returns:
            the groups where VMs do.
        """
        groups: set[str] = set()
        if not changes.of_fleet:
            return groups
        before = self._state.topology
        after = before.copy()
        after.apply(changes)
        names = dict.fromkeys(name for name, vm in changes.vms.items() if vm is not None)
        for group_name in changes.groups:
            names |= dict.fromkeys(after.vms_in(group_name))
        for name in names:
            vm = after.vms[name]
            known, group = before.vms.get(name), after.groups[vm.group]
            if known is None or known.group != vm.group:
                continue
            if known is vm and before.groups[vm.group] is group:
                continue
            old, new = before.view_of(name), after.view_of(name)
            if old == new or vm.group not in self._state.enrolments:
                continue
            groups.add(vm.group)
            was = self._state.views[old].document
            found = changes.views.get(new) or self._state.views[new]
            now = found.document
            if now != was and now.incarnation <= was.incarnation and now.events != was.events:
                text = f"{name} read {old} at {was.incarnation}, reads {new} at {now.incarnation}"
                raise Violation("2", text)
        return groups

    def _check_view(self, key: str, view: View | None, *, went_on: bool) -> None:
        """Invariants 2 and 3, for what became durable."""
        before = self._state.views.get(key)
        if view is None:
            self._gone.pop(key, None)
            self._since.pop(key, None)
            return
        if not went_on:  # else that was checked with what its readers read before
            self._check_incarnation(key, view, before)
        now = view.document
        if self._since.setdefault(key, {}).setdefault(now.incarnation, now.events) != now.events:
            raise Violation("2", f"{key} has other events at {now.incarnation} than before")
        ids, gone = {event.event_id for event in now.events}, self._gone.setdefault(key, set())
        if before is not None:
            gone |= {event.event_id for event in before.document.events} - ids
        self._premises["3: an event has left a document"] += bool(gone)
        if gone & ids:
            raise Violation("3", f"{key} shows {sorted(gone & ids)} again")
        self.ever.setdefault(key, {}).setdefault(now.incarnation, []).append(now.events)

    def _check_incarnation(self, key: str, view: View, before: View | None) -> None:
        """D-1: it grows by one whenever the events change, and only then."""
        now = view.document
        if before is None:  # with its group, or from where the document all share is
            shared = self._state.views.get(view.group)
            since = shared.document if shared else Document(0, ())
            if now.incarnation != since.incarnation + (now.events != since.events):
                raise Violation("2", f"{key} begins at incarnation {now.incarnation}")
        elif now != before.document:
            self._premises["2: a document changes"] += 1
            if now.events == before.document.events:
                raise Violation("2", f"{key} moved to {now.incarnation} without a change")
            if now.incarnation != before.document.incarnation + 1:
                was = before.document.incarnation
                raise Violation("2", f"{key} went from {was} to {now.incarnation} with a change")
