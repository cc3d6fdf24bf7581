"""Checks metadata nodes away from the service, from outside: M-1 to M-5.

It sees what each is sent, how it answers, what is safe on its disk, and when it dies. The rules
are written from the contract; where VMs are is looked up in what is durable.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence

from forewarn_base.protocol.documents import Document
from forewarn_core.fleet.lifecycle import Event, EventState
from forewarn_core.fleet.state import Changes
from forewarn_metadata.replication.messages import DocumentChange
from tests.simulator.checkers.node_notice import SETTLE_MS, FarNode, NodeNoticeChecker
from tests.simulator.checkers.node_records import NodeRecords
from tests.simulator.checkers.state_checker import StateChecker
from tests.simulator.world.crash_points import Violation
from tests.simulator.world.metadata_node import SimulatedNode, SimulatedReply

E = EventState

#: How long a node that is well may take to hand on what it was asked while it was not.
HANDED_ON_MS = 60_000
#: How long a node and its network must have been well for a VM to be owed an answer at all.
ANSWER_MS = 200_000


class _Seen:
    """What was seen of one node."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.callers: dict[str, str] = {}
        self.shown: dict[str, Document] = {}
        #: The version of what is durable that it was found to equal, in everything.
        self.equals = -1
        #: When it last was known to be up to date: everything of SETTLE_MS before is there.
        self.fresh_ms = 0
        #: Group -> when its VMs asked first since that was reported.
        self.unreported: dict[str, int] = {}
        #: What it showed when its process ended last.
        self.before: dict[str, Document] = {}


