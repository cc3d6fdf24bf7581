"""The current content of the feed, the sum of all changes."""

from __future__ import annotations

from forewarn_metadata.replication.messages import Caller, DocumentChange, NodePart, Publication


class FeedState:
    """The VMs, and the document of each enabled view."""

    def __init__(self) -> None:
        self.callers: dict[str, Caller] = {}
        self.publications: dict[str, Publication] = {}

    def apply(self, change: DocumentChange) -> None:
        """Apply a change; O(records of the change)."""
        if change.whole:
            self.callers.clear()
            self.publications.clear()
        for vm in change.gone:
            self.callers.pop(vm, None)
        self.callers.update((caller.vm, caller) for caller in change.callers)
        for each in change.publications:
            if each.enabled:
                self.publications[each.view] = each
            else:
                self.publications.pop(each.view, None)

    def whole(self, sequence: int) -> DocumentChange:
        """Return a copy of everything as one change; O(VMs and views)."""
        return DocumentChange(
            sequence,
            whole=True,
            callers=tuple(self.callers.values()),
            publications=tuple(self.publications.values()),
        )

    def difference(self, part: NodePart, sequence: int) -> DocumentChange:
        """Return the change from this state to a node's part; O(records of both)."""
        vms = {each.vm for each in part.vms}
        views = {each.view for each in part.documents}
        withdrawn = [
            each.without_document() for view, each in self.publications.items() if view not in views
        ]
        shown = [each for each in part.documents if self.publications.get(each.view) != each]
        return DocumentChange(
            sequence,
            callers=tuple([each for each in part.vms if self.callers.get(each.vm) != each]),
            gone=tuple([vm for vm in self.callers if vm not in vms]),
            publications=(*shown, *withdrawn),
        )