class NodeChecker:
    """Follows every node away from the service."""

    def __init__(self, states: StateChecker, counts: Callable[[Event, str], bool]) -> None:
        """Begin with none; `counts` says whether an approval of an event counts."""
        self.far: Sequence[FarNode] = ()
        self.records = NodeRecords(states.state)
        #: VMs that may be elsewhere since the last durable change.
        self.moved: set[str] = set()
        #: Called with each spooled approval that counts now: VM and event.
        self.delivered: Callable[[str, str], None] = lambda _, __: None
        self._states = states
        self._counts = counts
        self._premises = states.premises
        self._queue = states.queue
        self._seen: dict[str, _Seen] = {}
        #: Counts the durable changes of who is where and of what is shown.
        self._version = 0
        #: (VM, event) answered 200 by a node on its own -> that node, and whether it still is owed.
        self._spooled: dict[tuple[str, str], FarNode] = {}
        #: Event -> view -> its incarnation when the event was approved first.
        self._approved: dict[str, dict[str, int]] = {}
        self.notice = NodeNoticeChecker(states, self)

    # ---- what is durable -----------------------------------------------------------------------

    def durable(self, changes: Changes) -> None:
        """A change is durable, and the state has it."""
        state, now_ms = self._states.state, self._queue.now_ms
        self.moved = self.records.durable(changes, now_ms)
        self._version += bool(self.moved or changes.groups or changes.views)
        for event in changes.events.values():
            if event.approved_by and event.id not in self._approved:
                views = (v for v in state.views.values() if v.group == event.group)
                self._approved[event.id] = {v.key: v.document.incarnation for v in views}
        for (vm, event_id), _ in tuple(self._spooled.items()):
            changed = changes.events.get(event_id)
            if changed is not None and self._is_settled(vm, changed):
                del self._spooled[vm, event_id]
                delivered = vm in changed.approved_by
                self._premises["M-3: a node's own approval is delivered"] += delivered
                self.delivered(vm, event_id)
        self.notice.durable(changes)

    # ---- what nodes are sent -------------------------------------------------------------------

    def takes(self, node: FarNode, change: DocumentChange) -> None:
        """M-5: a node was sent something; it may know and show only VMs of its hosts."""
        seen, hosts = self._of(node), node.hosts
        seen.equals = -1
        if change.whole:
            seen.callers.clear()
            seen.shown.clear()
        for vm in change.gone:
            seen.callers.pop(vm, None)
            self._check_left(node, vm)
        for caller in change.callers:
            self._premises["M-5: a node of some hosts is sent a VM"] += hosts is not None
            if hosts is not None and not self.records.ever(caller.vm, hosts):
                raise Violation("M-5", f"{node.name} was sent {caller.vm}, never on its hosts")
            seen.callers[caller.vm] = caller.view
        for each in change.publications:
            if each.enabled:
                seen.shown[each.view] = each.document
            else:
                seen.shown.pop(each.view, None)
        if hosts is not None:
            foreign = seen.shown.keys() - set(seen.callers.values())
            if foreign:
                raise Violation("M-5", f"{node.name} shows {sorted(foreign)} to nobody")

    def _check_left(self, node: FarNode, vm: str) -> None:
        """M-1: a VM leaves its old node only once a new one has it, if that was ever seen.

        A VM that was removed and added again is another one: it has not moved. A VM that was on a
        host without a node meanwhile had no new node.
        """
        left_ms = self.records.left_ms(vm, node.hosts)
        if self.records.removed_ms.get(vm, -1) >= left_ms:
            return
        if any(self._no_node(host) for host in self.records.left_since(vm, left_ms)):
            return
        serving = [far for far in self.far if self.records.since_ms(vm, far.hosts) is not None]
        seen = [far for far in serving if self._of(far).fresh_ms > self._states.recovered_ms]
        if node.hosts is None or not seen or node in serving:  # gone, or back, or at the service
            return
        self._premises["M-1: a VM leaves its old node"] += 1
        if not any(vm in self._of(far).callers for far in serving):
            raise Violation("M-1", f"{node.name} lets go of {vm}, and {seen[0].name} has it not")

    def _no_node(self, host: str) -> bool:
        return not any(far.hosts is None or host in far.hosts for far in self.far)

    def asks_for_others(self, node: FarNode, vm: str, *, accepted: bool) -> None:
        """M-5: a node that was taken over asks for what is none of its business.

        Where that waited for the feed to come back the VM may be its own by now.
        """
        if node.hosts is None or self.records.ever(vm, node.hosts):
            return
        self._premises["M-5: a node asks for a VM that is not its own"] += 1
        if accepted:
            raise Violation("M-5", f"{node.name} approves for {vm}, which is not on its hosts")

    def look_at_all(self) -> None:
        """Look at every node, and for what should have been reported by now."""
        for node in self.far:
            self.look(node)
        self.notice.check_told()

    def look(self, node: FarNode) -> None:
        """M-1: a node that is well equals what is durable, for its VMs, and owes nothing."""
        now_ms, seen = self._queue.now_ms, self._of(node)
        since_ms = self.sound_since_ms(node)
        if since_ms + SETTLE_MS > now_ms:
            return
        seen.fresh_ms = now_ms
        self._premises["M-1: a node equals what is durable"] += 1
        if seen.equals != self._version:  # else neither side has changed since
            same = self._check_callers(node, seen)
            if self._check_documents(node, seen) and same:
                seen.equals = self._version
        if since_ms + HANDED_ON_MS > now_ms:
            return
        for group, asked_ms in seen.unreported.items():
            if asked_ms + HANDED_ON_MS >= now_ms:
                continue
            if any(at <= asked_ms for at in self._readers_of_group(node, group)):
                ago_s = (now_ms - asked_ms) // 1000
                text = f"{group} asked {node.name} {ago_s} s ago: not reported"
                raise Violation("B-2", text)
        for (vm, event_id), spools in self._spooled.items():
            event = self._states.events[event_id]
            if spools is node and not self._is_settled(vm, event):
                raise Violation("11", f"{node.name} accepted {event_id} for {vm}: never delivered")

    def _check_callers(self, node: FarNode, seen: _Seen) -> bool:
        """M-1, M-5: return whether it knows its VMs and no others; what is new may differ."""
        settled_ms = self._queue.now_ms - SETTLE_MS
        expected = set(self.records.vms_on(node.hosts))
        for vm in sorted(expected - seen.callers.keys()):
            since_ms = self.records.since_ms(vm, node.hosts)
            if since_ms is not None and since_ms <= settled_ms:
                raise Violation("M-1", f"{node.name} does not know {vm}, which is on its hosts")
        for vm in sorted(seen.callers.keys() - expected):
            left = self.records.left_ms(vm, node.hosts) <= settled_ms
            if left and not any(self._serves_late(other, vm) for other in self.far):
                raise Violation("M-5", f"{node.name} knows {vm}, which has left its hosts")
        return expected == seen.callers.keys()

    def _serves_late(self, node: FarNode, vm: str) -> bool:
        """Whether a VM that has moved to this node, or was about to, may be served by another."""
        now_ms = self._queue.now_ms
        there = self.records.since_ms(vm, node.hosts) is not None
        there |= self.records.left_ms(vm, node.hosts) + SETTLE_MS > now_ms
        return there and self.sound_since_ms(node) + HANDED_ON_MS > now_ms

    def _check_documents(self, node: FarNode, seen: _Seen) -> bool:
        """M-1: return whether it shows what is durable, all of it; what is new may differ."""
        settled_ms, state, same = self._queue.now_ms - SETTLE_MS, self._states.state, True
        vms = [vm for vm in self.records.vms_on(node.hosts) if vm in seen.callers]
        for vm, view in self.records.views_of(vms).items():
            durable, shown = state.views.get(view), seen.shown.get(view)
            if durable is None or shown == durable.document:
                continue
            same = False
            changed_ms = self.records.changed_ms.get(view.partition("/")[0], 0)
            if max(changed_ms, self._changed_ms(view)) <= settled_ms:
                text = f"{node.name} shows {vm} {shown} where {durable.document} is durable"
                raise Violation("M-1", text)
        return same

    def _changed_ms(self, view: str) -> int:
        return self._states.view_changed_ms.get(view, 0)

    # ---- how nodes answer ----------------------------------------------------------------------

    def polled(
        self, vm: str, node: SimulatedNode, reply: SimulatedReply, *, calm_since_ms: int
    ) -> None:
        """M-2: a node answers the VMs it knows, whatever else is away."""
        far = self.find(node)
        if far is None:
            return
        now_ms, seen, status = self._queue.now_ms, self._of(far), reply.status
        self.look(far)
        if status == 200 and reply.view:
            away = self.sound_since_ms(far) == now_ms
            seen.unreported.setdefault(reply.view.partition("/")[0], now_ms)
            self._premises["M-2: a node answers while the service is away"] += away
            return
        known = self._states.state.topology.vms.get(vm)
        since_ms = self.records.since_ms(vm, far.hosts)
        if known is None or since_ms is None or known.group not in self._states.state.enrolments:
            return
        changed_ms = max(since_ms, self.records.changed_ms.get(known.group, 0))
        if changed_ms + SETTLE_MS > seen.fresh_ms:
            return
        well_ms = max(calm_since_ms, far.since_ms, changed_ms)
        if status in {404, 503} or (not status and well_ms + ANSWER_MS < now_ms and far.serves):
            text = f"{vm} polls {far.name}, which serves it, and is answered {status}"
            raise Violation("M-2", text)

    def check_age(self, vm: str, node: SimulatedNode, view: str, *, superseded_ms: int) -> None:
        """M-2: what a node once was up to date with it never shows an older state of again."""
        far = self.find(node)
        if far is None:
            return
        fresh_ms = self._of(far).fresh_ms
        self._premises["M-2: an older document is read at a node"] += 1
        if superseded_ms + SETTLE_MS < fresh_ms:
            age_s = (fresh_ms - superseded_ms) // 1000
            text = f"{vm} read {view} at {far.name} as it was {age_s} s before it was up to date"
            raise Violation("M-2", text)

    def answered_approval(self, vm: str, node: SimulatedNode, event_ids: Iterable[str]) -> None:
        """A-6: what an approval has changed is shown where it is answered, by then."""
        far = self.find(node)
        if far is None or self.sound_since_ms(far) + SETTLE_MS > self._queue.now_ms:
            return
        seen = self._of(far)
        view = seen.callers.get(vm, "")
        for event_id in event_ids:
            least = self._approved.get(event_id, {}).get(view, -1)
            document = seen.shown.get(view)
            self._premises["A-6: an approval is answered after what it changed"] += least > 0
            if document is not None and document.incarnation < least:
                text = f"{vm} is answered at {far.name}, which shows {view} as it was before that"
                raise Violation("A-6", text)

    def keeps(self, node: SimulatedNode, vm: str, event_id: str) -> bool:
        """M-3: whether an approval is safe at a node that may accept it; it then is owed."""
        far = self.find(node)
        if far is None:
            return False
        kept = any(_names(line, vm, event_id) for line in far.spooled)
        if kept:
            self._premises["M-3: a node accepts an approval on its own"] += 1
            self._spooled[vm, event_id] = far
        return kept

    def marked(self, groups: frozenset[str]) -> None:
        """Requests of these groups were reported."""
        for seen in self._seen.values():
            for group in groups & seen.unreported.keys():
                del seen.unreported[group]

    def lost_feed(self, node: FarNode) -> None:
        """A node finds a feed lost that it followed: what it handed on there may be, too.

        It reports each poll once. Source: B-2, nodes.md.
        """
        self._of(node).unreported.clear()

    def died(self, node: FarNode) -> None:
        """A node's process ended: what it had only in memory is gone."""
        seen = self._of(node)
        seen.unreported.clear()
        seen.before = dict(seen.shown)

    def restarted(self, node: FarNode) -> None:
        """M-2: a node shows again what it has shown, at once."""
        seen = self._of(node)
        self._premises["M-2: a node comes back on its own"] += node.serves
        for view, document in seen.before.items() if node.serves else ():
            now, durable = seen.shown.get(view), self._states.state.views.get(view)
            is_reset = durable is None or durable.document.incarnation < document.incarnation
            if now is not None and now.incarnation < document.incarnation and not is_reset:
                text = f"{node.name} showed {view} at {document.incarnation}, comes back with"
                raise Violation("M-2", f"{text} {now.incarnation}")
        if node.serves or node.may_come_back_empty or not seen.fresh_ms:
            return
        raise Violation("M-2", f"{node.name} comes back with nothing to show")

    def find(self, node: SimulatedNode) -> FarNode | None:
        """Return a node as it is seen here; None: it is in the service's own process."""
        return next((each for each in self.far if each.name == node.name), None)

    def view_sent(self, node: SimulatedNode, vm: str) -> str:
        """Return the view a node away from the service was sent for a VM; empty: it was not."""
        far = self.find(node)
        return self._of(far).callers.get(vm, "") if far is not None else ""

    def shown(self, node: FarNode, view: str) -> Document | None:
        """Return what a node shows of a view."""
        return self._of(node).shown.get(view)

    def serves(self, node: FarNode, view: str, since_ms: int | None = None) -> bool:
        """Whether a node has had readers of a view since before then, or has them now.

        Readers that arrived in that millisecond may have come with a later commit.
        """
        readers = self.records.readers(view, node.hosts)
        return any(since_ms is None or at < since_ms for _, at in readers)

    def read_there(self, node: FarNode, view: str, since_ms: int) -> set[str]:
        """Return the documents a node shows to those who are owed a view, since before then.

        While a change of their group's kind is on its way, they still read another document.
        """
        callers, readers = self._of(node).callers, self.records.readers(view, node.hosts)
        return {callers.get(vm, view) for vm, at in readers if at < since_ms}

    # ---- inside --------------------------------------------------------------------------------

    def _readers_of_group(self, node: FarNode, group: str) -> Iterator[int]:
        for vm in self._states.state.topology.vms_in(group):
            since_ms = self.records.since_ms(vm, node.hosts)
            if since_ms is not None:
                yield since_ms

    def _is_settled(self, vm: str, event: Event) -> bool:
        """Whether a spooled approval counts, or cannot any more."""
        state = self._states.state
        known = state.topology.vms.get(vm)
        if known is None or known.group != event.group or event.group not in state.enrolments:
            return True
        return event.state is not E.SCHEDULED or self._counts(event, vm)

    def sound_since_ms(self, node: FarNode) -> int:
        """Since when nothing has kept changes from a node, true time in ms."""
        return self._states.sound_since_ms(node)  # type: ignore[arg-type]

    def _of(self, node: FarNode) -> _Seen:
        return self._seen.setdefault(node.name, _Seen())


def _names(line: bytes, vm: str, event_id: str) -> bool:
    """Whether a line of a node's approvals is this one."""
    approval = json.loads(line)
    return bool(approval["vm"] == vm) and event_id in approval["event_ids"]
